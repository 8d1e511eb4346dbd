"""One direction of a cell keeps every promise, for any slices, users and channels."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.slices.lane import Lane, Steering
from edge.slices.pathloss import Bools, Floats
from edge.slices.profile import Direction, Profile
from edge.slices.terminals import Indices
from tests.cells import a_cell, a_slice

NEAR = 1e-6
GFBR_BPS, LIMIT_BPS, MBR_BPS = 4e5, 9e5, 1.5e6


def a_profile(ratios: list[tuple[int, int, int]], weights: list[float], scheduler: str) -> Profile:
    """Three slices: one free, one of guaranteed flows, one limited a terminal."""
    sides: list[dict[str, Any]] = [{"rrm": {"dedicated": d, "min": least, "max": most}} for d, least, most in ratios]
    flow = {"gfbr_bps": GFBR_BPS, "mfbr_bps": LIMIT_BPS}
    limits = {"ue_ambr_bps": LIMIT_BPS, "slice_mbr_bps": MBR_BPS}
    slices = [
        a_slice("free", 1, sides[0], sides[0], weight=weights[0]),
        a_slice("flows", 2, {**sides[1], **flow}, {**sides[1], **flow}, fiveqi=2, weight=weights[1]),
        a_slice("slow", 3, {**sides[2], **limits}, {**sides[2], **limits}, weight=weights[2], terminal={"bandwidth_mhz": 20}),
    ]
    return a_cell(*slices, scheduler=scheduler)


class Drawn:
    """A lane with users in any slices, who hear well or badly, of whom some are active."""

    def __init__(self, draw: st.DrawFn, scheduler: str = "round_robin") -> None:
        left, ratios = 100, []
        for _ in range(3):
            least = draw(st.integers(0, min(left, 60)))
            left -= least
            # A slice of no PRBs at all could not carry the rate that it guarantees.
            ratios.append((draw(st.integers(0, least)), least, draw(st.integers(max(least, 5), 100))))
        self.profile = a_profile(ratios, draw(st.lists(st.floats(0.1, 10.0), min_size=3, max_size=3)), scheduler)
        self.way: Direction = draw(st.sampled_from(["down", "up"]))
        num = draw(st.integers(1, 9))
        self.slices: Indices = np.array(draw(st.lists(st.integers(0, 2), min_size=num, max_size=num)), np.intp)
        self.sinr_db: Floats = np.array(draw(st.lists(st.floats(-20.0, 60.0), min_size=num, max_size=num)))
        offers = st.sampled_from([np.inf, np.inf, 3e5, 0.0])
        self.offered: Floats = np.array(draw(st.lists(offers, min_size=num, max_size=num)))
        self.guaranteed: Bools = np.array(draw(st.lists(st.booleans(), min_size=num, max_size=num))) & (self.slices == 1)
        self.weight: Floats = np.array(draw(st.lists(st.floats(0.01, 100.0), min_size=num, max_size=num)))
        self.active: Bools = np.array(draw(st.lists(st.booleans(), min_size=num, max_size=num)))
        prbs = st.lists(st.floats(0.0, 120.0), min_size=num, max_size=num)
        self.steering = None
        if draw(st.booleans()):
            steered = np.array(draw(st.lists(st.booleans(), min_size=3, max_size=3)))
            floors, ceilings = (np.array(draw(prbs)) for _ in range(2))
            floors[~steered[self.slices]], ceilings[~steered[self.slices]] = 0.0, np.inf
            self.steering = Steering(floor_prbs=floors, ceiling_prbs=ceilings, slices=steered)

    def lane(self, order: Indices | None = None) -> Lane:
        at = np.arange(len(self.slices)) if order is None else order
        lane = Lane(self.profile, self.way, self.slices[at], self.offered[at], self.guaranteed[at], self.weight[at])
        lane.hear(self.sinr_db[at], np.arange(len(at)))
        return lane

    def in_slice(self, values: Floats) -> Floats:
        return np.bincount(self.slices, values, 3).astype(np.float64)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    return Drawn(draw)


@settings(max_examples=300, deadline=None)
@given(drawn())
def test_nobody_gets_more_than_there_is_and_nothing_is_left_that_somebody_could_use(case: Drawn) -> None:
    lane = case.lane()
    prbs, _ = lane.share(case.active, case.steering)
    ceilings = np.inf if case.steering is None else case.steering.ceiling_prbs
    most = np.where(case.active, np.minimum(lane.most_prbs, ceilings), 0.0)
    used, policy = case.in_slice(prbs), lane.policy
    assert (prbs >= 0.0).all()
    assert (prbs <= most + NEAR).all()
    assert (used <= policy.maximum + NEAR).all()
    # What is dedicated to one is never another's.
    assert np.maximum(used, policy.dedicated).sum() <= lane.total_prbs + NEAR
    wanted = np.minimum(case.in_slice(most), policy.maximum)
    full = np.maximum(used, policy.dedicated).sum() >= lane.total_prbs - NEAR
    assert full or used == pytest.approx(wanted, abs=NEAR)


@settings(max_examples=300, deadline=None)
@given(drawn())
def test_a_saturated_slice_has_its_minimum_unless_it_is_steered(case: Drawn) -> None:
    lane = case.lane()
    used = case.in_slice(lane.share(case.active, case.steering)[0])
    ceilings = np.inf if case.steering is None else case.steering.ceiling_prbs
    wanted = case.in_slice(np.where(case.active, np.minimum(lane.most_prbs, ceilings), 0.0))
    steered = np.zeros(3, np.bool_) if case.steering is None else case.steering.slices
    promised = np.where(steered, lane.policy.dedicated, lane.policy.minimum)
    assert (used >= 0.99 * np.minimum(promised, wanted) - NEAR).all()


@settings(max_examples=300, deadline=None)
@given(drawn())
def test_promises_that_fit_are_kept(case: Drawn) -> None:
    """Those of guaranteed flows and of a slicing policy, in a slice whose maximum and whose neighbours leave room."""
    lane = case.lane()
    prbs, rate_bps = lane.share(case.active, case.steering)
    most, promise, minimum = lane.most_prbs, lane.floor_prbs, lane.policy.minimum
    if case.steering is not None:
        most = np.minimum(most, case.steering.ceiling_prbs)
        promise = np.maximum(promise, case.steering.floor_prbs)
        minimum = np.where(case.steering.slices, lane.policy.dedicated, minimum)
    promise = np.where(case.active, np.minimum(promise, most), 0.0)
    promised = case.in_slice(promise)
    if (promised <= lane.policy.maximum).all() and np.maximum(promised, minimum).sum() <= lane.total_prbs:
        assert (prbs >= promise - NEAR).all()
        kept = case.active & case.guaranteed & (lane.due_bps > 0.0) & (lane.floor_prbs <= most)
        assert (rate_bps[kept] >= GFBR_BPS * (1 - 1e-6)).all()


@settings(max_examples=300, deadline=None)
@given(drawn())
def test_beyond_promises_users_of_a_slice_fill_up_by_their_weight(case: Drawn) -> None:
    lane = case.lane()
    prbs = lane.share(case.active)[0]
    for index in range(3):
        at = np.flatnonzero(case.active & (case.slices == index) & (lane.floor_prbs == 0.0))
        # Whoever could use more is as full for its weight as anybody is.
        wants = at[prbs[at] < lane.most_prbs[at] - NEAR]
        assert (prbs[at, None] * case.weight[wants] <= prbs[wants] * case.weight[at, None] + NEAR).all()


@settings(max_examples=300, deadline=None)
@given(drawn(), st.data())
def test_what_is_kept_holds_against_a_grant_that_leaves_room(case: Drawn, data: st.DataObject) -> None:
    """Of all that a policy leaves the others at least what they keep: their minimum in their slices, head by head."""
    lane, num = case.lane(), len(case.slices)
    first = data.draw(st.integers(0, num))
    kept, others = lane.kept(first, case.active), np.arange(num) >= first
    part = lane.policy.minimum / np.maximum(np.bincount(case.slices, minlength=3), 1)
    by_hand = np.maximum(lane.floor_prbs, np.minimum(lane.most_prbs, part[case.slices]))
    assert kept == pytest.approx(np.where(others & case.active, by_hand, 0.0))
    held, steered = lane.by_slice(kept), np.isin(np.arange(3), case.slices[:first])
    left = min((lane.policy.maximum - held).min(), lane.total_prbs - np.maximum(held, lane.policy.minimum).sum())
    if first and left > 0.0:
        floors = np.where(others, kept, left / first)
        steering = Steering(floor_prbs=floors, ceiling_prbs=np.full(num, np.inf), slices=steered)
        assert (lane.share(case.active, steering)[0] >= kept - NEAR).all()


@settings(max_examples=300, deadline=None)
@given(drawn())
def test_no_rate_is_above_its_limit_and_each_is_that_of_its_prbs(case: Drawn) -> None:
    lane = case.lane()
    prbs, rate_bps = lane.share(case.active, case.steering)
    limit = np.minimum(case.offered, np.array([np.inf, LIMIT_BPS, LIMIT_BPS])[case.slices])
    assert (rate_bps <= limit * (1 + 1e-6)).all()
    assert (rate_bps[~case.active] == 0.0).all()
    links = [case.profile.link(one, case.way) for one in case.profile.slices]
    for user, index in enumerate(case.slices):
        assert rate_bps[user] == pytest.approx(float(links[index].rate_bps(prbs[user], case.sinr_db[user])), rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(drawn(), st.randoms(use_true_random=False))
def test_the_order_of_users_does_not_matter(case: Drawn, shuffler: random.Random) -> None:
    order = list(range(len(case.slices)))
    shuffler.shuffle(order)
    at, steering = np.array(order), case.steering
    if steering is not None:
        steering = Steering(floor_prbs=steering.floor_prbs[at], ceiling_prbs=steering.ceiling_prbs[at], slices=steering.slices)
    there = case.lane(at).share(case.active[at], steering)[0]
    assert there == pytest.approx(case.lane().share(case.active, case.steering)[0][at], abs=NEAR)


@settings(max_examples=100, deadline=None)
@given(drawn())
def test_hearing_in_parts_is_hearing_at_once(case: Drawn) -> None:
    whole = case.lane()
    parts = Lane(case.profile, case.way, case.slices, case.offered, case.guaranteed, case.weight)
    for user in reversed(range(len(case.slices))):
        parts.hear(case.sinr_db[[user]], np.array([user]))
    for name in ("sinr_db", "most_prbs", "floor_prbs", "due_bps"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
