"""The exchange of one round over a cell: downloads, computing and uploads overlap and share what there is.

It goes from event to event: somebody ends a part, a link goes or comes back, the channel moves, a policy grants anew.
"""

import math
from collections.abc import Sequence

import numpy as np

from edge.slices.demand import Demand, Traffic, Use, Users
from edge.slices.lane import Lane, Steering
from edge.slices.pathloss import Bools, Floats
from edge.slices.profile import WAYS
from edge.slices.uplink import Grant, Slicing, Uplink

# After this a node is taken for lost: nobody waits longer for a link that does not come back.
LOST_S = 7 * 86_400.0
_COARSENESS = 0.02  # a step of the channel, at the most, as a share of the time that has passed
_DOWN, _COMPUTE, _UP, _DONE = range(4)
_UPLINK = 1  # the second lane
_INSTANT_S = 1e-9  # what is nearer than this is at once: sums round
# In a large cohort one end more or less changes little for the others: those within a fiftieth of the time that has
# passed, at least a millisecond, are taken together. Each still ends when it ends; others hear of it later.
_LARGE, _GRAIN_S = 64, 1e-3
_LONG_S = 3600.0  # and so they are in any cohort later than this, or a lost node would keep it busy with links that go and come
_SLACK = 1e-6  # of a rate, that rounding may take


