"""Path loss by hand, and processes against their closed forms."""

import math

import numpy as np
import pytest

from edge.slices.channel import Dynamics, Interruptions, Wander, interruptions, obstructions_db
from edge.slices.pathloss import MODELS, Kind, Place

GHZ = 3.7
SL, DL, SH, DH = (
    Place(kind="InF-SL", farthest_m=500.0, gnb_height_m=1.5, clutter_density=0.3, clutter_size_m=10.0),
    Place(kind="InF-DL", farthest_m=500.0, gnb_height_m=1.5, clutter_density=0.6, clutter_size_m=2.0),
    Place(kind="InF-SH", farthest_m=500.0, gnb_height_m=8.0, clutter_density=0.3, clutter_size_m=10.0),
    Place(kind="InF-DH", farthest_m=500.0, gnb_height_m=8.0, clutter_density=0.6, clutter_size_m=2.0),
)
OPEN, MIXED = (Place(kind=kind, farthest_m=150.0, gnb_height_m=3.0) for kind in ("InH-open", "InH-mixed"))
UMI = Place(kind="UMi", farthest_m=2000.0, gnb_height_m=10.0)
UMA = Place(kind="UMa", farthest_m=2000.0, gnb_height_m=25.0)
PLACES = [SL, DL, SH, DH, OPEN, MIXED, UMI, UMA]
EVERYWHERE = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.kind)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("place", "distance_m", "los_db", "nlos_db"),
    [
        # 3.7 GHz; lg 3.7 = 0.568202. Heights of 1.5 m on both ends, so both distances are the same.
        (SL, 100.0, 85.636, 95.364),  # 31.84 + 43 + 10.796; 33 + 51 + 11.364
        (SL, 10.0, 64.136, 69.864),
        (DL, 100.0, 85.636, 101.364),  # 18.6 + 71.4 + 11.364
        (DL, 200.0, 92.108, 112.111),
        # Up to 26 m sparse clutter's line is the higher one.
        (DL, 1.0, 42.636, 44.364),
        (DL, 5.0, 57.664, 62.188),  # 33 + 17.824 + 11.364
        (DL, 10.0, 64.136, 69.864),
        (DL, 20.0, 70.608, 77.540),  # 33 + 33.176 + 11.364; its own: 18.6 + 46.447 + 11.364 = 76.411
        # 8 m over 1.5 m: 100.211 m apart, lg 2.000916
        (SH, 100.0, 85.655, 89.785),  # 31.84 + 43.020 + 10.796; 32.4 + 46.021 + 11.364
        (DH, 100.0, 85.655, 88.814),  # 33.63 + 43.820 + 11.364
        # 3 m over 1.5 m: 50.0225 m apart, lg 1.699165
        (OPEN, 50.0, 73.160, 96.526),  # 32.4 + 29.396 + 11.364; 17.3 + 65.078 + 14.148
        (MIXED, 50.0, 73.160, 96.526),
        (OPEN, 1.0, 48.192, 48.192),  # 17.3 + 9.803 + 14.148 is less than in line of sight
        # 10 m over 1.5 m: 100.3606 m apart, lg 2.001564; the breakpoint is at 4 x 9 x 0.5 x 3.7e9 / 3e8 = 222 m
        (UMI, 100.0, 85.797, 105.158),  # 32.4 + 42.033 + 11.364; 22.4 + 70.655 + 12.103
        (UMI, 1000.0, 119.178, 140.403),  # 32.4 + 120.001 + 11.364 - 9.5 lg(222^2 + 8.5^2) = 44.587
        # 25 m over 1.5 m: 102.7241 m apart, lg 2.011673; the breakpoint is at 592 m
        (UMA, 100.0, 83.621, 103.520),  # 28 + 44.257 + 11.364; 13.54 + 78.616 + 11.364
        (UMA, 1000.0, 109.461, 142.149),  # 28 + 120.005 + 11.364 - 9 lg(592^2 + 23.5^2) = 49.908
    ],
    ids=lambda value: value.kind if isinstance(value, Place) else str(value),
)
def test_path_loss_by_hand(place: Place, distance_m: float, los_db: float, nlos_db: float) -> None:
    found = place.path_loss_db([distance_m, distance_m], [True, False], GHZ)
    assert found == pytest.approx([los_db, nlos_db], abs=2e-3)


@pytest.mark.parametrize(("place", "breakpoint_m", "slope"), [(UMI, 222.0, 21.0), (UMA, 592.0, 22.0)])
def test_a_street_bends_at_its_breakpoint_without_a_jump(place: Place, breakpoint_m: float, slope: float) -> None:
    assert place.breakpoint_m(GHZ) == pytest.approx(breakpoint_m)
    at = np.array([0.5, 1 - 1e-9, 1 + 1e-9, 2.0]) * breakpoint_m
    losses, apart = place.path_loss_db(at, True, GHZ), np.log10(place.distance_3d_m(at))
    assert losses[1] == pytest.approx(losses[2], abs=1e-6)
    assert (losses[1] - losses[0]) / (apart[1] - apart[0]) == pytest.approx(slope)
    assert (losses[3] - losses[2]) / (apart[3] - apart[2]) == pytest.approx(40.0)


