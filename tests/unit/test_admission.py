"""Admission: who a slice takes in, and whose rate it can guarantee, by hand and against plain rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.slices.admission import Applicant, Counters, Outcome, admit, counters
from edge.slices.profile import Profile

NEAR = 1e-6
TOP_BPS = 948 / 1024 * 6 * 12 * 14 / 0.5e-3 * 0.9  # of one PRB all the time, at the top of MCS table 1
PRB_BPS = {"down": TOP_BPS * 0.74 * 0.86, "up": TOP_BPS * 0.23 * 0.92}
PLACE = {"kind": "InF-SL", "farthest_m": 250.0, "gnb_height_m": 1.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A slice with a GFBR of about so many PRBs at the best SINR; 0 and 0 is a slice without."""

    down: float = 0.0
    up: float = 0.0
    least: int = 0
    most: int = 100
    priority: int = 8
    preempts: bool = False
    preemptible: bool = True


def cell(kinds: Sequence[Kind], bandwidth_mhz: int = 20, **limits: int) -> Profile:
    slices: list[dict[str, Any]] = []
    for index, kind in enumerate(kinds):
        arp = {"priority": kind.priority, "preempts": kind.preempts, "preemptible": kind.preemptible}
        one: dict[str, Any] = {"name": f"s{index}", "snssai": {"sst": index}, "arp": arp, "admission": limits}
        one |= {"fiveqi": 3 if kind.down + kind.up else 9, "terminal": {"layers_down": 1}}
        ratio = {"min": kind.least, "max": kind.most}
        for way, prbs in (("down", kind.down), ("up", kind.up)):
            one[way] = {"rrm": ratio, "delay_ms": 4.0, "gfbr_bps": prbs * PRB_BPS[way]}
        slices.append(one)
    carrier = {"carrier_ghz": 3.7, "bandwidth_mhz": bandwidth_mhz, "place": PLACE}
    return Profile.model_validate({"cell": carrier, "slices": slices})


def near(index: int, sinr_db: float = 60.0, num_sessions: int = 1) -> Applicant:
    return Applicant(slice=index, sinr_down_db=sinr_db, sinr_up_db=sinr_db, spread_db=0.0, num_sessions=num_sessions)


def guaranteed(profile: Profile, applicants: Sequence[Applicant]) -> list[bool]:
    return [outcome.guaranteed for outcome in admit(profile, applicants)]


def test_the_guarantee_holds_in_all_but_the_worst_share_of_the_channel() -> None:
    profile = cell([Kind(down=2, up=2)])
    one, rng = profile.slices[0], np.random.default_rng(1)
    asked = [Applicant(slice=0, sinr_down_db=14.0, sinr_up_db=30.0, spread_db=4.0)]
    for percentile in (0.01, 0.05, 0.5):
        found = admit(profile, asked, percentile)[0]
        below_db = 4.0 * NormalDist().inv_cdf(percentile)
        assert found.guaranteed
        assert found.prbs_down == pytest.approx(profile.link(one, "down").prbs_for(one.down.gfbr_bps, 14.0 + below_db))
        assert found.prbs_up == pytest.approx(profile.link(one, "up").prbs_for(one.up.gfbr_bps, 30.0 + below_db))
        seen_db = 14.0 + 4.0 * rng.standard_normal(200_000)
        short = profile.link(one, "down").rate_bps(found.prbs_down, seen_db) < one.down.gfbr_bps
        assert short.mean() == pytest.approx(percentile, abs=2e-3)


def test_a_slice_takes_in_its_most_terminals_and_sessions() -> None:
    profile = cell([Kind(), Kind(down=1)], max_ues=3, max_sessions=5)
    asked = [near(0, num_sessions=3), near(0, num_sessions=3), near(0), near(0), near(0), near(1, num_sessions=2), near(0)]
    found = admit(profile, asked)
    assert [o.admitted for o in found] == [True, False, True, True, False, True, False]
    assert [o.cause for o in found] == [None, 69, None, None, 62, None, 62]
    assert found[1].reason == ("5GSM cause #69: slice s0 has 3 of 5 PDU sessions (max_sessions), and 3 more are asked for")
    assert found[4].reason == "5GMM cause #62: slice s0 has its 3 terminals (max_ues)"
    assert found[0] == found[2] == Outcome(admitted=True)  # no GFBR, so nothing to explain
    assert counters(profile, asked, found) == [
        Counters(num_ues=3, num_sessions=5, refused_ues=2, refused_sessions=3, not_guaranteed=0),
        Counters(num_ues=1, num_sessions=2, refused_ues=0, refused_sessions=0, not_guaranteed=0),
    ]


