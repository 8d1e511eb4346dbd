"""How well the virtual clock tells what real packets take: the same exchanges in the model and over an emulated cell.

    python -m tests.bench.emulation

Nodes load, compute and send over TCP (cubic), all from one moment on, in a cell of 20 MHz that carries some 20 Mbit/s down
and 29 up, with 10 and 20 ms of delay. The error is emulated over modelled time, less one, of each transfer. In the model a
transfer has the bytes of its frames, payload over `TCP_SHARE`: so all rates and limits are the same on both sides.
"""

import inspect
import json
import math
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from edge.slices import Demand, Grant, Network, NetworkConfig, NodeProfile, Traffic, Uplink
from edge.slices.emulate import TCP_SHARE, WAYS, CellPlan, NamespaceCell, ProxyCell, netns_available
from edge.slices.lane import Lane
from edge.slices.pathloss import Floats
from edge.slices.profile import Direction, Profile, RrmRatio
from fedslice.core.federation import FederationConfig
from server.slicing import MinMaxConfig
from tests.cells import a_cell, a_slice

GOAL = 0.05
GREEDY, LOCAL = "greedy", "127.0.0.1"
LONGEST_S = 60.0
NEAR_DB = 200.0  # of SINR, at which every resource block carries the best MCS
HELLO, MOMENTS = "!3q", "!2d"  # number, bytes down, bytes up; when it had loaded and when it began to send
Changes = list[tuple[float, Direction, Mapping[str, RrmRatio], Mapping[str, float]]]  # when; new ratios, new limits in bit/s
Pause = Callable[[float], object]


def serve(host: str, num_nodes: str, num_others: str) -> None:
    """Be the core: give all nodes that have said hello what they load at one moment, and print what each part took in s."""
    server = socket.create_server((host, 0))
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    print(server.getsockname()[1], flush=True)
    greeted, done, go = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    took_s: dict[int, tuple[float, float, float]] = {}

    def attend(wire: socket.socket) -> None:
        number, left, num_up = struct.unpack(HELLO, wire.recv(struct.calcsize(HELLO), socket.MSG_WAITALL))
        greeted.release()
        go.wait()
        wire.sendall(bytes(left))
        loaded_s, began_s = struct.unpack(MOMENTS, wire.recv(struct.calcsize(MOMENTS), socket.MSG_WAITALL))
        left = num_up - struct.calcsize(MOMENTS)
        while left > 0 and (got := len(wire.recv(1 << 18))):
            left -= got
        took_s[number] = (loaded_s - begun_s, began_s - loaded_s, time.monotonic() - began_s)
        done.release()

    for _ in range(int(num_nodes) + int(num_others)):
        threading.Thread(target=attend, args=(server.accept()[0],), daemon=True).start()
        greeted.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
    begun_s = time.monotonic()
    go.set()
    for _ in range(int(num_nodes)):
        done.acquire()
    print(json.dumps([took_s[number] for number in range(int(num_nodes))]), flush=True)


def take_part(host: str, port: str, number: str, num_down: str, compute_s: str, num_up: str) -> None:
    """Be a node: load, wait as if computing, send, and stay until the core has gone."""
    with socket.socket() as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        try:
            wire.connect((host, int(port)))
            wire.sendall(struct.pack(HELLO, int(number), int(num_down), int(num_up)))
            left = int(num_down)
            while left > 0:
                left -= len(wire.recv(1 << 18)) or left
            loaded_s = time.monotonic()
            time.sleep(float(compute_s))
            wire.sendall(struct.pack(MOMENTS, loaded_s, time.monotonic()))
            left = int(num_up) - struct.calcsize(MOMENTS)
            while left > 0:
                left -= wire.send(bytes(min(left, 1 << 16)))
            wire.recv(1)
        except ConnectionError:
            return


