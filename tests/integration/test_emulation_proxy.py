"""Slices on real TCP without root: what passes the proxy's ports, how fast, and that nothing of it is lost or left."""

import math
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median

import pytest

from edge.slices.emulate import TCP_SHARE, Air, CellPlan, ProxyCell
from edge.slices.profile import RrmRatio, load_profile
from fedslice.core.errors import UsageError
from tests.integration.emulated import FACTORY, MBIT, Sink, Watch, cell_of, check_change, ratios, share, undisturbed

PAIR = {"x": "a", "y": "b"}


@contextmanager
def echoing() -> Iterator[tuple[str, int]]:
    """Send everything back, and end each connection when it is ended."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield server.getsockname()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@contextmanager
def proxied(plan: CellPlan) -> Iterator[ProxyCell]:
    """Give a cell whose target sends everything back; afterwards its thread and ports are gone."""
    with echoing() as target, ProxyCell(plan, target) as cell:
        ports = [cell.address(name) for name in plan.terminals]
        assert {host for host, _ in ports} == {"127.0.0.1"}
        yield cell
    assert "proxy-cell" not in [thread.name for thread in threading.enumerate()]
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(port)


@contextmanager
def connected(cell: ProxyCell, terminal: str) -> Iterator[socket.socket]:
    with socket.create_connection(cell.address(terminal), timeout=10) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield wire


def received(wire: socket.socket, num_bytes: int) -> bytes:
    got = bytearray()
    with suppress(ConnectionError):
        while len(got) < num_bytes and (data := wire.recv(1 << 16)):
            got += data
    return bytes(got)


def send_all(wire: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        wire.sendall(data)
        wire.shutdown(socket.SHUT_WR)


def there_and_back_ms(wire: socket.socket, count: int) -> list[float]:
    took_ms = []
    for number in range(count):
        begun_s = time.monotonic()
        wire.sendall(b"%8d" % number)
        assert received(wire, 8) == b"%8d" % number
        took_ms.append((time.monotonic() - begun_s) * 1000)
    return took_ms


@contextmanager
def sending(plan: CellPlan, active: str, watch: Watch) -> Iterator[tuple[ProxyCell, Sink]]:
    """Give a cell in which terminals send as much as goes, and the sink, which saw them begin in order."""
    sink = Sink.at("127.0.0.1", subprocess.Popen)
    sources: list[subprocess.Popen[bytes]] = []
    with ProxyCell(plan, (sink.address, sink.port)) as cell:
        for name in active:
            sources.append(sink.feed(subprocess.Popen, through=cell.address(name)))
        watch.pause(0.3)
        yield cell, sink
    for source in sources:
        source.wait(10)


def check_uplink(plan: CellPlan, active: str, expected: list[float]) -> None:
    def check(watch: Watch) -> None:
        with sending(plan, active, watch) as (_, sink):
            begin_s, end_s = watch.pause(1.5)
            found = [share(one, begin_s, end_s, plan.up_bps) for one in sink.seen()]
        assert found == pytest.approx(expected, rel=0.02)

    undisturbed(check)


@pytest.mark.parametrize("mbit", [2, 100])
def test_payload_passes_as_fast_as_it_would_in_full_frames(mbit: int) -> None:
    check_uplink(cell_of(ratios(a=0), {"x": "a"}, mbit * MBIT), "x", [1.0])


def test_the_proxy_shares_as_the_scheduler_does() -> None:
    slices = {**ratios(a=20, b=0), "c": RrmRatio(dedicated=30, min=30)}
    plan = cell_of(slices, {"x": "a", "y": "b", "v": "b", "z": "c"}, 40 * MBIT, weights={"b": 2.0}).limited({"v": 2 * MBIT}, "up")
    model = [bps / plan.up_bps for bps in plan.shares_bps("xyv", "up").values()]
    assert model == pytest.approx([0.2 + 0.5 / 3, 1 / 3 - 0.05, 0.05])
    check_uplink(plan, "xyv", model)


def test_saturated_slices_have_their_ratios_and_a_change_takes_under_half_a_second() -> None:
    plan = cell_of(ratios(a=60, b=20, c=20), {"x": "a", "y": "b", "z": "c"}, 60 * MBIT)

    def check(watch: Watch) -> None:
        with sending(plan, "xyz", watch) as (cell, sink):
            before = watch.pause(1.5)
            cell.reslice(ratios(a=20, b=60), ["up"])
            after = watch.pause(1.6)
            check_change(sink.seen(), before, after, plan.up_bps)

    undisturbed(check)


def test_everything_arrives_in_order_and_in_the_time_it_takes_and_ends_are_passed_on() -> None:
    data = random.Random(1).randbytes(1_000_000)
    with proxied(cell_of(ratios(a=0), {"x": "a"}, 20 * MBIT, delay_ms=5.0)) as cell, connected(cell, "x") as wire:
        begun_s = time.monotonic()
        sender = threading.Thread(target=send_all, args=(wire, data))
        sender.start()
        assert received(wire, len(data)) == data
        took_s = time.monotonic() - begun_s
        assert wire.recv(1) == b""
        sender.join()
    assert took_s == pytest.approx(8 * len(data) / (20 * MBIT * TCP_SHARE) + 0.01, rel=0.1)


def test_delay_jitter_and_repetitions_are_as_told_and_can_be_changed() -> None:
    with proxied(cell_of(ratios(a=0), {"x": "a"}, 20 * MBIT, delay_ms=10.0)) as cell, connected(cell, "x") as wire:
        there_and_back_ms(wire, 2)  # connects
        plain_ms = there_and_back_ms(wire, 30)
        assert 20.0 <= min(plain_ms) < 22.5
        assert median(plain_ms) < 27.0  # threads of this process wait for each other's turn
        cell.impair("x", "up", Air(delay_ms=1.0, loss=0.5, retransmit_ms=6.0))
        cell.impair("x", "down", Air())
        repeated_ms = there_and_back_ms(wire, 100)
        assert min(repeated_ms) < 5.0
        assert 4.0 < sum(repeated_ms) / 100 < 13.0  # 1, and on average one repetition of 6
        with pytest.raises(UsageError, match="loses nothing: give retransmit_ms, or use a NamespaceCell"):
            cell.impair("x", "up", Air(loss=0.1, retransmit_ms=None))


def test_a_small_slice_is_fast_while_another_saturates_the_uplink() -> None:
    plan = cell_of(ratios(a=40, b=10), PAIR, 20 * MBIT)
    with proxied(plan) as cell, connected(cell, "x") as bulk, connected(cell, "y") as wire:
        threading.Thread(target=send_all, args=(bulk, bytes(50_000_000)), daemon=True).start()
        threading.Thread(target=received, args=(bulk, 50_000_000), daemon=True).start()
        time.sleep(0.5)
        assert median(there_and_back_ms(wire, 100)) < 10.0
        with connected(cell, "x") as behind:
            assert there_and_back_ms(behind, 1)[0] > 30.0
        cell.cut("x")


def test_an_outage_holds_what_there_is_and_a_cut_breaks_the_connection() -> None:
    with proxied(cell_of(ratios(a=0, b=0), PAIR, 20 * MBIT)) as cell, connected(cell, "x") as wire, connected(cell, "y") as other:
        assert len(there_and_back_ms(wire, 3)) == 3
        cell.outage("x", True)
        wire.sendall(b"held")
        wire.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.recv(4)
        assert len(there_and_back_ms(other, 3)) == 3
        cell.outage("x", False)
        assert received(wire, 4) == b"held"
        cell.cut("x")
        with pytest.raises(ConnectionResetError):
            wire.recv(1)
        assert len(there_and_back_ms(other, 3)) == 3
        with connected(cell, "x") as again:
            assert len(there_and_back_ms(again, 3)) == 3


def test_a_target_that_is_not_there_is_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()
    plan = cell_of(ratios(a=0), {"x": "a"}, MBIT)
    with ProxyCell(plan, nobody) as cell, pytest.raises(ConnectionResetError), connected(cell, "x") as wire:
        wire.recv(1)


def test_a_plan_gives_terminals_what_their_slice_bounds() -> None:
    factory = load_profile(FACTORY)
    plan = CellPlan(profile=factory, slice_of={"c": "embb", "r": "urllc", "s": "mmtc"}, down_bps=100 * MBIT, up_bps=40 * MBIT)
    assert [plan.most_bps(name, "up") for name in plan.terminals] == [math.inf, 20 * MBIT, 2 * MBIT]
    assert plan.shares_bps("crs", "up") == pytest.approx({"c": 26 * MBIT, "r": 12 * MBIT, "s": 2 * MBIT})
    assert plan.shares_bps("c", "up") == pytest.approx({"c": 38 * MBIT})  # 5 percent are URLLC's even so
    faded = plan.limited({"c": 3 * MBIT}, "up")
    assert (faded.most_bps("c", "up"), faded.most_bps("c", "down")) == (3 * MBIT, math.inf)
    assert faded.limited({"c": math.inf}, "up").limits_bps == {}


def test_plans_that_cannot_be_are_refused() -> None:
    plan = cell_of(ratios(a=60, b=40), PAIR, MBIT)
    for change, message in (
        (lambda: plan.resliced(ratios(a=70)), "the min of all slices sum to at most 100; down: 110"),
        (lambda: plan.resliced(ratios(q=1)), "no slice is called q; there are a, b"),
        (lambda: plan.limited({"q": 1.0}, "up"), "no terminal is called q; there are x, y"),
        (lambda: plan.limited({"x": 0.0}, "up"), "finite and above 0 bit/s; given: 0"),
        (lambda: cell_of(ratios(a=0), {"x": "z"}, MBIT), "no slice is called z; there are a"),
        (lambda: cell_of(ratios(a=0), {"core": "a"}, MBIT), "a cell needs terminals, none of them named core; given: core"),
        (lambda: cell_of(ratios(a=0), {}, MBIT), "none of them named core; given: none"),
        (lambda: cell_of(ratios(a=0), {"x": "a"}, math.inf), "finite and above 0 bit/s; given: inf"),
        (lambda: ProxyCell(cell_of(ratios(a=0), {str(n): "a" for n in range(301)}, MBIT), ("", 1)), "at most 300 terminals"),
    ):
        with pytest.raises(UsageError, match=message):
            change()
    with pytest.raises(ValueError, match="0 <= loss < 1"):
        Air(loss=1.0)
