"""RRMPolicyRatio as a tree of Linux's HTB: the lines of `tc` that make it, and those that change it while it runs.

    1:1 the cell
    ├── 1:2 all slices without a dedicated part, which together leave the dedicated ones alone
    │   ├── 1:10 a slice: rate = min, ceil = max, quantum by weight
    │   │   └── 10: an HTB of its own: 10:1, 10:2 ... its terminals, which share it equally up to their limits
    │   └── 1:11 ...
    └── 1:12 a slice with a dedicated part

A slice is a leaf of its tree, since HTB hands out what is left by leaf: its weight would count once a terminal.
"""

from collections.abc import Mapping
from typing import Literal

from edge.slices.emulate.cell import FRAME_BYTES, CellPlan
from edge.slices.profile import Direction, SliceProfile

Verb = Literal["add", "change"]
_FIRST = 0x10  # number of the first slice
# HTB knows no rate of zero. A packet sent at this one has to be earned back before a new, higher minimum counts: the
# rate is a compromise between that wait and what is promised beyond 100 percent.
_LEAST_BPS, _LEAST_SHARE = 64e3, 0.005
_BURST_S, _LEAST_BURST_BYTES = 0.004, 4 * FRAME_BYTES
_QUEUE_S, _LEAST_QUEUE_BYTES = 0.1, 32 * FRAME_BYTES


def tree(plan: CellPlan, way: Direction, device: str, addresses: Mapping[str, str]) -> list[str]:
    """Return the lines of `tc -batch` that shape one direction of a cell.

    Args:
        plan: The cell.
        way: The direction.
        device: The interface that all of the direction leaves by.
        addresses: The IPv4 address of each terminal.
    """
    lines = [f"qdisc add dev {device} root handle 1: htb default 0", *_cell(plan, way, device, "add")]
    for number, one in enumerate(plan.profile.slices, _FIRST):
        lines += _planted(plan, way, device, addresses, number, one)
    return lines


def changes(before: CellPlan, plan: CellPlan, way: Direction, device: str, addresses: Mapping[str, str]) -> list[str]:
    """Return the lines that turn the tree of one plan into that of another with the same slices and terminals.

    A class cannot change its parent. So a slice is planted anew, and loses what it had queued, when it gets its first
    dedicated part or gives up its last.
    """
    lines = _cell(plan, way, device, "change")
    for number, (old, one) in enumerate(zip(before.profile.slices, plan.profile.slices, strict=True), _FIRST):
        if _parent(old, way) == _parent(one, way):
            lines += [_slice(plan, way, device, "change", number, one)]
            lines += [_terminal(plan, way, device, "change", number, place, name) for place, name in _users(plan, one)]
        else:
            lines += [f"filter del dev {device} parent 1: pref {place}" for place, _ in _users(plan, one)]
            lines += [f"class del dev {device} classid 1:{number:x}"]
            lines += _planted(plan, way, device, addresses, number, one)
    return lines


def _cell(plan: CellPlan, way: Direction, device: str, verb: Verb) -> list[str]:
    cell_bps = plan.capacity_bps(way)
    shared_bps = max(cell_bps * (100 - _dedicated(plan, way)) / 100, _least_bps(cell_bps))
    return [
        _line(verb, device, "1:", "1:1", cell_bps, cell_bps),
        # Of its own it has next to nothing, so that it lends nothing: what is left goes to all slices by weight.
        _line(verb, device, "1:1", "1:2", _least_bps(cell_bps), shared_bps),
    ]


def _planted(
    plan: CellPlan, way: Direction, device: str, addresses: Mapping[str, str], number: int, one: SliceProfile
) -> list[str]:
    field, cell, home = "dst" if way == "down" else "src", f"dev {device} parent 1:", f"dev {device} parent {number:x}:"
    lines = [_slice(plan, way, device, "add", number, one), f"qdisc add {cell}{number:x} handle {number:x}: htb default 0"]
    for place, name in _users(plan, one):
        full_bps = min(plan.most_bps(name, way), plan.capacity_bps(way))
        queue_bytes = max(_QUEUE_S * full_bps / 8, _LEAST_QUEUE_BYTES)
        match = f"protocol ip pref {place} u32 match ip {field} {addresses[name]}/32 flowid"
        lines += [
            _terminal(plan, way, device, "add", number, place, name),
            f"qdisc add {home}{place:x} bfifo limit {queue_bytes:.0f}",
            f"filter add {home} {match} {number:x}:{place:x}",
            f"filter add {cell} {match} 1:{number:x}",
        ]
    return lines


def _slice(plan: CellPlan, way: Direction, device: str, verb: Verb, number: int, one: SliceProfile) -> str:
    cell_bps, ratio = plan.capacity_bps(way), one.side(way).rrm
    rate_bps = max(cell_bps * ratio.min / 100, _least_bps(cell_bps))
    most = min(ratio.max, 100 - _dedicated(plan, way) + ratio.dedicated)
    quantum = round(FRAME_BYTES * one.weight / min(other.weight for other in plan.profile.slices))
    return _line(verb, device, _parent(one, way), f"1:{number:x}", rate_bps, max(cell_bps * most / 100, rate_bps), quantum)


def _terminal(plan: CellPlan, way: Direction, device: str, verb: Verb, number: int, place: int, name: str) -> str:
    most_bps = _most_bps(plan, name, way)
    return _line(verb, device, f"{number:x}:", f"{number:x}:{place:x}", most_bps, most_bps)


def _users(plan: CellPlan, one: SliceProfile) -> list[tuple[int, str]]:
    return [(place, name) for place, name in enumerate(plan.terminals, 1) if plan.slice_of[name] == one.name]


def _dedicated(plan: CellPlan, way: Direction) -> int:
    return sum(one.side(way).rrm.dedicated for one in plan.profile.slices)


def _parent(one: SliceProfile, way: Direction) -> str:
    return "1:1" if one.side(way).rrm.dedicated else "1:2"


def _least_bps(cell_bps: float) -> float:
    return min(_LEAST_BPS, _LEAST_SHARE * cell_bps)


def _most_bps(plan: CellPlan, name: str, way: Direction) -> float:
    return min(plan.most_bps(name, way), 2 * plan.capacity_bps(way))  # more than the cell has is no limit


def _line(
    verb: Verb, device: str, parent: str, number: str, rate_bps: float, ceil_bps: float, quantum_bytes: int = FRAME_BYTES
) -> str:
    """Return the line of a class; bursts let the tree catch up when its timer is late."""
    rate, ceil = (f"{bps:.0f}bit" for bps in (rate_bps, ceil_bps))
    burst, cburst = (round(max(_BURST_S * bps / 8, _LEAST_BURST_BYTES)) for bps in (rate_bps, ceil_bps))
    limits = f"rate {rate} burst {burst} ceil {ceil} cburst {cburst} quantum {quantum_bytes}"
    return f"class {verb} dev {device} parent {parent} classid {number} htb {limits}"