@EVERYWHERE
def test_farther_is_never_louder_and_hidden_is_never_louder_than_seen(place: Place) -> None:
    along = np.linspace(0.0, place.farthest_m, 5000)
    seen, hidden = (place.path_loss_db(along, los, GHZ) for los in (True, False))
    assert (np.diff(seen) >= -1e-9).all()
    assert (np.diff(hidden) >= -1e-9).all()
    assert (hidden >= seen).all()
    assert (np.abs(np.diff(seen)) < 1.5).all()
    nearest = MODELS[place.kind].nearest_m
    assert seen[0] == place.path_loss_db(nearest, True, GHZ)  # nearer than the model holds is its nearest


@EVERYWHERE
def test_the_line_of_sight_is_a_probability_that_falls(place: Place) -> None:
    probability = place.los_probability(np.linspace(0.0, place.farthest_m, 5000))
    assert probability[0] == 1.0
    assert (probability > 0).all()
    # The office's two pieces meet within the rounding of their printed numbers.
    assert np.diff(probability).max() <= (0.004 if place.kind.startswith("InH") else 0.0)


@pytest.mark.parametrize(
    ("place", "distance_m", "probability"),
    [
        (SL, 28.0367, 1 / math.e),  # -10 / ln 0.7
        (SL, 56.0734, math.e**-2),
        (DL, 2.18271, 1 / math.e),  # -2 / ln 0.4
        (SH, 28.0367 * 6.5 / 1.5, 1 / math.e),  # seen over clutter of 3 m from 8 m
        (DH, 2.18271 * 6.5 / 1.5, 1 / math.e),
        (UMI, 18.0, 1.0),
        (UMI, 36.0, 0.5 + 0.5 / math.e),
        (UMA, 18.0, 1.0),
        (UMA, 63.0, 18 / 63 + (45 / 63) / math.e),
        (OPEN, 5.0, 1.0),
        (OPEN, 49.0, math.exp(-44 / 70.8)),
        (OPEN, 49.0 + 211.7, 0.54 / math.e),
        (MIXED, 1.2, 1.0),
        (MIXED, 1.2 + 4.7, 1 / math.e),
        (MIXED, 6.5 + 32.6, 0.32 / math.e),
    ],
    ids=lambda value: value.kind if isinstance(value, Place) else str(value),
)
def test_line_of_sight_by_hand(place: Place, distance_m: float, probability: float) -> None:
    assert place.los_probability(distance_m) == pytest.approx(probability, rel=1e-5)


@pytest.mark.parametrize(("place", "size_m"), [(SL, 10.0), (DL, 2.0), (SH, 10.0), (DH, 2.0)], ids=lambda value: str(value)[:13])
def test_clutter_has_the_size_of_its_kind_unless_told(place: Place, size_m: float) -> None:
    own = Place.model_validate(place.model_dump(exclude={"clutter_size_m"}))
    assert (own.clutter_size_m, own.clutter_m, own.sight_correlation_m) == (None, size_m, size_m / 2)
    assert own.los_probability(30.0) == place.los_probability(30.0)
    larger = place.model_copy(update={"clutter_size_m": 2 * size_m})
    assert larger.sight_correlation_m == size_m
    assert larger.los_probability(60.0) == pytest.approx(float(own.los_probability(30.0)))


@pytest.mark.parametrize(
    ("kind", "los_db", "nlos_db"),
    [
        ("InF-SL", 4.3, 5.7),
        ("InF-DL", 4.3, 7.2),
        ("InF-SH", 4.3, 5.9),
        ("InF-DH", 4.3, 4.0),
        ("InH-open", 3.0, 8.03),
        ("InH-mixed", 3.0, 8.03),
        ("UMi", 4.0, 7.82),
        ("UMa", 4.0, 6.0),
    ],
)
def test_how_much_shadows_scatter(kind: Kind, los_db: float, nlos_db: float) -> None:
    place = next(place for place in PLACES if place.kind == kind)
    assert place.shadow_sigma_db([True, False]).tolist() == [los_db, nlos_db]


def test_obstructions_meet_their_share() -> None:
    hall = SL.model_copy(update={"obstructed_share": 0.4, "obstruction_db": 12.0})
    lost = obstructions_db(hall, 200_000, rng(1))
    assert set(lost.tolist()) == {0.0, 12.0}
    assert lost.mean() == pytest.approx(0.4 * 12, abs=0.05)


EVERYBODY = np.arange(60_000)


@pytest.mark.parametrize("where", [0.0, 3.7, 1e6])
def test_a_wandering_value_is_standard_normal_anywhere(where: float) -> None:
    values = Wander(len(EVERYBODY), 10.0, rng(2)).at(where, EVERYBODY)
    assert values.mean() == pytest.approx(0.0, abs=0.02)
    assert values.std() == pytest.approx(1.0, abs=0.01)
    # Sixteen waves of one height each: the fourth moment is that of a normal value but for 3 / 32.
    assert (values**4).mean() == pytest.approx(3.0 - 1.5 / 16, abs=0.1)
    for sigmas in (-2.0, -1.0, 0.0, 1.0, 2.0):
        share = 0.5 * (1 + math.erf(sigmas / math.sqrt(2)))
        assert (values < sigmas).mean() == pytest.approx(share, abs=0.008)


