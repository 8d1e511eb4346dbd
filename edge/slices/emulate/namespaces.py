"""A cell of network namespaces: real packets of real processes, shaped by the kernel as the slices say.

    core ── HTB ── gnb (a bridge) ──┬── relay ── terminal 0
                                    └── relay ── terminal 1 ...

Nothing of it is seen outside: all interfaces are made in the namespaces and end with them.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from edge.slices.emulate import relay
from edge.slices.emulate.cell import CORE, FRAME_BYTES, WAYS, CellPlan
from edge.slices.emulate.commands import batch, call
from edge.slices.emulate.detect import netns_available
from edge.slices.emulate.names import prefix, remove, remove_leftovers
from edge.slices.emulate.relay import Air
from edge.slices.emulate.tree import changes, tree
from edge.slices.profile import Direction, RrmRatio
from fedslice.core.errors import RunError, UsageError

_NETWORK, _FIRST = IPv4Address("10.45.0.0"), 10  # terminals begin at .10
MOST_TERMINALS = 400  # the relay waits by select, which knows 1024 files
_LONGEST_STOP_S = 1.0
# The shaped interface of each direction, and the kind of namespace it is in.
_SHAPED: dict[Direction, tuple[str, str]] = {"down": (CORE, "c0"), "up": ("gnb", "g0")}


class NamespaceCell:
    """A cell that lives as long as its `with` block; what a killed one left goes when the next one starts.

    Rates are of Ethernet frames, so that TCP carries `TCP_SHARE` of them. Terminals talk to the core only.
    """

    core_address = str(_NETWORK + 1)

    def __init__(self, plan: CellPlan, *, delays: bool = True, seed: int = 0) -> None:
        """Keep what to make.

        Args:
            plan: The slices, the terminals and the rates.
            delays: Whether packets take the time that their slice's `delay_ms` says, and `impair` works. It costs the
                relay's time: some 100 Mbit/s is the most that it carries.
            seed: Of the relay's jitter and losses.

        Raises:
            UsageError: There are more terminals than `MOST_TERMINALS`.
        """
        if len(plan.terminals) > MOST_TERMINALS:
            raise UsageError(f"a cell of namespaces has at most {MOST_TERMINALS} terminals; given: {len(plan.terminals)}")
        self.plan = plan
        self._delays, self._seed, self._prefix = delays, seed, prefix()
        self._addresses = {name: str(_NETWORK + _FIRST + i) for i, name in enumerate(plan.terminals)}
        self._spaces = {at: f"{self._prefix}-{at}" for at in (CORE, "gnb")}
        self._homes = {name: f"{self._prefix}-{i}" for i, name in enumerate(plan.terminals)}
        self._running: list[subprocess.Popen[Any]] = []
        self._relay: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Make the cell.

        Raises:
            UsageError: It cannot be made on this machine; says why.
            RunError: A step failed.
        """
        if reason := netns_available():
            raise UsageError(f"no network namespaces here: {reason}; a ProxyCell needs none")
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remove the cell."""
        self.close()

    def close(self) -> None:
        """End what runs in the cell, and remove it; a second time does nothing."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LONGEST_STOP_S)
        if self._relay:
            self._relay.kill()
            self._relay.communicate()
        remove([*self._homes.values(), *self._spaces.values()])
        for process in self._running:
            process.wait()
        self._running, self._relay = [], None

    def address(self, terminal: str) -> str:
        """Return the IPv4 address of a terminal.

        Raises:
            UsageError: There is no such terminal.
        """
        self.plan.index(terminal)
        return self._addresses[terminal]

    def start(self, argv: Sequence[str], at: str = CORE, **options: Any) -> subprocess.Popen[Any]:
        """Start a process in the core or, by its name, at a terminal; it ends with the cell.

        Args:
            argv: The command and its arguments.
            at: Where.
            options: What else `subprocess.Popen` takes.

        Raises:
            UsageError: There is no such terminal.
        """
        if at != CORE:
            self.plan.index(at)
        space = self._spaces[CORE] if at == CORE else self._homes[at]
        process = subprocess.Popen(["ip", "netns", "exec", space, *argv], **options)
        self._running.append(process)
        return process

    def reslice(self, ratios: Mapping[str, RrmRatio], ways: Sequence[Direction] = WAYS) -> None:
        """Give slices other ratios at once, while traffic flows.

        Raises:
            UsageError: They do not fit together, or there is no such slice.
        """
        self._change(self.plan.resliced(ratios, ways), ways)

    def limit(self, rates_bps: Mapping[str, float], way: Direction) -> None:
        """Limit what the channel of terminals bears one way, in bit/s; inf takes a limit away.

        Raises:
            UsageError: There is no such terminal, or a rate is not above zero.
        """
        self._change(self.plan.limited(rates_bps, way), [way])

    def impair(self, terminal: str, way: Direction, air: Air) -> None:
        """Change the delay, jitter and loss of a terminal one way.

        Raises:
            UsageError: There is no such terminal, or the cell has no delays.
            RunError: The relay has ended.
        """
        pair = self.plan.index(terminal)
        if not self._delays:
            raise UsageError("this cell has no relay: make it with delays=True")
        self._tell({"pair": pair, "way": way, "air": asdict(air)})

    def outage(self, terminal: str, on: bool) -> None:
        """Take a terminal off the air, or let it back; meanwhile all its packets are lost.

        Raises:
            UsageError: There is no such terminal.
        """
        batch("ip", self._spaces["gnb"], [f"link set dev g{self.plan.index(terminal) + 1} {'down' if on else 'up'}"])

    def _change(self, plan: CellPlan, ways: Sequence[Direction]) -> None:
        for way in ways:
            at, device = _SHAPED[way]
            batch("tc", self._spaces[at], changes(self.plan, plan, way, device, self._addresses))
        self.plan = plan

    def _make(self) -> None:
        for space in (*self._spaces.values(), *self._homes.values()):
            call("ip", "netns", "add", space)
        if self._delays:
            self._start_relay()
        lines = ["link add name br0 type bridge", f"link add name g0 type veth peer name c0 netns {self._spaces[CORE]}"]
        lines += [line for i, home in enumerate(self._homes.values(), 1) for line in self._radio(i, home)]
        batch("ip", self._spaces["gnb"], [*lines, *_up("br0"), *_up("g0"), "link set dev g0 master br0"])
        neighbours = [(address, _mac(i)) for i, address in enumerate(self._addresses.values(), 1)]
        batch("ip", self._spaces[CORE], _host("c0", self.core_address, _mac(0), neighbours))
        for i, (name, home) in enumerate(self._homes.items(), 1):
            batch("ip", home, _host("u0", self._addresses[name], _mac(i), [(self.core_address, _mac(0))]))
        for way, (at, device) in _SHAPED.items():
            batch("tc", self._spaces[at], tree(self.plan, way, device, self._addresses))
        if self._delays:
            for name in self.plan.terminals:
                for way in WAYS:
                    self.impair(name, way, Air(delay_ms=self.plan.home(name).side(way).delay_ms))

    def _radio(self, number: int, home: str) -> list[str]:
        """Return the lines that connect a terminal: by the ends of the relay, or by a pair of interfaces."""
        made = (
            f"link set dev u{number} netns {home} name u0"
            if self._delays
            else f"link add name g{number} type veth peer name u0 netns {home}"
        )
        port = f"link set dev g{number}"
        return [made, *_up(f"g{number}"), f"{port} master br0", f"{port} type bridge_slave isolated on"]

    def _start_relay(self) -> None:
        argv = ["ip", "netns", "exec", self._spaces["gnb"], sys.executable, "-I", str(Path(relay.__file__))]
        self._relay = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        pairs = [(f"g{i}", f"u{i}") for i in range(1, len(self.plan.terminals) + 1)]
        self._tell({"pairs": pairs, "seed": self._seed})
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != b"ready\n":
            raise RunError(f"the relay did not start: {self._relay.communicate()[1].decode(errors='replace').strip()}")

    def _tell(self, line: Mapping[str, object]) -> None:
        assert self._relay is not None
        assert self._relay.stdin is not None
        try:
            self._relay.stdin.write(json.dumps(line).encode() + b"\n")
            self._relay.stdin.flush()
        except OSError as error:
            raise RunError("the relay of the cell has ended") from error


def _mac(number: int) -> str:
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def _up(device: str) -> list[str]:
    """Return the lines that bring an interface up, with no IPv6 chatter and in frames rather than in bundles of them."""
    bundles = f"gso_max_size {FRAME_BYTES} gso_max_segs 1"
    return [f"link set dev {device} addrgenmode none", f"link set dev {device} {bundles} up"]


def _host(device: str, address: str, mac: str, neighbours: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines that make an interface a host's; neighbours are fixed, since questions for them could be lost."""
    lines = ["link set dev lo up", f"link set dev {device} address {mac}", f"addr add {address}/16 dev {device}", *_up(device)]
    return lines + [f"neigh add {other} lladdr {at} dev {device} nud permanent" for other, at in neighbours]