def test_who_is_refused_holds_no_resource_blocks() -> None:
    assert [o.prbs_down for o in admit(cell([Kind(down=20)], max_ues=1), [near(0), near(0)])] == pytest.approx([20, 0])


def test_a_terminal_out_of_reach_is_carried_without_its_guarantee() -> None:
    profile = cell([Kind(down=5, most=50), Kind(up=5, most=50)])
    found = admit(profile, [near(0), near(0, -20.0), near(0, 2.0), near(1, -3.5)])
    assert [(o.admitted, o.guaranteed, o.prbs_down) for o in found[1:]] == [(True, False, 0.0)] * 3
    assert [o.reason for o in found[1:]] == [
        "down: no number of PRBs reaches 5.34e+06 bit/s at -20.0 dB; a terminal may have 25.5",
        "down: it takes 29.2 PRBs to reach 5.34e+06 bit/s at 2.0 dB; a terminal may have 25.5",
        "up: no number of PRBs reaches 1.78e+06 bit/s at -3.5 dB; a terminal may have 25.5",
    ]
    assert counters(profile, [near(0)] * 3 + [near(1)], found)[0].not_guaranteed == 2


def test_beyond_its_minimum_a_slice_takes_of_what_nobody_is_promised() -> None:
    # 51 PRBs: 5.1 of slice 0, 30.6 promised to slice 1, 15.3 to nobody.
    kinds = [Kind(down=5, least=10, most=50), Kind(least=60)]
    found = admit(cell(kinds), [near(0)] * 6)
    assert [o.guaranteed for o in found] == [True] * 4 + [False] * 2
    assert found[4].reason == "down: it takes 5.0 PRBs, and the slice has 0.4 left to guarantee"
    capped = admit(cell([Kind(down=5, least=10, most=20)]), [near(0)] * 3)
    assert capped[2].reason == "down: it takes 5.0 PRBs, and the slice has 0.2 left to guarantee"


def test_a_later_flow_that_preempts_takes_the_place_of_a_lower_one() -> None:
    # Slice 0 holds 10.2 of its own and 29.8 beyond; slice 1 has nothing of its own and comes later.
    low, high = Kind(down=10, least=20, priority=9), Kind(down=16, priority=3, preempts=True)
    asked = [near(0)] * 4 + [near(1)] * 3
    found = admit(cell([low, high]), asked)
    # 40.8 are promised to nobody: two flows of 16 leave 8.8 there, too little for a third of them or one of slice 0.
    assert [o.guaranteed for o in found] == [True, False, False, False, True, True, False]
    assert found[3].reason == "pre-empted by slice s1: ARP priority 3 before 9"
    assert guaranteed(cell([low, Kind(down=16, priority=3)]), asked) == [True] * 4 + [False] * 3
    firm = Kind(down=10, least=20, priority=9, preemptible=False)
    assert guaranteed(cell([firm, high]), asked) == [True] * 4 + [False] * 3
    assert guaranteed(cell([low, Kind(down=16, priority=9, preempts=True)]), asked) == [True] * 4 + [False] * 3


def test_nobody_gives_way_for_a_flow_that_does_not_fit_even_so() -> None:
    kinds = [Kind(down=10), Kind(down=10, priority=5, preemptible=False), Kind(down=45, priority=1, preempts=True)]
    assert guaranteed(cell(kinds), [near(0), near(1), near(2)]) == [True, True, False]


def test_what_a_preemption_leaves_over_is_used() -> None:
    # 51 PRBs: slice 0 holds 34 and slice 2 the rest, slice 1 waits with 20, until slice 3 takes 27 and leaves 24.
    kinds = [Kind(down=34, priority=4), Kind(down=20, priority=5, preempts=True), Kind(down=17, priority=7)]
    kinds += [Kind(down=27, priority=2, preempts=True)]
    assert guaranteed(cell(kinds), [near(0), near(2), near(1)]) == [True, True, False]
    found = admit(cell(kinds), [near(0), near(2), near(1), near(3)])
    assert [o.guaranteed for o in found] == [False, False, True, True]
    assert [o.reason for o in found] == [f"pre-empted by slice s3: ARP priority 2 before {n}" for n in (4, 7)] + ["", ""]
    # Not by who was first, but by priority: of slices 2 and 1 only one fits beside slice 3.
    assert guaranteed(cell(kinds), [near(2), near(1), near(3)]) == [False, True, True]


