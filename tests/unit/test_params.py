"""Kinds, and how entries of each are subtracted and added."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslice.core.params import (
    Array,
    Entry,
    Kind,
    Model,
    added,
    default_kind,
    describe,
    difference,
    dtype_of,
    kind_text,
    shared,
    wrap,
)
from tests.support import BFLOAT16

FLOATS = ["float16", "bfloat16", "float32", "float64"]
SHAPES: list[tuple[int, ...]] = [(), (0,), (0, 3), (5,), (2, 3)]


def entry_of(array: Array, kind: Kind, period: float = 0.0) -> Entry:
    return Entry(kind, str(array.dtype), array.shape, period)


@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        ("net.0.weight", "float32", Kind.WEIGHT),
        ("net.0.weight", "float16", Kind.WEIGHT),
        ("net.0.weight", "bfloat16", Kind.WEIGHT),
        ("norm.running_mean", "float32", Kind.STATISTIC),
        ("running_var", "float64", Kind.STATISTIC),
        ("running_var_scale", "float32", Kind.WEIGHT),
        ("norm.num_batches_tracked", "int64", Kind.COUNTER),
        ("seen", "uint8", Kind.COUNTER),
        ("mask", "bool", Kind.COUNTER),
    ],
)
def test_default_kind_comes_from_dtype_and_name(name: str, dtype: str, kind: Kind) -> None:
    assert default_kind(name, dtype_of(dtype)) is kind
    assert describe({name: np.zeros(2, dtype_of(dtype))}, {})[name] == Entry(kind, dtype, (2,))


def test_describe_keeps_what_a_task_declares_and_kind_text_is_read_back() -> None:
    arrays: dict[str, Array] = {"a": np.zeros(3), "b": np.zeros((), np.float32), "c": np.zeros(0), "d": np.zeros(1, np.int64)}
    kinds = {"a": f"angle:{4 * math.pi!r}", "b": "statistic", "c": "local"}
    entries = describe(arrays, kinds)
    assert entries["a"] == Entry(Kind.ANGLE, "float64", (3,), 4 * math.pi)
    assert [entries[n].kind for n in "bcd"] == [Kind.STATISTIC, Kind.LOCAL, Kind.COUNTER]
    assert describe(arrays, {name: kind_text(entry) for name, entry in entries.items()}) == entries
    assert set(shared(arrays, entries)) == {"a", "b", "d"}
    assert Model(arrays, entries).num_bytes() == 24 + 4 + 0 + 8


@pytest.mark.parametrize(
    ("kinds", "dtype", "text"),
    [
        ({"b": "weight"}, "float32", "the model does not have: b"),
        ({"a": "wieght"}, "float32", "entry a: no kind is called 'wieght'; there are weight, statistic"),
        ({"a": "angle"}, "float32", "entry a: an angle, and nothing else, is declared with its period"),
        ({"a": "weight:6.28"}, "float32", "entry a: an angle, and nothing else"),
        ({"a": "angle:0"}, "float32", "entry a: an angle"),
        ({"a": "angle:-6.28"}, "float32", "entry a: an angle"),
        ({"a": "angle:nan"}, "float32", "entry a: an angle"),
        ({"a": "angle:inf"}, "float32", "entry a: an angle"),
        ({"a": "angle:twopi"}, "float32", "entry a: an angle"),
        ({"a": "counter"}, "float32", "entry a: float32 cannot be a counter"),
        ({"a": "weight"}, "int64", "entry a: int64 cannot be a weight"),
        ({"a": "angle:6.28"}, "bool", "entry a: bool cannot be a angle"),
    ],
)
def test_describe_refuses(kinds: dict[str, str], dtype: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        describe({"a": np.zeros(2, dtype_of(dtype))}, kinds)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [Kind.WEIGHT, Kind.STATISTIC])
def test_added_undoes_difference_to_one_rounding(kind: Kind, dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    base, new = (np.asarray(rng.normal(0, 1, shape)).astype(dtype_of(dtype)) for _ in range(2))
    delta = difference(new, base, entry_of(base, kind))
    again = added(base, delta, entry_of(base, kind))
    assert delta.dtype == again.dtype == dtype_of(dtype)
    assert delta.shape == again.shape == shape
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}[dtype]
    error = np.abs(again.astype(np.float64) - new.astype(np.float64))
    assert (error <= eps * (np.abs(delta.astype(np.float64)) + 2 * np.abs(new.astype(np.float64)))).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_small_change_is_undone_exactly(dtype: str) -> None:
    # Sterbenz: within a factor of two the difference is exact in every binary format.
    base = np.linspace(1, 2, 33).astype(dtype_of(dtype))
    new = (base.astype(np.float64) * 1.25).astype(dtype_of(dtype))
    entry = entry_of(base, Kind.WEIGHT)
    np.testing.assert_array_equal(added(base, difference(new, base, entry), entry), new)


@pytest.mark.parametrize("array", [np.array([3, 9]), np.array(2**62), np.array([True, False]), np.zeros(0, np.int32)], ids=str)
def test_counters_travel_whole_and_keep_their_dtype(array: Array) -> None:
    entry = entry_of(array, Kind.COUNTER)
    base = np.zeros_like(array)
    sent = difference(array, base, entry)
    np.testing.assert_array_equal(sent, array)
    np.testing.assert_array_equal(added(base, sent, entry), array)
    assert added(base, sent, entry).dtype == array.dtype


@given(st.floats(-1e4, 1e4), st.integers(-50, 50), st.sampled_from([2 * math.pi, 4 * math.pi, 1.0]))
def test_wrap_gives_the_nearest_equivalent(delta: float, turns: int, period: float) -> None:
    wrapped = float(wrap(np.array(delta + turns * period), period))
    assert abs(wrapped) <= period / 2 + 1e-9
    turned = (wrapped - delta) / period
    assert turned == pytest.approx(round(turned), abs=1e-9)


@pytest.mark.parametrize("delta", [1e20, -3.3e38, 1.7e308, 5e-324, 0.0])
def test_wrap_of_any_number_is_within_half_a_period(delta: float) -> None:
    assert abs(float(wrap(np.array([delta]), 2 * math.pi)[0])) <= math.pi


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_angle_sends_the_short_way_round(dtype: str) -> None:
    kind: Any = dtype_of(dtype)
    base, new = np.array([2.9, -3.0, 0.0]).astype(kind), np.array([3.0 - 2 * math.pi, 3.0, 4 * math.pi]).astype(kind)
    delta = difference(new, base, entry_of(base, Kind.ANGLE, 2 * math.pi)).astype(np.float64)
    tolerance = {"float16": 2e-2, "bfloat16": 6e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(delta, [0.1, 6 - 2 * math.pi, 0.0], atol=tolerance)


def test_bfloat16_has_its_name() -> None:
    assert dtype_of("bfloat16") == BFLOAT16
    assert dtype_of("float16") == np.float16
