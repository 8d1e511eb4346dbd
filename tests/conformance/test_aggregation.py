"""Every aggregation, ours and Flower's: one bad reply among ten costs its node the round and nobody else."""

import gc
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Error, Message, MetricRecord

from edge.flower import to_record
from fedslice.core.params import Array, Model, dtype_of
from server.ledger import NO_REPLY
from server.strategy import Strategy
from tests.support import bits, instruction, model_of, play, random_like, reasons, reply, strategy_of

FLOWER: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedAdam": {},
    "FedYogi": {},
    "FedMedian": {},
    "FedTrimmedAvg": {},
    "Krum": {"num_malicious_nodes": 1},
    "MultiKrum": {"num_malicious_nodes": 1, "num_nodes_to_select": 5},
    "Bulyan": {"num_malicious_nodes": 1},
    "QFedAvg": {"client_learning_rate": 0.1},
}
RULES: dict[str, dict[str, Any]] = {
    "mean": {"rule": "mean"},
    **{n: {"rule": "flower", "strategy": f"flwr.serverapp.strategy.{n}", "args": args} for n, args in FLOWER.items()},
}
every_rule = pytest.mark.parametrize("rule", RULES)
BAD = 4  # the node whose reply is spoilt


def a_model() -> Model:
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(0, 1, (3, 4)).astype(np.float32),
        "b": np.asarray(rng.normal()).astype(np.float32),
        "norm.running_var": np.ones(4, np.float32),
        "norm.num_batches_tracked": np.asarray(3),
    }
    return model_of(arrays)


MODEL = a_model()


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """Flower's QFedAvg collects garbage at each reply: spare it all that the test run holds."""
    gc.freeze()
    yield
    gc.unfreeze()


@cache
def without_bad(rule: str) -> dict[str, Any]:
    model, _ = play(strategy(rule), MODEL, good_replies(without=BAD))
    assert model is not None
    return bits(model.arrays)


def strategy(rule: str, quorum: int = 1) -> Strategy:
    return strategy_of(aggregation=RULES[rule], federation={"quorum": quorum})


def good(node: int, model: Model = MODEL) -> dict[str, Array]:
    return random_like(model, np.random.default_rng(node))


def good_replies(without: int | None = None) -> list[Message]:
    return [reply(node, good(node), 10 + node) for node in range(10) if node != without]


def with_entry(name: str, value: Any) -> dict[str, Array]:
    return {**good(BAD), name: value}


def spoilt(name: str, value: float) -> dict[str, Array]:
    array = np.array(good(BAD)[name])
    array.reshape(-1)[0] = value
    return with_entry(name, array)


def longer(norm: float) -> dict[str, Array]:
    """The node's own update, scaled."""
    arrays = good(BAD)
    scale = norm / math.hypot(*(float(np.linalg.norm(arrays[n])) for n in ("w", "b")))
    return {**arrays, **{n: np.asarray(arrays[n] * scale).astype(np.float32) for n in ("w", "b")}}


def with_bytes(data: bytes) -> ArrayRecord:
    record = to_record(good(BAD))
    record["w"] = FlowerArray(dtype="float32", shape=(3, 4), stype="numpy.ndarray", data=data)
    return record


def changed(change: Callable[[Message], object]) -> Message:
    message = reply(BAD, good(BAD))
    change(message)
    return message


def npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