def test_who_may_not_preempt_gains_only_what_is_left_over() -> None:
    # Slice 3 leaves 25.8 of 51: enough for slice 2, which waits, but slice 0 had its guarantee and keeps it.
    kinds = [Kind(down=10, priority=9), Kind(down=16, priority=10), Kind(down=25.5, priority=8)]
    asked = [near(0), near(1), near(2), near(3)]
    assert guaranteed(cell([*kinds, Kind(down=25.2, priority=1)]), asked) == [True, True, False, False]
    assert guaranteed(cell([*kinds, Kind(down=25.2, priority=1, preempts=True)]), asked) == [True, False, False, True]


@pytest.mark.parametrize(
    ("applicant", "percentile", "words"),
    [
        (near(0), 0.0, "percentile"),
        (near(0), 1.0, "percentile"),
        (near(2), 0.05, "numbered 0 to 0; given: 2"),
        (near(-1), 0.05, "numbered 0 to 0; given: -1"),
        (near(0, float("nan")), 0.05, "SINR in dB"),
        (near(0, num_sessions=0), 0.05, "at least one PDU session"),
        (Applicant(slice=0, sinr_down_db=1.0, sinr_up_db=1.0, spread_db=-1.0), 0.05, "not negative"),
    ],
)
def test_what_makes_no_sense_is_refused(applicant: Applicant, percentile: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        admit(cell([Kind()]), [applicant], percentile)
    assert admit(cell([Kind()]), []) == []


Asked = tuple[list[Kind], list[Applicant]]
sizes = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 4.5])