# As a program of its own, without what this module imports, it starts at once.
_HEAD = f"import json, socket, struct, sys, threading, time\nHELLO, MOMENTS = {HELLO!r}, {MOMENTS!r}"
_PARTS = [_HEAD, inspect.getsource(serve), inspect.getsource(take_part), "globals()[sys.argv[1]](*sys.argv[2:])"]
PROGRAM = [sys.executable, "-I", "-c", "\n".join(_PARTS)]
Running = tuple[NamespaceCell | ProxyCell, subprocess.Popen[str], Callable[[str, Sequence[object]], object]]
Emulator = Callable[[CellPlan, int], AbstractContextManager[Running]]


@dataclass(frozen=True)
class Scenario:
    """What happens in which cell. A node is its slice, bytes down, s of computing, bytes up."""

    name: str
    config: NetworkConfig
    nodes: Sequence[tuple[str, float, float, float]]
    distances_m: Sequence[float] = ()
    control: Literal["", "min_max", "alone", "channel"] = ""  # what the cell is told of the uplink's policy or the channel


class WholePercent:
    """Min-max as RRMPolicyRatio has it: in whole percent of the cell and by slice, whose nodes are alike. Notes its changes."""

    def __init__(self, config: NetworkConfig) -> None:
        self._inner = MinMaxConfig().build(FederationConfig())
        self._own = [one.up.rrm for one in config.slices]
        self._found: Grant | None = None
        self.period_s = self._inner.period_s
        self.changes: Changes = []

    def grant(self, uplink: Uplink, before: Grant | None) -> Grant:
        last, self._found = self._found, self._inner.grant(uplink, self._found)
        if before and last and self._found.floor_prbs is last.floor_prbs:
            return before
        promised, num_slices = self._found.floor_prbs > 0, len(uplink.names)
        percent = np.floor(100 * np.bincount(uplink.slice, self._found.floor_prbs, num_slices) / uplink.total_prbs)
        ratios = [own.model_copy(update={"min": int(least)}) for own, least in zip(self._own, percent, strict=True)]
        self.changes.append((uplink.now_s, "up", dict(zip(uplink.names, ratios, strict=True)), {}))
        prbs = percent / 100 * uplink.total_prbs / np.maximum(np.bincount(uplink.slice, promised, num_slices), 1)
        return Grant(floor_prbs=np.where(promised, prbs[uplink.slice], 0.0), ceiling_prbs=np.full(len(promised), math.inf))


def channel_changes(network: Network, slices: Sequence[str], traffic: Traffic) -> Changes:
    """Return the rates of the model, from each moment on at which a transfer begins or ends there."""
    names, who = [one.name for one in network.config.slices], np.arange(len(slices))
    changes: Changes = []
    done_s = np.cumsum([traffic.download_s, traffic.compute_s, traffic.upload_s], axis=0)
    begins_s, ends_s = (np.zeros(len(who)), done_s[1]), (done_s[0], done_s[2])
    for way, sinr_db, begin_s, end_s in zip(WAYS, network.terminals.sinr_db(0.0, who), begins_s, ends_s, strict=True):
        of = np.array([names.index(name) for name in slices], np.intp)
        nobody, everybody = np.zeros(len(who), np.bool_), np.ones(len(who))
        lane = Lane(network.config, way, of, np.full(len(who), math.inf), nobody, everybody)
        lane.hear(sinr_db, who)
        for at_s in np.unique([begin_s, end_s])[:-1].tolist():
            active = (begin_s <= at_s) & (at_s < end_s)
            changes.append((at_s, way, {}, {f"n{i}": float(lane.share(active)[1][i]) for i in np.flatnonzero(active)}))
    return sorted(changes, key=lambda change: change[0])


