"""Cells that tests of emulation share, traffic through them, and what of it arrived when."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

import pytest

from edge.slices.emulate import TCP_SHARE, CellPlan
from edge.slices.profile import Profile, RrmRatio, load_profile

ROOT = Path(__file__).resolve().parents[2]
TRAFFIC = [sys.executable, "-I", str(Path(__file__).with_name("traffic.py"))]
FACTORY = ROOT / "configs" / "slices" / "factory-n78-40.toml"
MBIT = 1e6
_LATE, _LOOK_S, _TRIES = 0.03, 0.02, 3
Samples = Sequence[tuple[float, int]]  # when, and how many bytes until then
Start = Callable[..., subprocess.Popen[Any]]


def ratios(**minima: int) -> dict[str, RrmRatio]:
    return {name: RrmRatio(min=least) for name, least in minima.items()}


def cell_of(
    slices: Mapping[str, RrmRatio],
    slice_of: Mapping[str, str],
    bps: float,
    *,
    weights: Mapping[str, float] | None = None,
    delay_ms: float = 0.0,
) -> CellPlan:
    """Return a cell that is alike both ways, with slices of the factory's kind."""
    tables = load_profile(FACTORY).model_dump(exclude_unset=True)
    plain = tables["slices"][0]
    tables["slices"] = [
        {
            **plain,
            "name": name,
            "snssai": {"sst": 1, "sd": f"{number:06X}"},
            "weight": (weights or {}).get(name, 1.0),
            **{way: {"rrm": ratio.model_dump(), "delay_ms": delay_ms} for way in ("down", "up")},
        }
        for number, (name, ratio) in enumerate(slices.items())
    ]
    return CellPlan(profile=Profile.model_validate(tables), slice_of=slice_of, down_bps=bps, up_bps=bps)


@dataclass(frozen=True)
class Sink:
    """A program that takes all that comes to a port, by any number of connections."""

    process: subprocess.Popen[str]
    address: str
    port: int

    @classmethod
    def at(cls, address: str, start: Start) -> Self:
        process = start([*TRAFFIC, "sink", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(process, address, int(process.stdout.readline()))

    def feed(self, start: Start, congestion: str = "cubic", through: tuple[str, int] | None = None) -> subprocess.Popen[Any]:
        """Start a source, and wait until something of it has come."""
        host, port = through or (self.address, self.port)
        source = start([*TRAFFIC, "source", host, str(port), congestion])
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begun\n"
        return source

    def seen(self) -> list[Samples]:
        """Return what each connection brought, in the order in which they began to bring something, and end it."""
        out, _ = self.process.communicate("end")
        return list(json.loads(out).values())


def rate_bps(samples: Samples, begin_s: float, end_s: float) -> float:
    """Return the mean rate of payload in bit/s between two moments; 0 where next to nothing came."""
    within = [(at, total) for at, total in samples if begin_s <= at <= end_s]
    if len(within) < 2:
        return 0.0
    (first_s, first), (last_s, last) = within[0], within[-1]
    return (last - first) * 8 / (last_s - first_s)


def share(samples: Samples, begin_s: float, end_s: float, bps: float) -> float:
    """Return the median over windows of 0.5 s of what arrived, over what TCP can carry at a rate in bit/s."""
    starts = [begin_s + i / 2 for i in range(int((end_s - begin_s) * 2))]
    return median(rate_bps(samples, start, start + 0.5) for start in starts) / (bps * TCP_SHARE)


class Watch:
    """Passes the time, and sees how late this process is woken: how starved the machine is."""

    def __init__(self) -> None:
        self._late_s = self._passed_s = 0.0

    def pause(self, seconds: float) -> tuple[float, float]:
        """Sleep, and return from when to when."""
        begin_s = now_s = time.monotonic()
        while now_s < begin_s + seconds:
            time.sleep(_LOOK_S)
            self._late_s += time.monotonic() - now_s - _LOOK_S
            now_s = time.monotonic()
        self._passed_s += now_s - begin_s
        return begin_s, now_s

    @property
    def starved(self) -> bool:
        return self._late_s > _LATE * self._passed_s


def undisturbed(check: Callable[[Watch], None]) -> None:
    """Check a measurement; up to three times, as long as it fails on a machine that was too starved for it to mean much."""
    for left in reversed(range(_TRIES)):
        watch = Watch()
        try:
            return check(watch)
        except AssertionError:
            if not left or not watch.starved:
                raise


def settled_after(samples: Samples, change_s: float, bps: float, most_s: float) -> float:
    """Return how many s after a change the rate of a stream came within 10 percent of a new one and stayed there."""
    window_s = 0.1
    starts = [i * window_s / 2 for i in range(int(most_s / window_s * 2))]
    off = [s for s in starts if abs(rate_bps(samples, change_s + s, change_s + s + window_s) / bps / TCP_SHARE - 1) > 0.1]
    return max(off, default=-window_s) + window_s


def check_change(seen: Sequence[Samples], before: tuple[float, float], after: tuple[float, float], bps: float) -> None:
    """Check that three streams had 60, 20 and 20 percent, and within 0.5 s of a change between two spans 20, 60 and 20."""
    old, new = [0.6, 0.2, 0.2], [0.2, 0.6, 0.2]
    (change_s, end_s) = after
    assert [share(one, *before, bps) for one in seen] == pytest.approx(old, rel=0.02)
    assert [share(one, change_s + 0.5, end_s, bps) for one in seen] == pytest.approx(new, rel=0.02)
    assert max(settled_after(one, change_s, part * bps, 1.5) for one, part in zip(seen, new, strict=True)) < 0.5