@st.composite
def asking(draw: st.DrawFn, preempts: bool | None = None, preemptible: bool | None = None) -> Asked:
    """Slices of a cell of 11 PRBs, and who asks for them."""
    left, kinds = 100, []
    for _ in range(draw(st.integers(1, 4))):
        least = draw(st.integers(0, left // 2))
        left -= least
        kind = Kind(
            down=draw(sizes),
            up=draw(sizes),
            least=least,
            most=draw(st.integers(max(least, 40), 100)),
            priority=draw(st.integers(1, 4)),
            preempts=draw(st.booleans()) if preempts is None else preempts,
            preemptible=draw(st.booleans()) if preemptible is None else preemptible,
        )
        kinds.append(kind)
    one = st.builds(near, st.integers(0, len(kinds) - 1), st.sampled_from([60.0, 15.0, 12.0, 9.0, 6.0]))
    return kinds, draw(st.lists(one, max_size=14))


def needs(profile: Profile, applicants: Sequence[Applicant]) -> list[tuple[float, float]]:
    """Return the PRBs down and up of each; inf where the slice may not have as many."""
    found = {(a.slice, a.sinr_up_db): (0.0, 0.0) for a in applicants}
    for index, sinr_db in found:
        alone = admit(profile, [near(index, sinr_db)])[0]
        found[index, sinr_db] = (alone.prbs_down, alone.prbs_up) if alone.guaranteed else (np.inf, np.inf)
    return [found[a.slice, a.sinr_up_db] for a in applicants]


def fits(profile: Profile, applicants: Sequence[Applicant], prbs: Sequence[tuple[float, float]], chosen: Sequence[int]) -> bool:
    """Say whether all the chosen can be guaranteed at once, straight from what a slice is promised."""
    total = profile.cell.prbs
    for column in (0, 1):
        ratios = [(one.down, one.up)[column].rrm for one in profile.slices]
        held = [sum(prbs[at][column] for at in chosen if applicants[at].slice == i) for i in range(len(ratios))]
        within = all(h <= total * r.max / 100 + NEAR for h, r in zip(held, ratios, strict=True))
        needed = sum(max(h, total * r.min / 100) for h, r in zip(held, ratios, strict=True))
        if not within or needed > total + NEAR:
            return False
    return True


def in_turn(profile: Profile, applicants: Sequence[Applicant], order: Sequence[int]) -> list[bool]:
    """Take in whoever still fits, in an order."""
    prbs, chosen = needs(profile, applicants), list[int]()
    for at in order:
        if profile.slices[applicants[at].slice].qos.guaranteed and fits(profile, applicants, prbs, [*chosen, at]):
            chosen.append(at)
    return [at in chosen for at in range(len(applicants))]


@settings(max_examples=200, deadline=None)
@given(asking(preempts=False))
def test_where_nobody_preempts_it_goes_by_order(asked: Asked) -> None:
    profile, applicants = cell(asked[0], 5), asked[1]
    assert guaranteed(profile, applicants) == in_turn(profile, applicants, range(len(applicants)))


@settings(max_examples=200, deadline=None)
@given(asking(preempts=True, preemptible=True))
def test_where_all_preempt_it_goes_by_priority(asked: Asked) -> None:
    profile, applicants = cell(asked[0], 5), asked[1]
    order = sorted(range(len(applicants)), key=lambda at: profile.slices[applicants[at].slice].arp.priority)
    assert guaranteed(profile, applicants) == in_turn(profile, applicants, order)


@settings(max_examples=200, deadline=None)
@given(asking())
def test_what_is_set_aside_fits_and_leaves_out_nobody_who_could_claim_it(asked: Asked) -> None:
    profile, applicants = cell(asked[0], 5), asked[1]
    found, prbs = admit(profile, applicants), needs(profile, applicants)
    chosen = [at for at, o in enumerate(found) if o.guaranteed]
    assert fits(profile, applicants, prbs, chosen)
    for at, (outcome, applicant) in enumerate(zip(found, applicants, strict=True)):
        one = profile.slices[applicant.slice]
        assert outcome.admitted
        assert (outcome.reason == "") == (outcome.guaranteed or not one.qos.guaranteed)
        assert (outcome.prbs_down, outcome.prbs_up) == (prbs[at] if outcome.guaranteed else (0.0, 0.0))
        if not outcome.guaranteed and one.qos.guaranteed:
            assert not fits(profile, applicants, prbs, [*chosen, at])
            arps = {other: profile.slices[applicants[other].slice].arp for other in chosen}
            firm = [o for o, arp in arps.items() if not arp.preemptible or arp.priority <= one.arp.priority]
            assert not (one.arp.preempts and fits(profile, applicants, prbs, [*firm, at]))


@settings(max_examples=200, deadline=None)
@given(asking(), st.data())
def test_the_order_of_slices_does_not_matter(asked: Asked, data: st.DataObject) -> None:
    kinds, applicants = asked
    order = data.draw(st.permutations(range(len(kinds))))
    moved = [near(order.index(one.slice), one.sinr_up_db) for one in applicants]
    assert guaranteed(cell([kinds[at] for at in order], 5), moved) == guaranteed(cell(kinds, 5), applicants)


@settings(max_examples=200, deadline=None)
@given(asking(), st.sampled_from([60.0, 9.0]), st.data())
def test_who_asks_last_takes_no_guarantee_from_an_equal_or_higher(asked: Asked, sinr_db: float, data: st.DataObject) -> None:
    kinds, applicants = asked
    newcomer = near(data.draw(st.integers(0, len(kinds) - 1)), sinr_db)
    before, after = (guaranteed(cell(kinds, 5), all_) for all_ in (applicants, [*applicants, newcomer]))
    for had, has, applicant in zip(before, after, applicants, strict=False):
        assert has or not had or kinds[applicant.slice].priority > kinds[newcomer.slice].priority


@settings(max_examples=200, deadline=None)
@given(asking(preempts=True, preemptible=True), st.data())
def test_where_all_preempt_a_lower_one_never_matters_whenever_it_asks(asked: Asked, data: st.DataObject) -> None:
    kinds, applicants = [*asked[0], Kind(down=1, up=1, priority=15, preempts=True)], list(asked[1])
    before = guaranteed(cell(kinds, 5), applicants)
    at = data.draw(st.integers(0, len(applicants)))
    after = guaranteed(cell(kinds, 5), [*applicants[:at], near(len(kinds) - 1), *applicants[at:]])
    assert after[:at] + after[at + 1 :] == before


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, st.integers(0, 60))
def test_a_larger_cell_guarantees_no_fewer_of_equal_flows(down: float, up: float, least: int) -> None:
    kinds = [Kind(down=down, up=up, least=least), Kind(least=40)]
    numbers = [sum(guaranteed(cell(kinds, mhz), [near(0)] * 60)) for mhz in (5, 10, 20)]
    assert numbers == sorted(numbers)


def test_a_larger_cell_may_take_in_one_large_flow_for_two_small_ones() -> None:
    asked, kinds = [near(0), near(1), near(1)], [Kind(down=70), Kind(down=32)]
    assert guaranteed(cell(kinds, 25), asked) == [False, True, True]  # of 65 PRBs; below, of 78
    assert guaranteed(cell(kinds, 30), asked) == [True, False, False]
