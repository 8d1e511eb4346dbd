"""The modelled network in front of a grid: who is late, what the clock says, how many bytes went."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto

from edge.flower import content_bytes, error_reply, to_record
from edge.simulation import TimedGrid
from edge.slices import Network, NetworkConfig, NodeProfile
from tests.cells import DOWN_S, FOREVER_S, NEAR_S, UP_S, a_cell, a_slice, interrupt
from tests.support import FakeGrid, instruction, reply

# Near nodes under a slice that bounds the rate of each, so that nobody is in another's way.
DOWN_BPS, UP_BPS = 2e6, 1e6
LIMITS = {"up": {"ue_ambr_bps": UP_BPS}, "down": {"ue_ambr_bps": DOWN_BPS}}
STILL = a_cell(a_slice("embb", 1, **LIMITS), a_slice("mmtc", 3, **LIMITS))
FAST, SLOW = (
    NodeProfile(name="fast", slice="embb", examples_per_s=1000.0),
    NodeProfile(name="slow", slice="mmtc", examples_per_s=100.0),
)
NODES = [FAST, FAST, SLOW]
EVALUATOR = 3
MODEL = {"w": np.zeros((90, 100), np.float32)}
SENT = RecordDict({"arrays": to_record(MODEL), "config": ConfigRecord({"server-round": 1})})


def answer(message: Message) -> Message:
    node = message.metadata.dst_node_id - 1
    made = reply(node, MODEL, 10)
    content = RecordDict({**made.content})
    content["report"] = ConfigRecord({"node": node, "carries": "difference"})
    return Message(content, reply_to=message)


def grid_over(host: FakeGrid, nodes: list[NodeProfile] = NODES, config: NetworkConfig = STILL, **more: Any) -> TimedGrid:
    names = {address: address - 1 for address in range(1, len(nodes) + 2)}
    return TimedGrid(host, Network(config, nodes, 0), nodes, names, lambda _: 50, **more)


def exchange(grid: TimedGrid, nodes: Iterable[int], timeout: float | None = None) -> dict[int, Message]:
    messages = [Message(SENT, node + 1, "train") for node in nodes]
    return {r.metadata.src_node_id - 1: r for r in grid.send_and_receive(messages, timeout=timeout)}


PLANNED = content_bytes(SENT)
LOADING_S, SENDING_S = DOWN_S + PLANNED * 8 / DOWN_BPS, PLANNED * 8 / UP_BPS + UP_S


def expected_s(profile: NodeProfile, bytes_up: int) -> Any:
    """Loading, computing and sending, each by itself."""
    return pytest.approx(LOADING_S + 50 / profile.examples_per_s + bytes_up * 8 / UP_BPS + UP_S, abs=NEAR_S)


def test_the_clock_moves_to_the_last_arrival() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    replies = exchange(grid, [0, 2])
    bytes_up = content_bytes(replies[0].content)
    assert bytes_up != PLANNED
    # An update is taken to be as large as the model; what really came is counted.
    assert grid.phase.timings[0].total_s == expected_s(FAST, PLANNED)
    assert grid.phase.timings[2].total_s == expected_s(SLOW, PLANNED)
    assert grid.clock.now_s == grid.phase.timings[2].total_s
    assert (grid.phase.bytes_down, grid.phase.bytes_up) == (2 * PLANNED, 2 * bytes_up)
    before = grid.clock.now_s
    exchange(grid, [1])
    assert list(grid.phase.timings) == [1]
    assert grid.phase.from_s == before
    assert grid.clock.now_s - before == expected_s(FAST, PLANNED)
    # From then on it is as large as the node's last one.
    exchange(grid, [0, 1, 2])
    assert [grid.phase.timings[n].total_s for n in range(3)] == [expected_s(p, bytes_up) for p in NODES]


def joules(profile: NodeProfile, idle_s: float, compute_s: float, upload_s: float) -> Any:
    spent = idle_s * profile.idle_w + compute_s * profile.compute_w + upload_s * profile.transmit_w
    return pytest.approx(spent, abs=1e-4)


def test_energy_is_power_times_time() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    exchange(grid, [0, 2])
    assert [grid.phase.timings[n].compute_s for n in (0, 2)] == pytest.approx([0.05, 0.5])
    # Who is done first waits for the other, and idles as it did while it loaded.
    assert grid.phase.timings[0].joules == joules(FAST, LOADING_S + 0.45, 0.05, SENDING_S)
    assert grid.phase.timings[2].joules == joules(SLOW, LOADING_S, 0.5, SENDING_S)
    assert grid.phase.joules == grid.phase.timings[0].joules + grid.phase.timings[2].joules


@pytest.mark.parametrize(
    ("closed_s", "parts"),
    [(0.1, (0.1, 0.0, 0.0)), (0.4, (LOADING_S, 0.4 - LOADING_S, 0.0)), (0.8, (LOADING_S, 0.5, 0.3 - LOADING_S))],
)
def test_what_still_goes_on_ends_with_the_phase(closed_s: float, parts: tuple[float, float, float]) -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    assert exchange(grid, [2], timeout=closed_s)[2].has_error()
    timing, whole = grid.phase.timings[2], content_bytes(answer(Message(SENT, 3, "train")).content)
    assert (timing.download_s, timing.compute_s, timing.upload_s) == pytest.approx(parts, abs=NEAR_S)
    assert timing.total_s == pytest.approx(grid.clock.now_s) == pytest.approx(closed_s)
    assert timing.bytes_up == pytest.approx(whole * parts[2] / SENDING_S, abs=1)
    assert timing.joules == joules(SLOW, *parts)
    assert grid.phase.rows()[2]["upload_s"] == timing.upload_s


def test_who_is_in_time_sent_all_whatever_sums_round_to() -> None:
    kinds = [NodeProfile(name=f"n{n}", slice="embb", examples_per_s=50 / (0.3 + n / 7)) for n in range(80)]
    grid = grid_over(FakeGrid(range(1, 81), answer), kinds)
    for node in range(80):
        found = exchange(grid, [node])[node]
        assert (grid.phase.bytes_up, grid.phase.complete) == (content_bytes(found.content), True)


def test_a_late_reply_is_an_error_and_the_clock_stops_at_the_deadline() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    replies = exchange(grid, [0, 1, 2], timeout=0.9)
    assert [replies[n].has_error() for n in range(3)] == [False, False, True]
    assert replies[2].error.reason == "late: the reply came after the deadline"
    assert [grid.phase.timings[n].late for n in range(3)] == [False, False, True]
    assert grid.clock.now_s == 0.9
    assert not grid.phase.complete
    # What came too late was sent in part.
    part = (0.9 - LOADING_S - 0.5) / SENDING_S
    assert 0.5 < part < 1.0
    assert grid.phase.bytes_up == pytest.approx((2 + part) * content_bytes(replies[0].content), abs=1)
    assert grid.phase.timings[0].joules == joules(FAST, 0.9 - 0.05 - SENDING_S, 0.05, SENDING_S)


def test_exactly_at_the_deadline_is_in_time() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    exchange(grid, [0])
    exact = grid.phase.timings[0].total_s
    again = grid_over(FakeGrid(range(1, 5), answer))
    assert not exchange(again, [0], timeout=exact)[0].has_error()
    assert again.clock.now_s == exact
    assert exchange(again, [0], timeout=np.nextafter(exact, 0))[0].has_error()


def test_those_who_never_answer_are_waited_for_until_the_deadline() -> None:
    def host(message: Message) -> Message | None:
        return answer(message) if message.metadata.dst_node_id == 1 else None

    grid = grid_over(FakeGrid(range(1, 5), host))
    assert list(exchange(grid, [0, 1], timeout=3.0)) == [0]
    assert grid.clock.now_s == 3.0
    assert list(grid.phase.timings) == [0]
    assert list(exchange(grid, [0, 1])) == [0]  # without a deadline there is nothing to wait for
    assert grid.clock.now_s == 3.0 + grid.phase.timings[0].total_s


def test_a_node_that_failed_downloaded_and_sent_nothing() -> None:
    grid = grid_over(FakeGrid(range(1, 5), lambda m: error_reply(m, 1, "it broke")))
    assert exchange(grid, [0])[0].error.reason == "it broke"
    timing = grid.phase.timings[0]
    assert (timing.bytes_down, timing.bytes_up, timing.compute_s) == (PLANNED, 0, 0.0)
    assert timing.total_s == pytest.approx(LOADING_S, abs=NEAR_S)
    assert np.isnan(grid.radio()["nodes"]["0"]["up_bps"])


def test_the_evaluator_is_reached_in_no_time() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    assert not exchange(grid, [EVALUATOR], timeout=1e-9)[EVALUATOR].has_error()
    assert grid.clock.now_s == 0.0
    assert grid.phase.timings == {}
    assert grid.phase.bytes_down == 0


def test_a_reader_who_stops_early_still_moves_the_clock() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    messages = [Message(SENT, node + 1, "train") for node in (0, 2)]
    next(replies := grid.send_and_receive(messages, timeout=9.0))
    replies.close()  # type: ignore[attr-defined]
    assert grid.clock.now_s == 9.0


QUEUE = [NodeProfile(name=f"n{n}", slice="embb", examples_per_s=50 / (1 + n)) for n in range(4)]  # each a second later


@pytest.mark.parametrize(("share", "num"), [(0.25, 1), (0.3, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
def test_a_round_closes_when_its_share_has_arrived(share: float, num: int) -> None:
    grid = grid_over(FakeGrid(range(1, 6), answer), QUEUE, close_at=share)
    replies = exchange(grid, [2, 0, 3, 1])
    late = [node for node in range(4) if replies[node].has_error()]
    assert late == list(range(num, 4))
    assert {replies[node].error.reason for node in late} <= {f"late: the reply came after the round had closed at {num} of 4"}
    assert [grid.phase.timings[n].late for n in range(4)] == [n >= num for n in range(4)]
    assert grid.clock.now_s == grid.phase.duration_s == grid.phase.timings[num - 1].total_s
    assert grid.phase.timings[num - 1].total_s == expected_s(QUEUE[num - 1], PLANNED)
    assert grid.phase.num_awaited == num


def test_a_deadline_before_that_closes_instead() -> None:
    grid = grid_over(FakeGrid(range(1, 6), answer), QUEUE, close_at=0.75)
    replies = exchange(grid, range(4), timeout=2.9)
    assert [replies[n].has_error() for n in range(4)] == [False, False, True, True]
    assert (replies[2].error.reason, grid.clock.now_s) == ("late: the reply came after the deadline", 2.9)
    later = grid_over(FakeGrid(range(1, 6), answer), QUEUE, close_at=0.5)
    replies = exchange(later, range(4), timeout=2.9)
    assert [replies[n].has_error() for n in range(4)] == [False, False, True, True]
    assert replies[2].error.reason == "late: the reply came after the round had closed at 2 of 4"
    assert later.clock.now_s == later.phase.timings[1].total_s < 2.9


@pytest.mark.parametrize("kind", ["query", "evaluate"])
def test_only_training_takes_time_and_out_of_reach_nothing_else_fails(kind: str) -> None:
    deaf = a_cell(a_slice("embb", 1), a_slice("mmtc", 3, terminal={"power_dbm": -200.0}))
    grid = grid_over(FakeGrid(range(1, 5), answer), NODES, deaf, close_at=0.4)
    found = list(grid.send_and_receive([Message(SENT, n + 1, kind) for n in range(3)], timeout=1e-9))
    assert [one.has_error() for one in found] == [False] * 3
    assert (grid.clock.now_s, grid.phase.timings, grid.phase.complete, grid.radio()) == (0.0, {}, False, {})
    replies = exchange(grid_over(FakeGrid(range(1, 5), answer), NODES, deaf), range(3))
    lost = {n: one.error.reason for n, one in replies.items() if one.has_error()}
    assert lost == {2: "lost: the node would have taken more than a week"}


def test_a_phase_is_complete_if_those_awaited_closed_it() -> None:
    def but(*failing: int) -> FakeGrid:
        return FakeGrid(
            range(1, 6), lambda m: error_reply(m, 1, "it broke") if m.metadata.dst_node_id - 1 in failing else answer(m)
        )

    def complete(host: FakeGrid, timeout: float | None = None, **more: Any) -> bool:
        grid = grid_over(host, QUEUE, **more)
        exchange(grid, range(4), timeout)
        return grid.phase.complete

    assert complete(but())
    assert complete(but(), 9.0)  # a deadline that nobody met
    assert complete(but(), close_at=0.5)
    assert complete(but(3), close_at=0.5)
    assert not complete(but(), 3.9)
    assert not complete(but(), 1.5, close_at=0.5)
    assert not complete(but(3))
    assert not complete(FakeGrid(range(1, 6), lambda m: answer(m) if m.metadata.dst_node_id < 4 else None))


def test_a_node_that_is_cut_off_is_lost_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, [(0.1, FOREVER_S / 2)], [(50.0, 51.0)], [(60.0, 61.0)])
    grid = grid_over(FakeGrid(range(1, 5), answer))
    replies = exchange(grid, range(3))
    assert [replies[n].has_error() for n in range(3)] == [True, False, False]
    assert replies[0].error.reason == "lost: the node would have taken more than a week"
    assert grid.clock.now_s == grid.phase.timings[2].total_s
    lost = grid.phase.timings[0]
    assert (lost.download_s, lost.compute_s, lost.upload_s, lost.bytes_up) == (grid.clock.now_s, 0.0, 0.0, 0)
    assert lost.joules == joules(FAST, grid.clock.now_s, 0.0, 0.0)
    assert not grid.phase.complete
    shares = grid_over(FakeGrid(range(1, 5), answer), close_at=0.6)
    assert exchange(shares, range(3))[0].error.reason == "late: the reply came after the round had closed at 2 of 3"
    assert shares.clock.now_s == shares.phase.timings[2].total_s
    timed = grid_over(FakeGrid(range(1, 5), answer))
    assert exchange(timed, range(3), timeout=5.0)[0].error.reason == "late: the reply came after the deadline"
    assert timed.clock.now_s == 5.0


def test_the_order_of_instructions_changes_nothing() -> None:
    # All are in each other's way, now here and now there.
    crowd = [NodeProfile(name="n", slice="embb", examples_per_s=float(1000 + 777 * n)) for n in range(9)]
    shared = a_cell(receive_gain_db=-66.0, power_dbm=-20.0, dynamics={"fading_db": 3.0, "coherence_s": 0.02})
    rows = []
    for order in (range(9), range(8, -1, -1), [4, 8, 1, 0, 7, 2, 6, 3, 5]):
        grid = grid_over(FakeGrid(range(1, 11), answer), crowd, shared)
        exchange(grid, order)
        exchange(grid, order)
        rows.append((grid.phase.rows(), grid.clock.now_s, grid.radio()))
    assert rows[0] == rows[1] == rows[2]
    assert [list(radio["nodes"]) for _, _, radio in rows] == [[str(n) for n in range(9)]] * 3


def test_what_the_log_is_told_of_the_radio() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    assert grid.radio() == {}
    replies = exchange(grid, [0, 2])
    radio, bytes_up = grid.radio(), content_bytes(replies[0].content)
    assert json.loads(json.dumps(radio)) == radio
    assert radio["from_s"] == 0.0
    assert radio["latency_ms"]["embb"] == pytest.approx({"down": 1e3 * DOWN_S, "up": 1e3 * UP_S}, abs=1e3 * NEAR_S)
    assert list(radio["nodes"]) == ["0", "2"]
    node = radio["nodes"]["2"]
    assert node["down_bps"] == pytest.approx(8 * PLANNED / LOADING_S, rel=1e-5)
    assert node["up_bps"] == pytest.approx(8 * bytes_up / SENDING_S, rel=1e-5)
    exchange(grid, [EVALUATOR])
    assert grid.radio() == {}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_bytes_counted_are_those_of_flowers_own_messages_within_a_hundredth(dtype: str) -> None:
    size = {"float32": 9000, "float16": 18000, "bfloat16": 18000, "float64": 4500}[dtype]  # 36 kB
    shapes = [size // 10 * 7, size // 10 * 2, size // 10]
    arrays = {f"net.{i}.weight": np.zeros(n, "float32").astype(dtype) for i, n in enumerate(shapes)}
    instructions = RecordDict(
        {"arrays": to_record(arrays), "config": ConfigRecord({"server-round": 7, "text": "abc", "list": [1, 2]})}
    )
    update = RecordDict({"arrays": to_record(arrays), "metrics": MetricRecord({"num-examples": 123, "train_loss": 0.25})})
    for content in (instructions, update):
        real = len(message_to_proto(instruction(0, content)).content.SerializeToString())
        assert content_bytes(content) == pytest.approx(real, rel=0.01)
