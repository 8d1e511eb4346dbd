"""The radio's delay, jitter and loss, packet by packet: a program that carries frames between pairs of TAP interfaces.

The kernel's own way, netem, is not in every kernel. As a program it needs the standard library only, so that it starts
at once; it ends when its input does, and so never outlives the process that started it. It reads lines of JSON: first
`{"pairs": [[tap at the core's side, tap at the terminal's], ...], "seed": 0}`, then any number of
`{"pair": 0, "way": "up", "air": {...}}` with the fields of `Air`.
"""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

_TUNSETIFF, _IFF_TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
_MOST_FRAME_BYTES = 65536
_AT_A_TIME = 32  # frames read from one interface before those that are due are sent
_IDLE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Air:
    """What the radio does to a packet one way. Order is kept, as PDCP does.

    Attributes:
        delay_ms: How long each takes in ms.
        jitter_ms: The standard deviation in ms of the normal deviate whose size is added to it.
        loss: The share of transmissions that fail, at least 0 and below 1.
        retransmit_ms: How much later in ms a repetition is there (RLC AM); None where nothing is repeated and the packet
            is gone (RLC UM).
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    retransmit_ms: float | None = 8.0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: One of them is left.
        """
        times_ms = (self.delay_ms, self.jitter_ms, self.retransmit_ms or 0.0)
        if not (all(0 <= ms < float("inf") for ms in times_ms) and 0 <= self.loss < 1):
            raise ValueError(f"0 <= loss < 1, and times are finite and 0 ms or more; given: {self}")

    def crossing_s(self, draw: random.Random, segments: int = 1) -> float | None:
        """Return how long a packet of some segments is in the air, in s; None if it is lost."""
        took_ms = self.delay_ms
        if self.jitter_ms:
            took_ms += abs(draw.gauss(0.0, self.jitter_ms))
        if self.loss:
            for _ in range(segments):
                while draw.random() < self.loss:
                    if self.retransmit_ms is None:
                        return None
                    took_ms += self.retransmit_ms
        return took_ms / 1000


class _Way:
    """One way of one terminal."""

    __slots__ = ("air", "last_s", "out")

    def __init__(self, out: int) -> None:
        self.out, self.air, self.last_s = out, Air(), 0.0


class _Relay:
    def __init__(self, pairs: Sequence[tuple[str, str]], seed: int) -> None:
        self._draw = random.Random(seed)
        self._ways: dict[int, _Way] = {}  # by the interface that frames come in by
        self._of: list[dict[str, _Way]] = []
        for names in pairs:
            core, terminal = (_tap(name) for name in names)
            self._ways |= {core: _Way(terminal), terminal: _Way(core)}
            self._of.append({"down": self._ways[core], "up": self._ways[terminal]})
        self._flying: list[tuple[float, int, int, bytes]] = []
        self._number = 0  # what flies equally long stays in order
        self._rest = b""

    def run(self) -> None:
        """Carry frames until the input ends."""
        inputs = [*self._ways, sys.stdin.fileno()]
        while True:
            now_s = self._land()
            wait_s = min(max(self._flying[0][0] - now_s, 0.0), _IDLE_S) if self._flying else _IDLE_S
            # select takes microseconds, and epoll milliseconds: a third of what there is to keep
            for ready in select.select(inputs, (), (), wait_s)[0]:
                if ready in self._ways:
                    self._take(ready, self._ways[ready])
                elif not self._listen():
                    return

    def _land(self) -> float:
        """Send what is due, and return what time it is in s."""
        flying, now_s = self._flying, time.monotonic()
        while flying and flying[0][0] <= now_s:
            _, _, out, frame = heapq.heappop(flying)
            with suppress(OSError):  # the interface is down: so is the radio
                os.write(out, frame)
            now_s = time.monotonic()
        return now_s

    def _take(self, source: int, way: _Way) -> None:
        for _ in range(_AT_A_TIME):
            try:
                frame = os.read(source, _MOST_FRAME_BYTES)
            except OSError:  # none left, or it is down
                return
            took_s = way.air.crossing_s(self._draw)
            if took_s is not None:
                way.last_s = max(way.last_s, time.monotonic() + took_s)
                self._number += 1
                heapq.heappush(self._flying, (way.last_s, self._number, way.out, frame))

    def _listen(self) -> bool:
        """Read changes; return False when there will be no more."""
        got = os.read(sys.stdin.fileno(), _MOST_FRAME_BYTES)
        *lines, self._rest = (self._rest + got).split(b"\n")
        for line in map(json.loads, lines):
            self._of[line["pair"]][line["way"]].air = Air(**line["air"])
        return bool(got)


def _tap(name: str) -> int:
    """Make an interface that ends with this process, and return its descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP_WITHOUT_HEADER))
    return tap


def _line() -> bytes:
    """Read one line and not a byte more: what follows is for `select` to see."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(sys.stdin.fileno(), 1)):
        line += byte
    return line


if __name__ == "__main__":
    start = json.loads(_line())
    relay = _Relay(start["pairs"], start["seed"])
    print("ready", flush=True)
    relay.run()
