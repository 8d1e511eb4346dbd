"""What a packet waits one way in a slice besides the time of sending it: link, retransmissions and queue."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.slices.link import MAX_TRANSMISSIONS, harq_delay_s, residual_bler
from edge.slices.profile import SliceDirection
from edge.slices.scheduler import waiting_time_s

Floats = npt.NDArray[np.float64]
_NEGLIGIBLE = 1e-15  # the probability from which on a number of transmissions is not looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How long a block takes that does not arrive at first; none is ever lost (RLC acknowledged mode, TS 38.322).

    After four transmissions by HARQ the receiver misses the block in its next status report, and it starts anew. Both
    times are engineering defaults, of a TDD cell at 30 kHz.

    Attributes:
        bler: The share of transmissions that fail, each for itself.
        harq_s: From one transmission to the next, in s: a HARQ round trip.
        rlc_s: From the last transmission of four to the first of the next four, in s: poll and status report.
    """

    bler: float
    harq_s: float = 4.5e-3
    rlc_s: float = 75e-3

    def __post_init__(self) -> None:
        """Check that the numbers are such as link adaptation leaves.

        Raises:
            ValueError: `bler` is outside 0..0.5, or a time is negative.
        """
        if not 0.0 <= self.bler <= 0.5:
            raise ValueError(f"bler: 0 to 0.5, link adaptation keeps to 0.1 or less; given: {self.bler:g}")
        if not (self.harq_s >= 0.0 and self.rlc_s >= 0.0):
            raise ValueError(f"harq_s, rlc_s: not negative; given: {self.harq_s:g}, {self.rlc_s:g}")

    @property
    def mean_harq_s(self) -> float:
        """Return the mean s that the first four transmissions of a block add."""
        return harq_delay_s(self.bler, self.harq_s)

    @property
    def mean_rlc_s(self) -> float:
        """Return the mean s that RLC adds: of its geometrically many rounds each brings four more transmissions."""
        residual = residual_bler(self.bler)
        return residual / (1.0 - residual) * (self.rlc_s + self.mean_harq_s)

    def delays(self) -> tuple[Floats, Floats]:
        """Return what a block may be late by, in s and ascending, and the probability that it is later than that.

        The entry k belongs to a block that arrives with its transmission k + 1; later than it are bler^(k + 1).
        """
        most = 1 if self.bler == 0.0 else math.ceil(math.log(_NEGLIGIBLE) / math.log(self.bler))
        failed = np.arange(most)
        rounds, by_harq = np.divmod(failed, MAX_TRANSMISSIONS)
        delay_s = rounds * (self.rlc_s + (MAX_TRANSMISSIONS - 1) * self.harq_s) + by_harq * self.harq_s
        return delay_s, np.power(self.bler, failed + 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Mean one-way delay of a packet by its parts, in s; the time of sending the packet itself is not among them.

    Attributes:
        idle_s: Of the link when nobody else uses it.
        harq_s: For transmissions that HARQ repeats.
        rlc_s: For what HARQ gives up on.
        queue_s: Behind earlier packets; inf in a slice that is offered more than it carries, so that no budget holds.
    """

    idle_s: float
    harq_s: float
    rlc_s: float
    queue_s: float

    @property
    def link_s(self) -> float:
        """Return what the link alone adds: all but the queue."""
        return self.idle_s + self.harq_s + self.rlc_s

    @property
    def total_s(self) -> float:
        """Return the sum of all parts."""
        return self.link_s + self.queue_s


def one_way(
    side: SliceDirection,
    repeats: Repeats,
    *,
    load_bps: float,
    capacity_bps: float,
    packet_bytes: float,
    packet_cv: float = 0.0,
) -> Latency:
    """Return what a packet of a slice waits one way on average.

    The queue is M/G/1 (Pollaczek and Khinchine). Bulk such as a model has a lower priority (TS 23.501 clause 5.7.3.3)
    and the scheduler chooses anew in every slot, so a packet waits only for what comes at its own priority or above.

    Args:
        side: What the slice is given in this direction.
        repeats: The block error rate, as the slice's MCS table has it, and what an error costs.
        load_bps: What comes in at the packet's priority or above, in bit/s.
        capacity_bps: What the slice carries of it, in bit/s: its guaranteed rate.
        packet_bytes: Mean size of those packets, in bytes.
        packet_cv: Standard deviation over mean of their size.
    """
    bits = 8.0 * packet_bytes
    # An outage, 0 bit/s, is an overload too.
    overloaded = load_bps >= capacity_bps
    queue_s = math.inf if overloaded else float(waiting_time_s(load_bps / bits, bits / capacity_bps, packet_cv))
    return Latency(idle_s=side.delay_ms / 1e3, harq_s=repeats.mean_harq_s, rlc_s=repeats.mean_rlc_s, queue_s=queue_s)


def late_share(latency: Latency, repeats: Repeats, *, budget_s: float, utilisation: float) -> float:
    """Return the share of packets, of one block each, that miss a packet delay budget (TS 23.501 clause 5.7.3.4).

    Who waits in the queue does so for an exponential time of the right mean. That is exact for exponential sizes
    (M/M/1). For equal sizes it is up to a sixth too low around the mean wait, and too high far out, where the true tail
    falls faster. Jitter of the idle link is not counted.

    Args:
        latency: The parts of the delay, from `one_way`.
        repeats: As given to `one_way`.
        budget_s: The budget in s, less the time of sending the packet.
        utilisation: Load over capacity: the share of packets that find a queue, whatever their sizes.
    """
    if math.isinf(latency.queue_s):
        return 1.0
    delay_s, later = repeats.delays()
    share = -np.diff(later, prepend=1.0)
    left_s = budget_s - latency.idle_s - delay_s
    waits = np.zeros_like(left_s)
    if latency.queue_s > 0.0:
        waits = utilisation * np.exp(-utilisation * np.maximum(left_s, 0.0) / latency.queue_s)
    return float(np.sum(share * np.where(left_s < 0.0, 1.0, waits)))


def last_blocks_s(repeats: Repeats, *, num_blocks: int, block_s: float) -> float:
    """Return by how many s, on average, retransmissions delay the end of a transfer that is delivered in order.

    The rate already pays for the transmissions (`link.goodput_share`), and while later blocks are on their way an
    earlier one is repeated beside them. What is left is the wait after the last block: the block that was sent j blocks
    before it and is late by D holds the end up by D - j block_s, and the worst of them decides. This is the exact mean
    of that maximum for independent errors; of one block it is `mean_harq_s + mean_rlc_s`.

    Args:
        repeats: The block error rate, and what an error costs.
        num_blocks: How many blocks the transfer has, at least one.
        block_s: From one block to the next, in s: a slot over the share of slots in this direction.

    Raises:
        ValueError: There is no block, or no time between two.
    """
    if not (num_blocks >= 1 and block_s > 0.0):
        raise ValueError(f"num_blocks: at least 1, block_s: above 0; given: {num_blocks}, {block_s:g}")
    delay_s, later = repeats.delays()
    # No block before this window can still matter.
    window = min(num_blocks, math.ceil(delay_s[-1] / block_s) + 1)
    hold_s = delay_s[1:, None] - block_s * np.arange(window)
    # Coming down from the latest end there may be, each (delay, block) passed takes a factor off P(all are in by then).
    in_time = np.log1p(-later)
    passed = np.broadcast_to((in_time[:-1] - in_time[1:])[:, None], hold_s.shape)
    counts = hold_s > 0.0
    order = np.argsort(-hold_s[counts])
    ends_s = hold_s[counts][order]
    some_late = -np.expm1(np.cumsum(passed[counts][order]))
    return float(np.sum((ends_s - np.append(ends_s[1:], 0.0)) * some_late)) if len(ends_s) else 0.0