SPOILT: dict[str, tuple[Callable[[], Message], str]] = {
    "nan": (lambda: reply(BAD, spoilt("w", math.nan)), "not finite: entry w holds a NaN or an infinity"),
    "inf": (lambda: reply(BAD, spoilt("b", -math.inf)), "not finite: entry b"),
    "nan statistic": (lambda: reply(BAD, spoilt("norm.running_var", math.nan)), "not finite: entry norm.running_var"),
    "huge statistic": (lambda: reply(BAD, spoilt("norm.running_var", 3e38)), "range: entry norm.running_var"),
    "statistic 1e6": (lambda: reply(BAD, spoilt("norm.running_var", 1e6)), "norm: the change of statistics has norm 1e+06"),
    "negative variance": (lambda: reply(BAD, spoilt("norm.running_var", -50.0)), "statistic: entry norm.running_var would be"),
    "counter 2**62": (lambda: reply(BAD, with_entry("norm.num_batches_tracked", np.asarray(2**62))), "counter: entry norm.num"),
    "header SyntaxError": (lambda: reply(BAD, with_bytes(npy(b"{'descr': '<,4'}"))), "entry w is not an array"),
    "header IndexError": (
        lambda: reply(BAD, with_bytes(npy(b"{'descr': ('<f4',), 'fortran_order': False, 'shape': (3, 4)}"))),
        "entry w is not an array",
    ),
    "header IndentationError": (lambda: reply(BAD, with_bytes(npy(b"if 1:\n  x\n y"))), "entry w is not an array"),
    "shape": (lambda: reply(BAD, with_entry("w", np.ones((1, 4), np.float32))), r"shape: entry w is (1, 4), not (3, 4)"),
    "dtype": (lambda: reply(BAD, with_entry("w", good(BAD)["w"].astype(np.float64))), "dtype: entry w is float64, not float32"),
    "bf16": (lambda: reply(BAD, with_entry("w", good(BAD)["w"].astype(dtype_of("bfloat16")))), "dtype: entry w is bfloat16"),
    "counter dtype": (lambda: reply(BAD, with_entry("norm.num_batches_tracked", np.asarray(4.0))), "dtype: entry norm.num"),
    "missing key": (lambda: reply(BAD, {n: a for n, a in good(BAD).items() if n != "b"}), "keys: entry b is missing"),
    "extra key": (lambda: reply(BAD, with_entry("z", np.zeros(1))), "keys: entry z is not in the model"),
    "no keys": (lambda: reply(BAD, {}), "keys: entry b is missing"),
    "weight -1": (lambda: reply(BAD, good(BAD), -1), "weight: -1 is not in (0, 1e+09]"),
    "weight 0": (lambda: reply(BAD, good(BAD), 0), "weight: 0 is not in"),
    "weight nan": (lambda: reply(BAD, good(BAD), math.nan), "weight: nan is not in"),
    "weight inf": (lambda: reply(BAD, good(BAD), math.inf), "weight: inf is not in"),
    "weight 1e12": (lambda: reply(BAD, good(BAD), 10**12), "weight: 1e+12 is not in"),
    "weight 10**400": (lambda: reply(BAD, good(BAD), 10**400), "weight: "),
    "norm 1e6": (lambda: reply(BAD, longer(1e6)), "norm: the change has norm 1e+06, the limit is 3"),
    "norm 1e6 whole": (
        lambda: reply(
            BAD, {n: np.asarray(a + longer(1e6)[n]) if n in "wb" else a for n, a in MODEL.arrays.items()}, carries=None
        ),
        "norm: the change has norm 1e+06",
    ),
    "nan whole": (lambda: reply(BAD, spoilt("w", math.nan), carries=None), "not finite: entry w"),
    "nan loss": (lambda: reply(BAD, good(BAD), metrics={"train_loss": math.nan}), "not finite: train_loss is nan"),
    "error": (lambda: Message(Error(code=7, reason="it broke"), reply_to=instruction(BAD)), "it broke"),
    "error without a reason": (lambda: Message(Error(code=7), reply_to=instruction(BAD)), "error 7"),
    "no metrics": (lambda: reply(BAD, good(BAD), None), "metrics: one record expected, 0 came"),
    "no weight": (lambda: changed(lambda m: m.content["metrics"].pop("num-examples")), "metrics: num-examples is missing"),
    "two metrics": (lambda: changed(lambda m: m.content.update(more=MetricRecord({"a": 1}))), "metrics: one record expected, 2"),
    "two arrays": (lambda: changed(lambda m: m.content.update(more=ArrayRecord())), "arrays: one record expected, 2 came"),
    "no arrays": (lambda: changed(lambda m: m.content.pop("arrays")), "arrays: one record expected, 0 came"),
    "junk": (lambda: reply(BAD, with_bytes(b"junk")), "entry w is not an array"),
    "no bytes": (lambda: reply(BAD, with_bytes(b"")), "entry w is not an array"),
    "an archive": (lambda: reply(BAD, with_bytes(b"PK\x03\x04 and so on")), "entry w is not an array"),
    "pickle": (
        lambda: reply(BAD, with_bytes(npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}\n"))),
        "entry w is not",
    ),
    "huge": (lambda: reply(BAD, with_bytes(npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9**18,)}\n"))), "entry w is"),
    "vast": (
        lambda: reply(BAD, with_bytes(npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000000,)}\n"))),
        "entry w is not an array",
    ),
    "open header": (lambda: reply(BAD, with_bytes(npy(b"{{{{{{{{{{{{{{{{\n"))), "entry w is not an array"),
}


def test_good_replies_are_all_folded_and_the_model_changes_as_it_should() -> None:
    for name in RULES:
        model, ledger = play(strategy(name), MODEL, good_replies())
        assert model is not None
        assert sorted(ledger.replied) == list(range(10))
        assert ledger.rejected == []
        assert not np.array_equal(model.arrays["w"], MODEL.arrays["w"])
        assert np.abs(model.arrays["w"] - MODEL.arrays["w"]).max() < 1.0
        assert model.arrays["norm.num_batches_tracked"] == 4
        assert model.arrays["norm.num_batches_tracked"].dtype == np.int64
        assert {n: (a.dtype, a.shape) for n, a in model.arrays.items()} == {
            n: (a.dtype, a.shape) for n, a in MODEL.arrays.items()
        }


@every_rule
def test_order_does_not_matter(rule: str) -> None:
    expected, _ = play(strategy(rule), MODEL, good_replies())
    shuffled = [good_replies()[i] for i in np.random.default_rng(1).permutation(10)]
    found, _ = play(strategy(rule), MODEL, shuffled)
    assert expected is not None
    assert found is not None
    assert bits(found.arrays) == bits(expected.arrays)


@every_rule
@pytest.mark.parametrize("case", SPOILT)
def test_one_bad_reply_is_refused_and_changes_nothing(rule: str, case: str) -> None:
    make, reason = SPOILT[case]
    replies = good_replies(without=BAD)
    found, ledger = play(strategy(rule), MODEL, [*replies[:3], make(), *replies[3:]])
    assert found is not None
    assert bits(found.arrays) == without_bad(rule)
    assert [r.node for r in ledger.rejected] == [BAD]
    assert ledger.rejected[0].reason.startswith(reason)
    assert sorted(ledger.replied) == [n for n in range(10) if n != BAD]


@every_rule
def test_the_first_answer_counts_and_a_second_is_refused(rule: str) -> None:
    expected, _ = play(strategy(rule), MODEL, good_replies())
    again = reply(BAD, good(9), 1000)
    found, ledger = play(strategy(rule), MODEL, [*good_replies(), again])
    assert expected is not None
    assert found is not None
    assert bits(found.arrays) == bits(expected.arrays)
    assert reasons(ledger) == [(BAD, "duplicate: the node answered before")]
    bad_first = [reply(BAD, good(BAD), 0), *good_replies()]
    found, ledger = play(strategy(rule), MODEL, bad_first)
    assert found is not None
    assert bits(found.arrays) == without_bad(rule)
    assert [r.node for r in ledger.rejected] == [BAD, BAD]


@every_rule
@pytest.mark.parametrize("good_ones", [0, 7])
def test_below_quorum_the_model_stands_and_the_next_round_goes_on(rule: str, good_ones: int) -> None:
    parts = strategy(rule, quorum=8)
    before = bits(MODEL.arrays)
    replies = good_replies()[:good_ones] + [reply(n, good(n), math.nan) for n in range(good_ones, 9)]
    model, ledger = play(parts, MODEL, replies)
    assert model is None
    assert bits(MODEL.arrays) == before
    assert sorted(ledger.replied) == list(range(good_ones))
    assert [n for n, _ in reasons(ledger)] == list(range(good_ones, 10))
    assert reasons(ledger)[-1] == (9, NO_REPLY)
    after, ledger = play(parts, MODEL, good_replies(), number=2)
    expected, _ = play(strategy(rule), MODEL, good_replies(), number=2)
    assert after is not None
    assert expected is not None
    assert ledger.rejected == []
    assert bits(after.arrays) == bits(expected.arrays)


@every_rule
def test_no_reply_at_all_is_a_void_round(rule: str) -> None:
    model, ledger = play(strategy(rule), MODEL, [])
    assert model is None
    assert reasons(ledger) == [(node, NO_REPLY) for node in range(10)]