def modelled(scenario: Scenario) -> tuple[Traffic, CellPlan, Changes]:
    """Return what the virtual clock says, the cell to emulate, and what it is told on the way."""
    config, slices = scenario.config, [node[0] for node in scenario.nodes]
    distances_m = scenario.distances_m or [10.0] * len(slices)
    profiles = [NodeProfile(name="n", slice=of, distance_m=at_m) for of, at_m in zip(slices, distances_m, strict=True)]
    network, policy = Network(config, profiles, 0), WholePercent(config)
    demands = [
        Demand(node=i, bytes_down=round(down / TCP_SHARE), compute_s=compute_s, bytes_up=round(up / TCP_SHARE))
        for i, (_, down, compute_s, up) in enumerate(scenario.nodes)
    ]
    traffic = network.carry(demands, 0.0, policy if scenario.control == "min_max" else None)
    names, others = [f"n{i}" for i in range(len(slices))], [one.slice for one in config.background]
    slice_of = dict(zip([*names, *[GREEDY] * len(others)], [*slices, *others], strict=True))
    profile = Profile(cell=config.cell, slices=config.slices)
    down_bps, up_bps = (float(config.link(config.slices[0], way).rate_bps(config.cell.prbs, NEAR_DB)) for way in WAYS)
    plan = CellPlan(profile=profile, slice_of=slice_of, down_bps=down_bps, up_bps=up_bps)
    if scenario.control in ("alone", "channel"):
        for way in WAYS:
            plan = plan.limited(dict(zip(names, network.alone_bps[way].tolist(), strict=True)), way)
    return traffic, plan, channel_changes(network, slices, traffic) if scenario.control == "channel" else policy.changes