class Exchange:
    """One exchange, while it runs."""

    def __init__(
        self, users: Users, lanes: tuple[Lane, Lane], medians: tuple[Lane, Lane], demands: Sequence[Demand], at_s: float
    ) -> None:
        """Begin at a moment of the virtual clock.

        Args:
            users: Who uses the cell.
            lanes: Its two directions, down and up.
            medians: The same once more, for the channel without fading.
            demands: One for each member of the cohort, in the order of the users.
            at_s: The moment.
        """
        self._users, self._lanes, self._medians, self._at_s = users, lanes, medians, at_s
        self._demands, self._num = demands, len(demands)
        count = self._num
        self._compute_s = np.array([d.compute_s for d in demands], np.float64)
        self._up_bits = np.array([8.0 * d.bytes_up for d in demands])
        self._left = np.array([8.0 * d.bytes_down for d in demands])
        self._delays_s = tuple(delay[users.slices[:count]] for delay in users.delays_s)
        self._stage = np.full(count, _DOWN)
        self._ready_s = np.full(count, math.inf)  # when computing ends
        self._ended_s = np.full((3, count), math.inf)  # when each ended loading, computing, sending
        self._heard_db = np.zeros((2, count))  # SINR in dB times seconds
        self._sending_s = np.zeros((2, count))
        self._others = np.ones(len(users.who) - count, np.bool_)
        self._rows = users.slices + len(users.names) * (np.arange(len(users.who)) >= count)
        self._up, self._change_s = users.availability.at(at_s, users.who)
        self._use: tuple[Use, Use] = (Use(), Use())
        self._grant: Grant | None = None
        self._due_s, self._grants = -math.inf, 0  # when a policy is asked again
        self._limits: list[str] = []
        self._now_s = 0.0
        self._changed = [True, True]
        self._active = [self._using(way) for way in (0, 1)]
        self._shared = [lane.share(active) for lane, active in zip(lanes, self._active, strict=True)]
        self._own_slices = np.isin(np.arange(len(users.names)), users.slices[: self._num])

    def run(self, slicing: Slicing | None) -> Traffic:
        """Let it run to its end; a slicing policy, if there is one, steers the uplink."""
        self._hear()
        start, next_step_s = self._uplink(self._medians), self._step_s()
        while (self._stage != _DONE).any() and self._now_s < LOST_S:
            grant_s = math.inf
            if slicing and self._can_send().any():
                if self._now_s >= self._due_s:
                    self._steer(slicing)
                grant_s = self._due_s
            for way, changed in enumerate(self._changed):
                if changed:
                    self._active[way] = self._using(way)
                    self._shared[way] = self._lanes[way].share(self._active[way], self._steering() if way == _UPLINK else None)
            self._changed = [False, False]
            self._advance(min(next_step_s, grant_s))
            if self._now_s >= next_step_s:
                self._hear()
                next_step_s = self._now_s + self._step_s()
        return self._traffic(start)

    def _step_s(self) -> float:
        """Return how long the channel may be taken to stand still: the longer an exchange lasts, the longer.

        Of many members each one's fading matters less: theirs is looked at once in a coherence time and not twice.
        """
        terminals = self._users.terminals
        least_s = terminals.step_s * (2.0 if self._num > _LARGE else 1.0)
        return max(least_s, _COARSENESS * self._now_s) if terminals.changes else math.inf

    def _hear(self) -> None:
        """Take the channel of all who still have to use it; the median one only if it can have changed."""
        of = np.flatnonzero(np.concatenate([self._stage != _DONE, self._others]))
        at_s, who, terminals = self._at_s + self._now_s, self._users.who[of], self._users.terminals
        down_db, up_db = terminals.sinr_db(at_s, who)
        self._lanes[_UPLINK].hear(up_db, of)
        loading = np.concatenate([self._stage == _DOWN, self._others])[of]
        if loading.any():
            self._lanes[0].hear(down_db[loading], of[loading])
        if self._now_s == 0.0 or terminals.move:
            for lane, sinr_db in zip(self._medians, terminals.sinr_db(at_s, who, faded=False), strict=True):
                lane.hear(sinr_db, of)
        self._changed = [self._changed[0] or bool(loading.any()), True]

    def _can_send(self) -> Bools:
        """Return who sends over a link that carries something: a policy can do nothing for others, such as a lost node."""
        return self._using(_UPLINK)[: self._num] & (self._lanes[_UPLINK].most_prbs[: self._num] > 0.0)

    def _using(self, way: int) -> Bools:
        """Return which users have something to send one way, over a link that is up."""
        stage = _UP if way == _UPLINK else _DOWN
        return np.concatenate([self._stage == stage, self._others]) & self._up

    def _advance(self, until_s: float) -> None:
        """Go on to the next event, at the latest to a moment."""
        moving = [self._active[way][: self._num] for way in (0, 1)]
        rates = [self._shared[way][1][: self._num] for way in (0, 1)]
        rate = np.where(moving[0], rates[0], np.where(moving[1], rates[1], 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            needs_s = np.where(self._left > 0.0, self._left / rate, 0.0)
        needs_s[(self._stage == _COMPUTE) | (self._stage == _DONE)] = math.inf
        link_s = self._change_s - self._at_s
        event_s = min(float(self._ready_s.min()), float(link_s.min()), self._now_s + float(needs_s.min()))
        coarse = self._num > _LARGE or self._now_s > _LONG_S
        next_s = min(until_s, max(event_s, self._now_s + max(_COARSENESS * self._now_s, _GRAIN_S)) if coarse else event_s, LOST_S)
        step_s, ends_s = next_s - self._now_s, self._now_s + needs_s
        self._account(moving, step_s)
        self._left -= rate * step_s
        self._now_s = next_s
        if (changing := link_s <= next_s + _INSTANT_S).any():
            at = np.flatnonzero(changing)
            # In a large cohort a link may have gone and come back since.
            seen_s = np.maximum(self._change_s[at], self._at_s + next_s)
            self._up[at], self._change_s[at] = self._users.availability.at(seen_s, self._users.who[at])
            self._changed = [True, True]
        self._pass(needs_s <= step_s + _INSTANT_S, ends_s)

    def _pass(self, finished: Bools, ends_s: Floats) -> None:
        """Let members go on to their next part."""
        if finished.any():
            loaded, sent = finished & (self._stage == _DOWN), finished & (self._stage == _UP)
            self._ended_s[0][loaded] = ends_s[loaded] + self._delays_s[0][loaded]
            self._ready_s[loaded] = self._ended_s[0][loaded] + self._compute_s[loaded]
            self._stage[loaded] = _COMPUTE
            self._ended_s[2][sent] = ends_s[sent] + self._delays_s[1][sent]
            self._stage[sent] = _DONE
            self._change_s[: self._num][sent] = math.inf
            self._left[finished] = 0.0
            self._changed = [self._changed[0] or bool(loaded.any()), self._changed[1] or bool(sent.any())]
        computed = self._ready_s <= self._now_s + _INSTANT_S
        if computed.any():
            self._ended_s[1][computed] = self._ready_s[computed]
            self._stage[computed], self._ready_s[computed] = _UP, math.inf
            self._left[computed] = self._up_bits[computed]
            self._changed[_UPLINK] = True

    def _account(self, moving: Sequence[Bools], step_s: float) -> None:
        """Note what the last step carried, and over which channel."""
        if step_s == 0.0:
            return
        for way, use in enumerate(self._use):
            (prbs, rate_bps), lane, active = self._shared[way], self._lanes[way], self._active[way]
            use.until_s.append(self._now_s + step_s)
            if not active.any():
                use.prbs.append(np.zeros(2 * len(self._users.names)))
                continue
            use.prbs.append(np.bincount(self._rows, prbs, 2 * len(self._users.names)).astype(np.float64, copy=False))
            if lane.promises:
                due = active & (lane.due_bps > 0.0)
                use.due_s += step_s * int(due.sum())
                use.short_s += step_s * int((due & (rate_bps < lane.due_bps * (1.0 - _SLACK))).sum())
            use.background_bits += step_s * float(rate_bps[self._num :].sum())
            seconds = np.where(moving[way], step_s, 0.0)
            self._sending_s[way] += seconds
            self._heard_db[way] += seconds * lane.sinr_db[: self._num]

    def _steer(self, slicing: Slicing) -> None:
        before, self._grant = self._grant, slicing.grant(self._uplink(self._lanes), self._grant)
        # In a long exchange little changes within a period.
        self._due_s = self._now_s + max(slicing.period_s, _COARSENESS * self._now_s)
        if before is not None and self._grant.floor_prbs is before.floor_prbs:
            return  # the policy stays with what it had
        self._grants += 1
        if self._grant.limit and self._grant.limit not in self._limits:
            self._limits.append(self._grant.limit)
        self._changed[_UPLINK] = True

    def _steering(self) -> Steering | None:
        """Return what holds now: what the cohort was granted, and what others keep by their links and channels of now."""
        if self._grant is None or not (self._grant.floor_prbs.any() or np.isfinite(self._grant.ceiling_prbs).any()):
            return None  # released: the slices' own ratios rule
        kept = self._lanes[_UPLINK].kept(self._num, self._up)
        return Steering(
            floor_prbs=np.concatenate([self._grant.floor_prbs, kept[self._num :]]),
            ceiling_prbs=np.concatenate([self._grant.ceiling_prbs, np.full(len(self._others), math.inf)]),
            slices=self._own_slices,
        )

    def _uplink(self, promised: Sequence[Lane]) -> Uplink:
        """Return what a slicing policy sees: the median channel, and what the others are promised by the given lanes.

        Fading passes sooner than what is to be sent: to follow it would give most to those who have it worst just now.
        """
        lane, users, own = self._medians[_UPLINK], self._users, slice(0, self._num)
        bits = np.where(self._stage == _UP, self._left, self._up_bits)
        return Uplink(
            now_s=self._now_s,
            nodes=tuple(d.node for d in self._demands),
            release_s=self._release_s(),
            delay_s=self._delays_s[1],
            bits=np.where(self._stage == _DONE, 0.0, bits),
            sinr_db=lane.sinr_db[own].copy(),
            most_prbs=lane.most_prbs[own].copy(),
            slice=users.slices[own],
            names=users.names,
            links=lane.links,
            total_prbs=lane.total_prbs,
            dedicated=lane.policy.dedicated,
            maximum=lane.policy.maximum,
            held=lane.by_slice(promised[_UPLINK].kept(self._num, self._up)),
        )

    def _release_s(self) -> Floats:
        """Return when each member can begin to send: as soon as it can for those that are still loading."""
        alone = self._medians[0].alone_bps()[: self._num]
        with np.errstate(divide="ignore", invalid="ignore"):
            loaded_s = self._now_s + np.where(self._left > 0.0, self._left / alone, 0.0) + self._delays_s[0] + self._compute_s
        begun = np.where(self._stage == _COMPUTE, self._ready_s, self._ended_s[1])
        return np.where(self._stage == _DOWN, loaded_s, begun)

    def _traffic(self, start: Uplink) -> Traffic:
        with np.errstate(invalid="ignore"):  # who never got there: inf less inf
            parts = np.nan_to_num(np.diff(self._ended_s, axis=0, prepend=0.0), nan=math.inf, posinf=math.inf)
        sinr_db = self._heard_db / np.maximum(self._sending_s, 1e-12)
        return Traffic(
            nodes=start.nodes,
            download_s=parts[0],
            compute_s=parts[1],
            upload_s=parts[2],
            sinr_db=dict(zip(WAYS, np.where(self._sending_s > 0, sinr_db, math.nan), strict=True)),
            use=dict(zip(WAYS, self._use, strict=True)),
            start=start,
            grants=self._grants,
            limits=self._limits,
        )