@pytest.mark.parametrize("length", [0.5, 10.0])
def test_a_wandering_value_forgets_over_its_length(length: float) -> None:
    wander = Wander(len(EVERYBODY), length, rng(3))
    for start in (0.0, 123.4 * length):
        here = wander.at(start, EVERYBODY)
        for lengths in (0.01, 0.1, 0.5, 1.0, 2.0, 5.0):
            there = wander.at(start + lengths * length, EVERYBODY)
            assert (here * there).mean() == pytest.approx(math.exp(-lengths), abs=0.015)
        assert (here * wander.at(start - length, EVERYBODY)).mean() == pytest.approx(math.exp(-1), abs=0.015)


def test_nodes_wander_each_for_themselves_and_each_from_where_it_is() -> None:
    wander = Wander(len(EVERYBODY), 1.0, rng(4))
    values = wander.at(0.0, EVERYBODY)
    assert (values[:-1] * values[1:]).mean() == pytest.approx(0.0, abs=0.015)
    ways = np.linspace(0.0, 50.0, 7)
    some = np.array([5, 900, 17, 3, 5, 0, 41_000])
    one_by_one = [float(wander.at(way, np.array([node]))[0]) for way, node in zip(ways, some, strict=True)]
    assert wander.at(ways, some).tolist() == one_by_one
    assert wander.at(2.0, EVERYBODY)[some].tolist() == wander.at(2.0, some).tolist()
    again = Wander(len(EVERYBODY), 1.0, rng(4))
    assert again.at(7.0, EVERYBODY)[:50].tolist() == wander.at(7.0, EVERYBODY)[:50].tolist()
    assert again.at(0.0, EVERYBODY).tolist() == values.tolist()  # asked later than another
    other = Wander(len(EVERYBODY), 1.0, rng(5)).at(0.0, EVERYBODY)
    assert (other * values).mean() == pytest.approx(0.0, abs=0.015)


def test_a_small_part_of_the_length_moves_it_little() -> None:
    wander = Wander(len(EVERYBODY), 0.5, rng(6))
    steps = wander.at(1.001, EVERYBODY) - wander.at(1.0, EVERYBODY)
    assert (steps**2).mean() == pytest.approx(2 * (1 - math.exp(-1e-3 / 0.5)), rel=0.1)


def test_the_same_generator_gives_the_same_interruptions_and_obstructions() -> None:
    place = SH.model_copy(update={"obstructed_share": 0.5, "obstruction_db": 3.0})

    def draw(seed: int) -> list[list[float]]:
        drawn = obstructions_db(place, 30, rng(seed)), interruptions(Interruptions(), 30, 1000.0, rng(seed))
        return [one.tolist() for one in drawn]

    assert draw(1) == draw(1)
    assert all(one != other for one, other in zip(draw(1), draw(2), strict=True))


def test_interruptions_drawn_farther_begin_as_those_drawn_nearer() -> None:
    near, far = (interruptions(Interruptions(), 20, horizon_s, rng(9)) for horizon_s in (1000.0, 5000.0))
    assert far.shape[1] > near.shape[1]
    assert far[:, : near.shape[1]].tolist() == near.tolist()


def test_interruptions_have_their_lengths_and_share_of_time() -> None:
    kind = Interruptions()
    drawn = interruptions(kind, 1500, 30_000.0, rng(10))
    begins, ends = drawn[..., 0], drawn[..., 1]
    assert (ends.max(axis=1) >= 30_000).all()
    assert (begins[:, 1:] > ends[:, :-1]).all()
    ups = begins - np.concatenate([np.zeros((1500, 1)), ends[:, :-1]], axis=1)
    downs = ends - begins
    assert ups.mean() == pytest.approx(300.0, rel=0.01)
    assert ups.std() == pytest.approx(300.0, rel=0.01)
    assert np.median(downs) == pytest.approx(3.46, rel=0.02)
    assert np.quantile(downs, [0.025, 0.975]) == pytest.approx([0.2, 60.0], rel=0.04)
    assert downs.mean() == pytest.approx(kind.mean_down_s, rel=0.02)
    down_s = np.diff(np.clip(drawn, 100.0, 30_000.0)).sum() / 1500
    assert 1 - down_s / 29_900 == pytest.approx(kind.availability, abs=0.002)


def test_handovers_all_last_as_long() -> None:
    drawn = interruptions(Dynamics().handover, 20, 1000.0, rng(11))
    assert (drawn[..., 1] - drawn[..., 0]) == pytest.approx(np.full(drawn.shape[:2], 0.05), abs=1e-9)
    assert Dynamics().handover.mean_down_s == 0.05