def _core(start: Callable[..., subprocess.Popen[str]], host: str, *counts: int) -> tuple[subprocess.Popen[str], int]:
    server = start([*PROGRAM, "serve", host, *map(str, counts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, int(server.stdout.readline())


@contextmanager
def in_namespaces(plan: CellPlan, num_nodes: int) -> Iterator[Running]:
    """Give a cell, its core, and what starts a terminal."""
    with NamespaceCell(plan) as cell:
        server, port = _core(cell.start, cell.core_address, num_nodes, len(plan.terminals) - num_nodes)
        head = [*PROGRAM, "take_part", cell.core_address, str(port)]
        with server:
            yield cell, server, lambda name, tail: cell.start([*head, *map(str, tail)], name)


@contextmanager
def through_a_proxy(plan: CellPlan, num_nodes: int) -> Iterator[Running]:
    """Give the same without namespaces."""
    running: list[subprocess.Popen[str]] = []

    def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        running.append(subprocess.Popen(argv, **options))
        return running[-1]

    server, port = _core(start, LOCAL, num_nodes, len(plan.terminals) - num_nodes)
    with server, ProxyCell(plan, (LOCAL, port)) as cell:
        yield cell, server, lambda name, tail: start([*PROGRAM, "take_part", *map(str, (*cell.address(name), *tail))])
    for process in running:
        process.wait(LONGEST_S)


def emulated_s(emulator: Emulator, scenario: Scenario, plan: CellPlan, changes: Changes, pause: Pause = time.sleep) -> Floats:
    """Return how long loading, computing and sending of each node took in s; a row a node."""
    with emulator(plan, len(scenario.nodes)) as (cell, server, start):
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            for i, (_, down, compute_s, up) in enumerate(scenario.nodes):
                start(f"n{i}", [i, int(down), compute_s, int(up)])
            if GREEDY in plan.terminals:
                start(GREEDY, [-1, 0, 0.0, 10**12])
            assert server.stdout.readline() == "ready\n"
            server.stdin.write("go\n")
            server.stdin.flush()
            begun_s = time.monotonic()
            for at_s, way, ratios, limits_bps in changes:
                pause(max(begun_s + at_s - time.monotonic(), 0.0))
                if ratios:
                    cell.reslice(ratios, [way])
                if limits_bps:
                    cell.limit(limits_bps, way)
            while server.poll() is None and time.monotonic() < begun_s + LONGEST_S:
                pause(0.05)
            return np.array(json.loads(server.stdout.read() if server.poll() == 0 else "[]")).reshape(len(scenario.nodes), 3)
        finally:
            server.kill()


def errors(traffic: Traffic, took_s: Floats) -> tuple[Floats, float]:
    """Return the relative errors of all transfers, and of the whole exchange."""
    model_s = np.stack([traffic.download_s, traffic.compute_s, traffic.upload_s], axis=1)
    whole = float(took_s.sum(axis=1).max() / model_s.sum(axis=1).max() - 1)
    return (took_s[:, ::2] / model_s[:, ::2] - 1).ravel(), whole


def radio(ratios: Mapping[str, Mapping[str, int]], delay_ms: Mapping[str, float] | None = None, **more: Any) -> NetworkConfig:
    """Return a cell with slices of these ratios both ways; `c` also limits each terminal's uplink."""
    limits = {"c": {"ue_ambr_bps": 4e6}}
    sides = {name: {"rrm": dict(rrm), **(delay_ms or {})} for name, rrm in ratios.items()}
    rows = [a_slice(name, i, {**side, **limits.get(name, {})}, side) for i, (name, side) in enumerate(sides.items(), 128)]
    return a_cell(*rows, **{"bandwidth_mhz": 20, "down_share": 0.15, "up_share": 0.4, **more})


ONE, THREE = {"a": {"min": 60}}, {"a": {"min": 60}, "b": {"min": 20, "max": 50}, "c": {"dedicated": 10, "min": 20}}
ALIKE, MAST = {of: {"min": 25} for of in "xyz"}, {"kind": "UMa", "nearest_m": 35.0, "farthest_m": 3000.0, "gnb_height_m": 25.0}
OTHER = {"slice": "b", "up_bps": math.inf, "distance_m": 10.0}
PLACES_M = [100.0, 150.0, 200.0, 250.0, 300.0, 400.0]
ALONE = [("a", 3e6, 0.3, 6e6)]
SIX = [("a", 1.2e6, 0.3, 3e6), ("a", 8e5, 0.5, 2e6), ("b", 6e5, 0.4, 1.5e6)]
SIX += [("b", 4e5, 0.2, 1e6), ("c", 3e5, 0.6, 8e5), ("c", 3e5, 0.1, 1.2e6)]
SPREAD = [(of, down, 0.5 * i, up) for i, (of, down, _, up) in enumerate(SIX)]
UNEVEN = 2 * [("x", 5e5, 0.3, 2.5e6), ("y", 5e5, 0.6, 1.2e6), ("z", 5e5, 0.9, 8e5)]
FADED = [(of, 5e5, 0.3, 1e6) for of in "xxyyzz"]
BORROWING = Scenario("three slices, borrowing as nodes end", radio(THREE), SIX)
SCENARIOS = [
    Scenario("one node alone", radio(ONE), ALONE),
    Scenario("one node alone, without delay", radio(ONE, {"delay_ms": 0.0}), ALONE),
    Scenario("six equal nodes in one slice", radio(ONE), [("a", 8e5, 0.3, 1.5e6)] * 6),
    BORROWING,
    Scenario("begin one after the other", radio(THREE), SPREAD),
    Scenario("another user saturates a slice", radio(THREE, background=[OTHER]), SIX),
    Scenario("min_max reslices the uplink", radio(ALIKE), UNEVEN, control="min_max"),
    Scenario("channels, told as they change", radio(ALIKE, place=MAST), FADED, PLACES_M, "channel"),
    Scenario("channels, told as if alone", radio(ALIKE, place=MAST), FADED, PLACES_M, "alone"),
]


def table(emulator: Emulator) -> None:
    """Print what all scenarios come to."""
    print(f"{'':36} transfers | error %: median | worst | whole exchange")
    every = np.empty(0)
    for scenario in SCENARIOS:
        traffic, plan, changes = modelled(scenario)
        found, whole = errors(traffic, emulated_s(emulator, scenario, plan, changes))
        size = 100 * np.abs(found)
        print(
            f"{scenario.name:36} {len(size):9} | {np.median(size):15.1f} | {size.max():5.1f} | {100 * whole:+14.1f}", flush=True
        )
        every = np.append(every, size)
    median, most = np.median(every), np.quantile(every, 0.9)
    verdict = f"goal: {100 * GOAL:g} in the median, {'met' if median <= 100 * GOAL else 'missed'}"
    print(f"{'all':36} {len(every):9} | {median:15.1f} | 90th percentile {most:.1f}; {verdict}")


if __name__ == "__main__":
    if reason := netns_available():
        print(f"no network namespaces here: {reason}")
    else:
        print("network namespaces")
        table(in_namespaces)
    print("\nproxy")
    table(through_a_proxy)
