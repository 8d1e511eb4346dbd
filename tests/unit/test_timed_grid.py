"""The modelled network in front of a grid: who is late, what the clock says, how many bytes went."""

from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto

from edge.flower import content_bytes, error_reply, to_record
from edge.simulation import TimedGrid
from edge.slices import Network, NetworkConfig, NodeProfile
from tests.support import FakeGrid, instruction, reply

STILL = NetworkConfig(spread_db=0.0, fading_db=0.0)
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


def grid_over(host: FakeGrid) -> TimedGrid:
    return TimedGrid(host, Network(STILL, NODES, 0), NODES, {a: a - 1 for a in range(1, 5)}, lambda _: 50)


def exchange(grid: TimedGrid, nodes: Iterable[int], timeout: float | None = None) -> dict[int, Message]:
    messages = [Message(SENT, node + 1, "train") for node in nodes]
    return {r.metadata.src_node_id - 1: r for r in grid.send_and_receive(messages, timeout=timeout)}


def expected_s(profile: NodeProfile, bytes_up: int) -> float:
    slices = {s.name: s for s in STILL.slices}
    carrier = slices[profile.slice]
    download, upload = content_bytes(SENT) * 8 / carrier.down_bps, bytes_up * 8 / carrier.up_bps
    return 2 * carrier.latency_ms / 1000 + download + 50 / profile.examples_per_s + upload


def test_the_clock_moves_to_the_last_arrival() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    replies = exchange(grid, [0, 2])
    bytes_up = content_bytes(replies[0].content)
    assert grid.phase.timings[0].total_s == pytest.approx(expected_s(FAST, bytes_up), rel=1e-12)
    assert grid.phase.timings[2].total_s == pytest.approx(expected_s(SLOW, bytes_up), rel=1e-12)
    assert grid.clock.now_s == grid.phase.timings[2].total_s
    assert grid.phase.bytes_down == 2 * content_bytes(SENT)
    assert grid.phase.bytes_up == 2 * bytes_up
    before = grid.clock.now_s
    exchange(grid, [1])
    assert list(grid.phase.timings) == [1]
    assert grid.clock.now_s == pytest.approx(before + expected_s(FAST, bytes_up), rel=1e-12)


def test_energy_is_power_times_time() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    exchange(grid, [2])
    timing = grid.phase.timings[2]
    assert timing.compute_s == 0.5
    joules = timing.download_s * SLOW.idle_w + 0.5 * SLOW.compute_w + timing.upload_s * SLOW.transmit_w
    assert grid.phase.joules == pytest.approx(joules, rel=1e-12)


def test_a_late_reply_is_an_error_and_the_clock_stops_at_the_deadline() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    replies = exchange(grid, [0, 1, 2], timeout=1.0)
    assert not replies[0].has_error()
    assert not replies[1].has_error()
    assert replies[2].error.reason == "late: the reply came after the deadline"
    assert [grid.phase.timings[n].late for n in range(3)] == [False, False, True]
    assert grid.clock.now_s == 1.0
    assert grid.phase.bytes_up == 3 * content_bytes(replies[0].content)  # what came too late was sent all the same


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
    assert (timing.bytes_down, timing.bytes_up, timing.compute_s) == (content_bytes(SENT), 0, 0.0)
    assert timing.total_s == pytest.approx(0.030 + content_bytes(SENT) * 8 / 60e6)


def test_the_evaluator_is_reached_in_no_time() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    assert not exchange(grid, [EVALUATOR], timeout=1e-9)[EVALUATOR].has_error()
    assert grid.clock.now_s == 0.0
    assert grid.phase.timings == {}
    assert grid.phase.bytes_down == 0


def test_a_reader_who_stops_early_still_moves_the_clock() -> None:
    grid = grid_over(FakeGrid(range(1, 5), answer))
    messages = [Message(SENT, node + 1, "train") for node in (0, 2)]
    replies = grid.send_and_receive(messages, timeout=9.0)
    next(replies)
    replies.close()  # type: ignore[attr-defined]
    assert grid.clock.now_s == 9.0


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
