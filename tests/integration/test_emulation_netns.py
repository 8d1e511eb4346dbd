"""Slices on real packets in network namespaces: what TCP gets of them, how fast they change, and what is left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from statistics import mean, median

import pytest

from edge.slices.emulate import CORE, WAYS, Air, CellPlan, NamespaceCell, detect, netns_available
from edge.slices.profile import Direction, RrmRatio, load_profile
from fedslice.core.errors import RunError, UsageError
from tests.integration.emulated import (
    FACTORY,
    MBIT,
    ROOT,
    TRAFFIC,
    Sink,
    Watch,
    cell_of,
    check_change,
    ratios,
    share,
    undisturbed,
)
from tests.integration.processes import eventually, gone

PLAIN = cell_of(ratios(a=0), {"x": "a"}, MBIT)
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def _possible() -> Iterator[None]:
    """Skip with the reason where it cannot be; and see that nothing stays."""
    if reason := netns_available():
        pytest.skip(reason)
    links = shown("ip", "link")
    yield
    assert namespaces(os.getpid()) == []
    assert shown("ip", "link") == links


def shown(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def namespaces(pid: int) -> list[str]:
    return [line.split()[0] for line in shown("ip", "netns").splitlines() if line.startswith(f"fs{pid:x}-")]


def sink_in(cell: NamespaceCell, at: str = CORE) -> Sink:
    address = cell.core_address if at == CORE else cell.address(at)
    return Sink.at(address, lambda argv, **options: cell.start(argv, at, **options))


def feed(cell: NamespaceCell, sink: Sink, at: str, congestion: str = "cubic") -> None:
    sink.feed(lambda argv: cell.start(argv, at), congestion)


def pings_ms(cell: NamespaceCell, at: str, count: int, period_s: float = 0.01) -> list[float | None]:
    echo = cell.start([*TRAFFIC, "echo", cell.core_address], stdout=subprocess.PIPE, text=True)
    assert echo.stdout is not None
    port = echo.stdout.readline().strip()
    argv = [*TRAFFIC, "ping", cell.core_address, port, str(count), str(period_s)]
    found: list[float | None] = json.loads(cell.start(argv, at, stdout=subprocess.PIPE, text=True).communicate()[0])
    echo.kill()
    echo.communicate()
    return found


def check_uplink(plan: CellPlan, active: str, expected: Mapping[str, float], delays: bool = False) -> None:
    """Check which share of the uplink each of the terminals gets that send as much as goes."""

    def check(watch: Watch) -> None:
        with NamespaceCell(plan, delays=delays) as cell:
            sinks = {name: sink_in(cell) for name in active}
            for name, sink in sinks.items():
                feed(cell, sink, name)
            watch.pause(0.5)
            begin_s, end_s = watch.pause(1.5)
            found = {name: share(sink.seen()[0], begin_s, end_s, plan.up_bps) for name, sink in sinks.items()}
        assert found == pytest.approx(expected, rel=0.02)

    undisturbed(check)


@pytest.mark.parametrize(
    ("mbit", "way", "congestion"),
    [(10, "up", "cubic"), (30, "down", "-"), (100, "up", "-"), (100, "down", "cubic")],
)
def test_tcp_gets_what_the_model_says(mbit: int, way: Direction, congestion: str) -> None:
    receiver, sender = (CORE, "x") if way == "up" else ("x", CORE)

    def check(watch: Watch) -> None:
        with NamespaceCell(cell_of(ratios(only=0), {"x": "only"}, mbit * MBIT), delays=False) as cell:
            sink = sink_in(cell, receiver)
            feed(cell, sink, sender, congestion)
            watch.pause(0.5)
            begin_s, end_s = watch.pause(1.5)
            assert share(sink.seen()[0], begin_s, end_s, mbit * MBIT) == pytest.approx(1.0, abs=0.02)

    undisturbed(check)


def test_saturated_slices_have_their_ratios_and_a_change_takes_under_half_a_second() -> None:
    def check(watch: Watch) -> None:
        plan = cell_of(ratios(a=60, b=20, c=20), {"x": "a", "y": "b", "z": "c"}, 100 * MBIT)
        with NamespaceCell(plan, delays=False) as cell:
            sinks = [sink_in(cell) for _ in "xyz"]
            for name, sink in zip("xyz", sinks, strict=True):
                feed(cell, sink, name)
            watch.pause(0.5)
            before = watch.pause(1.5)
            cell.reslice(ratios(a=20, b=60), ["up"])
            after = watch.pause(1.6)
            assert [cell.plan.profile.slices[0].side(way).rrm.min for way in WAYS] == [60, 20]
            check_change([sink.seen()[0] for sink in sinks], before, after, plan.up_bps)

    undisturbed(check)


TERMINALS = {"x": "a", "y": "b", "z": "b", "w": "c"}


@pytest.mark.parametrize(
    ("slices", "weights", "active", "expected"),
    [
        (ratios(a=0, b=0, c=0), {"a": 3.0}, "xyz", {"x": 0.75, "y": 0.125, "z": 0.125}),  # by slice, not by terminal
        ({**ratios(a=20, b=0), "c": RrmRatio(dedicated=30, min=30)}, {}, "xy", {"x": 0.45, "y": 0.25}),  # 0.3 held idle
        ({**ratios(a=20), "b": RrmRatio(max=30), "c": RrmRatio(min=0)}, {}, "xyz", {"x": 0.7, "y": 0.15, "z": 0.15}),
    ],
)
def test_the_tree_shares_as_the_scheduler_does(
    slices: Mapping[str, RrmRatio], weights: Mapping[str, float], active: str, expected: Mapping[str, float]
) -> None:
    plan = cell_of(slices, TERMINALS, 50 * MBIT, weights=weights)
    model = {name: bps / plan.up_bps for name, bps in plan.shares_bps(tuple(active), "up").items()}
    assert model == pytest.approx(expected)
    check_uplink(plan, active, expected)


def test_limits_of_terminals_hold_and_what_they_leave_is_used() -> None:
    plan = cell_of(ratios(a=50, b=50, c=0), TERMINALS, 50 * MBIT).limited({"y": 5 * MBIT}, "up")
    check_uplink(plan, "xyz", {"x": 0.5, "y": 0.1, "z": 0.4}, delays=True)


def test_urllc_stays_under_10_ms_while_embb_saturates_the_uplink() -> None:
    slices = {"embb": RrmRatio(min=40), "urllc": RrmRatio(dedicated=5, min=10, max=30)}
    plan = cell_of(slices, {"camera": "embb", "robot": "urllc"}, 20 * MBIT)

    def check(watch: Watch) -> None:
        with NamespaceCell(plan, delays=False) as cell:
            sink = sink_in(cell)
            feed(cell, sink, "camera")
            begin_s, _ = watch.pause(0.7)
            urllc_ms = pings_ms(cell, "robot", 150)
            behind_ms = pings_ms(cell, "camera", 5)
            # It did saturate what it may have.
            assert share(sink.seen()[0], begin_s + 0.5, begin_s + 2.0, 0.95 * plan.up_bps) > 0.97
        assert None not in urllc_ms
        assert median(ms or 0.0 for ms in urllc_ms) < 10.0
        assert median(ms or 1e3 for ms in behind_ms) > 30.0  # as slow it would be in the camera's queue

    undisturbed(check)


def set_both(cell: NamespaceCell, air: Air) -> None:
    for way in WAYS:
        cell.impair("x", way, air)


def test_the_relay_delays_and_loses_and_is_changed_while_it_runs() -> None:
    with NamespaceCell(cell_of(ratios(a=0), {"x": "a"}, 20 * MBIT, delay_ms=5.0)) as cell:
        ten = [ms for ms in pings_ms(cell, "x", 60, 0.002) if ms is not None]
        assert len(ten) == 60
        assert median(ten) == pytest.approx(10.0, abs=2.0)
        assert min(ten) >= 10.0
        set_both(cell, Air(delay_ms=10.0, jitter_ms=3.0))
        jittered = [ms for ms in pings_ms(cell, "x", 60, 0.002) if ms is not None]
        assert min(jittered) >= 20.0
        assert 22.0 < mean(jittered) < 32.0  # each way adds |N(0, 3)|, 2.4 on average
        set_both(cell, Air(loss=0.2))
        repeated = [ms for ms in pings_ms(cell, "x", 100, 0.002) if ms is not None]
        assert len(repeated) == 100
        assert 2.0 < mean(repeated) < 8.0  # 2 ways, each 0.25 repetitions of 8 ms
        cell.impair("x", "down", Air())
        cell.impair("x", "up", Air(loss=0.1, retransmit_ms=None))
        lost = pings_ms(cell, "x", 60, 0.0).count(None)
        assert 1 <= lost <= 16


def test_a_terminal_off_the_air_hears_nothing_until_it_is_back() -> None:
    with NamespaceCell(cell_of(ratios(a=0), {"x": "a"}, 20 * MBIT)) as cell:
        cell.outage("x", True)
        assert pings_ms(cell, "x", 2) == [None, None]
        cell.outage("x", False)
        assert None not in pings_ms(cell, "x", 5)


def test_the_profiles_delays_are_the_relays() -> None:
    factory = load_profile(FACTORY)
    plan = CellPlan(profile=factory, slice_of={"r": "urllc", "s": "mmtc"}, down_bps=50 * MBIT, up_bps=20 * MBIT)
    with NamespaceCell(plan) as cell:
        for name in ("r", "s"):
            both_ms = plan.home(name).down.delay_ms + plan.home(name).up.delay_ms
            assert median(ms for ms in pings_ms(cell, name, 30) if ms) == pytest.approx(both_ms, abs=2.0)


def test_what_cannot_be_is_refused() -> None:
    plan = cell_of(ratios(a=60, b=20), {"x": "a"}, 20 * MBIT)
    with NamespaceCell(plan, delays=False) as cell:
        with pytest.raises(UsageError, match="the min of all slices sum to at most 100; down: 110"):
            cell.reslice(ratios(b=50))
        with pytest.raises(UsageError, match="no slice is called d; there are a, b"):
            cell.reslice(ratios(d=5))
        with pytest.raises(UsageError, match="no terminal is called q; there are x"):
            cell.start(["true"], "q")
        with pytest.raises(UsageError, match="delays=True"):
            cell.impair("x", "up", Air(delay_ms=1.0))
        assert cell.plan is plan


def test_nothing_stays_after_an_error_and_processes_end_with_the_cell() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with NamespaceCell(PLAIN) as cell:
            assert len(namespaces(os.getpid())) == 3
            started.append(cell.start(["sleep", "600"], "x"))
            started.append(cell.start([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE))
            assert started[1].stdout is not None
            assert started[1].stdout.readline() == b"deaf\n"
            raise RuntimeError("in the block")

    with pytest.raises(RuntimeError, match="in the block"):
        fail()
    started[1].communicate()
    sleeper, stubborn = started
    assert (sleeper.returncode, stubborn.returncode) == (-signal.SIGTERM, -signal.SIGKILL)


VICTIM = """
import subprocess, time
from edge.slices.emulate import NamespaceCell
from tests.integration.emulated import cell_of, ratios
with NamespaceCell(cell_of(ratios(a=0), {"x": "a"}, 1e6)) as cell:
    sleeper = cell.start(["sleep", "600"], "x", stdout=subprocess.DEVNULL)
    print(sleeper.pid, cell._relay.pid, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_left_is_gone_when_the_next_one_starts() -> None:
    victim = subprocess.Popen([sys.executable, "-c", VICTIM], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    sleeper, relay = map(int, victim.stdout.readline().split())
    with NamespaceCell(PLAIN):
        assert len(namespaces(victim.pid)) == 3  # it lives: hands off
    victim.kill()
    victim.communicate()
    assert eventually(lambda: gone(relay), 3.0)
    assert len(namespaces(victim.pid)) == 3
    assert not gone(sleeper)
    with NamespaceCell(PLAIN):
        assert namespaces(victim.pid) == []
        assert len(namespaces(os.getpid())) == 3
    assert eventually(lambda: gone(sleeper), 3.0)


def test_why_there_are_no_namespaces_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = netns_available.__wrapped__
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        assert ask() == "only root may make network namespaces"
    with monkeypatch.context() as patch:
        patch.setattr(detect, "_TREE", ["qdisc add dev lo root nosuch"])
        assert ask().startswith("this kernel gives no HTB tree: tc -n fs")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        assert ask() == "the command ip of iproute2 is not there"
    monkeypatch.setattr("edge.slices.emulate.namespaces.netns_available", lambda: "no luck")
    with (
        pytest.raises(UsageError, match="no network namespaces here: no luck"),
        NamespaceCell(PLAIN),
    ):
        pass


def test_a_relay_that_has_ended_is_noticed() -> None:
    with NamespaceCell(PLAIN) as cell:
        assert cell._relay is not None
        cell._relay.kill()
        cell._relay.wait()
        with pytest.raises(RunError, match="the relay of the cell has ended"):
            cell.impair("x", "up", Air())
