"""The radio as a proxy has it: bytes of many connections, carried at the rates that the slices say."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable

from edge.slices.emulate.cell import PAYLOAD_BYTES, TCP_SHARE, CellPlan
from edge.slices.emulate.relay import Air
from edge.slices.profile import Direction

_BITS_A_BYTE = 8 / TCP_SHARE  # with the headers that it would have in full frames
_CHUNK_BYTES = 4 * PAYLOAD_BYTES
_SHORTEST_S, _LONGEST_S = 0.0005, 0.02  # between two looks at who has how much
_CATCH_UP_S = 0.1  # a process that was kept waiting longer has lost the time
_QUEUE_S, _LEAST_QUEUE_BYTES = 0.1, 1 << 16
_MOST_KEPT = 1000  # sets of terminals whose shares are remembered

Landing = Callable[[bytes | None], None]  # takes what arrived; None is the end of a stream


class Bearer:
    """One way of one terminal: what waits for the radio and what is in the air, in order."""

    def __init__(self, terminal: str, air: Air, draw: random.Random) -> None:
        """Begin empty."""
        self.terminal, self.air, self.held = terminal, air, False
        self.most_queued_bytes = _LEAST_QUEUE_BYTES
        self.queued_bytes = 0
        self.on_room: set[Callable[[], None]] = set()  # called when the queue has room again
        self._draw = draw
        self._waiting: deque[tuple[memoryview | None, Landing]] = deque()
        self._flying: deque[tuple[float, bytes | None, Landing]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._earned_bytes = self._last_s = 0.0

    @property
    def active(self) -> bool:
        """Return whether it has something to carry and may."""
        return bool(self._waiting) and not self.held

    @property
    def full(self) -> bool:
        """Return whether no more should be read."""
        return self.queued_bytes >= self.most_queued_bytes

    def add(self, data: bytes | None, landing: Landing) -> None:
        """Queue bytes, or the end of a stream."""
        self._waiting.append((None if data is None else memoryview(data), landing))
        self.queued_bytes += len(data or b"")

    def next_s(self, rate_bps: float) -> float:
        """Return in how many s the next chunk will be through at a rate in bit/s; inf at none."""
        needed_bytes = min(self.queued_bytes, _CHUNK_BYTES) - self._earned_bytes
        return max(needed_bytes, 0.0) * _BITS_A_BYTE / rate_bps if rate_bps > 0 else float("inf")

    def carry(self, bits: float, now_s: float) -> None:
        """Put as much into the air as a number of bits allows."""
        self._earned_bytes += bits / _BITS_A_BYTE
        was_full = self.full
        while self._waiting:
            data, landing = self._waiting[0]
            size = min(int(self._earned_bytes), len(data or b""))
            if data is not None and size < min(len(data), PAYLOAD_BYTES):
                break  # not even a segment
            if data is None or size == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = (data[size:], landing)
            self._earned_bytes -= size
            self.queued_bytes -= size
            self._launch(None if data is None else bytes(data[:size]), landing, now_s)
        if not self._waiting:
            self._earned_bytes = 0.0  # credit while idle would make the link faster than it is
        self._tell_of_room(was_full)

    def bound(self, most_bytes: int) -> None:
        """Let so many bytes wait at the most, from now on."""
        was_full, self.most_queued_bytes = self.full, most_bytes
        self._tell_of_room(was_full)

    def close(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._flying.clear()
        self.queued_bytes = 0
        if self._timer:
            self._timer.cancel()

    def _tell_of_room(self, was_full: bool) -> None:
        if was_full and not self.full:
            for call in list(self.on_room):
                call()

    def _launch(self, data: bytes | None, landing: Landing, now_s: float) -> None:
        segments = -(-len(data or b"") // PAYLOAD_BYTES)
        took_s = self.air.crossing_s(self._draw, segments)
        assert took_s is not None  # nothing gets lost: a proxy has streams only
        self._last_s = max(self._last_s, now_s + took_s)
        self._flying.append((self._last_s, data, landing))
        if len(self._flying) == 1:
            self._land()

    def _land(self) -> None:
        loop = asyncio.get_running_loop()
        while self._flying and self._flying[0][0] <= loop.time():
            _, data, landing = self._flying.popleft()
            landing(data)
        if self._flying:
            self._timer = loop.call_at(self._flying[0][0], self._land)


class Carrier:
    """One direction of a cell: settles, whenever something changes, what was carried since it last did."""

    def __init__(self, plan: CellPlan, way: Direction, bearers: Iterable[Bearer]) -> None:
        """Begin with nothing to carry."""
        self._way = way
        self._bearers = {bearer.terminal: bearer for bearer in bearers}
        self._rates: dict[str, float] = {}
        self._kept: dict[tuple[str, ...], dict[str, float]] = {}
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.adopt(plan)

    def adopt(self, plan: CellPlan) -> None:
        """Follow another plan; `settle` first, so that what was carried so far goes by the old one."""
        self._plan = plan
        self._kept.clear()
        for name, bearer in self._bearers.items():
            full_bps = min(plan.most_bps(name, self._way), plan.capacity_bps(self._way))
            bearer.bound(round(max(_QUEUE_S * full_bps / 8, _LEAST_QUEUE_BYTES)))

    def settle(self) -> None:
        """Carry what is due since the last time, and share the radio anew among those that have something to carry."""
        now_s = asyncio.get_running_loop().time()
        passed_s, self._since_s = min(now_s - self._since_s, _CATCH_UP_S), now_s
        for name, rate_bps in self._rates.items():
            self._bearers[name].carry(rate_bps * passed_s, now_s)
        self._rates = self._shares_bps(tuple(name for name, bearer in self._bearers.items() if bearer.active))
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._rates:
            next_s = min(self._bearers[name].next_s(rate_bps) for name, rate_bps in self._rates.items())
            self._timer = asyncio.get_running_loop().call_later(min(max(next_s, _SHORTEST_S), _LONGEST_S), self.settle)

    def close(self) -> None:
        """Stop."""
        if self._timer:
            self._timer.cancel()
        for bearer in self._bearers.values():
            bearer.close()

    def _shares_bps(self, active: tuple[str, ...]) -> dict[str, float]:
        if not active:
            return {}
        if len(self._kept) > _MOST_KEPT:
            self._kept.clear()
        if active not in self._kept:
            self._kept[active] = self._plan.shares_bps(active, self._way)
        return self._kept[active]
