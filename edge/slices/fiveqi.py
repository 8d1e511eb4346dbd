"""The standardised 5QIs: what a number promises to the packets that carry it (TS 23.501, table 5.7.4-1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Resource = Literal["GBR", "Non-GBR", "Delay-critical GBR"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FiveQi:
    """One row of TS 23.501 table 5.7.4-1.

    Attributes:
        number: The 5QI.
        resource: Whether a rate is guaranteed, and whether lateness counts as loss.
        priority: Default priority level; the lowest is served first.
        delay_budget_ms: Packet delay budget (PDB) between the terminal and the core, in ms.
        error_rate: Packet error rate (PER), the share of packets that may be lost or, if delay-critical, late.
        burst_bytes: Default maximum data burst volume (MDBV) in bytes; only delay-critical rows have one.
    """

    number: int
    resource: Resource
    priority: int
    delay_budget_ms: int
    error_rate: float
    burst_bytes: int | None = None

    @property
    def guaranteed(self) -> bool:
        """Return whether a flow has a guaranteed bit rate (GFBR)."""
        return self.resource != "Non-GBR"


# 5QI, priority, PDB ms, PER. The numbers are not contiguous: there is no 68, for one.
_GBR = [
    (1, 20, 100, 1e-2),
    (2, 40, 150, 1e-3),
    (3, 30, 50, 1e-3),
    (4, 50, 300, 1e-6),
    (65, 7, 75, 1e-2),
    (66, 20, 100, 1e-2),
    (67, 15, 100, 1e-3),
    (71, 56, 150, 1e-6),
    (72, 56, 300, 1e-4),
    (73, 56, 300, 1e-8),
    (74, 56, 500, 1e-8),
    (76, 56, 500, 1e-4),
]
_NON_GBR = [
    (5, 10, 100, 1e-6),
    (6, 60, 300, 1e-6),
    (7, 70, 100, 1e-3),
    (8, 80, 300, 1e-6),
    (9, 90, 300, 1e-6),
    (10, 90, 1100, 1e-6),  # over a satellite
    (69, 5, 60, 1e-6),
    (70, 55, 200, 1e-6),
    (79, 65, 50, 1e-2),
    (80, 68, 10, 1e-6),
]
# The same, and MDBV in bytes.
_DELAY_CRITICAL = [
    (82, 19, 10, 1e-4, 255),
    (83, 22, 10, 1e-4, 1354),
    (84, 24, 30, 1e-5, 1354),
    (85, 21, 5, 1e-5, 255),
    (86, 18, 5, 1e-4, 1354),
    (87, 25, 5, 1e-3, 500),
    (88, 25, 10, 1e-3, 1125),
    (89, 25, 15, 1e-4, 17_000),
    (90, 25, 20, 1e-4, 63_000),
]


def _table() -> Mapping[int, FiveQi]:
    plain: list[tuple[Resource, list[tuple[int, int, int, float]]]] = [("GBR", _GBR), ("Non-GBR", _NON_GBR)]
    rows = [
        FiveQi(number=number, resource=resource, priority=priority, delay_budget_ms=budget_ms, error_rate=per)
        for resource, group in plain
        for number, priority, budget_ms, per in group
    ]
    rows += [
        FiveQi(
            number=number,
            resource="Delay-critical GBR",
            priority=priority,
            delay_budget_ms=budget_ms,
            error_rate=per,
            burst_bytes=burst_bytes,
        )
        for number, priority, budget_ms, per, burst_bytes in _DELAY_CRITICAL
    ]
    return MappingProxyType({row.number: row for row in sorted(rows, key=lambda row: row.number)})


TABLE = _table()


def fiveqi(number: int) -> FiveQi:
    """Return the row of a 5QI.

    Raises:
        ValueError: The table has no such row; the message names the nearest that it has.
    """
    if number not in TABLE:
        nearest = min(TABLE, key=lambda known: (abs(known - number), known))
        raise ValueError(f"5QI {number} is not in TS 23.501 table 5.7.4-1; the nearest there is {nearest}")
    return TABLE[number]
