"""The network of a run: where its cell comes from, who is let in, and how long an exchange takes at the least."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.slices import Background, Network, NetworkConfig, NodeProfile, NodesConfig, profiles
from edge.slices.profile import load_profile
from fedslice.core.config import dumps, load, validate
from fedslice.core.errors import UsageError
from fedslice.settings import Settings
from tests.cells import DOWN_S, NEAR_S, PRBS, STILL, UP_BPS, UP_S, a_cell, a_slice, alone_down_s, alone_up_s, demand, network

SHIPPED = Path(__file__).resolve().parents[2] / "configs" / "slices"
NAMES = sorted(path.stem for path in SHIPPED.glob("*.toml"))
MB = 10**6


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_comes_by_its_name_or_its_path(name: str) -> None:
    by_name = NetworkConfig.model_validate({"profile": name})
    shipped = load_profile(SHIPPED / f"{name}.toml")
    assert (by_name.cell, by_name.slices, by_name.background, by_name.profile) == (shipped.cell, shipped.slices, [], "")
    assert NetworkConfig.model_validate({"profile": str(SHIPPED / f"{name}.toml")}) == by_name


def test_without_a_name_it_is_the_factory() -> None:
    factory = NetworkConfig.model_validate({"profile": "factory-n78-40"})
    assert NetworkConfig.model_validate({}) == NetworkConfig.model_validate({"profile": ""}) == factory


def test_what_stands_beside_the_name_goes_before() -> None:
    tables = {"profile": "rural-20", "cell": {"power_dbm": 40.0, "place": {"farthest_m": 900.0}, "dynamics": {"fading_db": 1.0}}}
    changed, rural = NetworkConfig.model_validate(tables), NetworkConfig.model_validate({"profile": "rural-20"})
    assert (changed.cell.power_dbm, changed.cell.place.farthest_m, changed.cell.dynamics.fading_db) == (40.0, 900.0, 1.0)
    place = rural.cell.place.model_copy(update={"farthest_m": 900.0})
    dynamics = rural.cell.dynamics.model_copy(update={"fading_db": 1.0})
    assert changed.cell == rural.cell.model_copy(update={"power_dbm": 40.0, "place": place, "dynamics": dynamics})
    assert changed.slices == rural.slices
    # Slices are a list: whoever writes some writes all of them; the cell still comes from the file.
    own = NetworkConfig.model_validate({"profile": "rural-20", "cell": {"power_dbm": 40.0}, "slices": [a_slice("mine", 1)]})
    assert [one.name for one in own.slices] == ["mine"]
    assert own.cell == rural.cell.model_copy(update={"power_dbm": 40.0})


@pytest.mark.parametrize(
    "network_table",
    [
        {},
        {"profile": "campus-n78-100", "cell": {"scheduler": "proportional_fair"}},
        {"background": [{"slice": "embb", "num_users": 3, "up_bps": math.inf}]},
    ],
)
def test_a_resolved_config_reads_back_equal_and_needs_no_file(
    network_table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = validate(Settings, {"network": network_table}, "t")
    (tmp_path / "config.toml").write_text(dumps(settings.model_dump()))
    monkeypatch.setattr("edge.slices.model._SHIPPED", "nowhere")
    assert validate(Settings, load(tmp_path / "config.toml"), "dump") == settings


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"profile": "rurl-20"}, [f"network.profile = 'rurl-20': there is no file {SHIPPED.name}"]),
        ({"profile": "rural"}, ["network.profile = 'rural'", "campus-n78-100, factory-n78-40, rural-20", "ends in .toml"]),
        ({"profile": "no/where.toml"}, ["network.profile = 'no/where.toml': there is no file no/where.toml"]),
        ({"profile": 3}, ["network.profile: Input should be a valid string (given: 3)"]),
        ({"cell": {"power": 3.0}}, ["unknown key network.cell.power; did you mean power_dbm?"]),
        ({"cell": {"place": {"farthest_m": 1e4}}}, ["network.cell.place", "InF-SL holds from 1 to 600 m"]),
        ({"background": [{"slice": "x"}]}, ["network: background: no slice is called x; there are embb, urllc, mmtc"]),
        ({"background": [{"slice": "embb", "up_bps": math.nan}]}, ["network.background.0.up_bps"]),
        ({"background": [{"slice": "embb", "num_users": 0}]}, ["network.background.0.num_users"]),
        ({"spread_db": 2.0}, ["unknown key network.spread_db; known here: background, cell, profile, slices"]),
    ],
)
def test_a_wrong_network_is_told_what_there_is(table: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        validate(Settings, {"network": table}, "my.toml")
    for part in words:
        assert part.replace(f"no file {SHIPPED.name}", "no file configs/slices/rurl-20.toml") in str(refusal.value)


def test_an_exchange_alone_at_the_median() -> None:
    cell = a_cell(a_slice("embb", 1), a_slice("limited", 2, {"ue_ambr_bps": 2e6}), dynamics={**STILL, "fading_db": 9.0})
    net = network(cell, ("embb", "limited"))
    assert net.alone_s(demand(0, MB, 3.0, 2 * MB)) == pytest.approx(
        DOWN_S + alone_down_s(MB) + 3.0 + UP_S + alone_up_s(2 * MB), abs=NEAR_S
    )
    assert net.alone_s(demand(1, 0, 0.0, MB)) == pytest.approx(DOWN_S + UP_S + 4.0, abs=NEAR_S)
    still = network(a_cell(), ("embb",))
    traffic = still.carry([demand(0, MB, 3.0, 2 * MB)], 0.0)
    parts = traffic.download_s + traffic.compute_s + traffic.upload_s
    assert parts == pytest.approx([still.alone_s(demand(0, MB, 3.0, 2 * MB))], abs=NEAR_S)
    deaf = network(a_cell(a_slice("embb", 1, terminal={"power_dbm": -200.0})))
    assert deaf.alone_s(demand(0, 0, 0.0, 1)) == math.inf


def test_a_node_by_its_power_alone_in_the_cell() -> None:
    """Far away more blocks bring less and less: the rate is that of the link in all of them."""
    far = a_cell(place={"kind": "InF-SL", "nearest_m": 10.0, "farthest_m": 600.0, "gnb_height_m": 1.5})
    net = network(far, distance_m=400.0)
    _, up_db = net.terminals.sinr_db(0.0, np.arange(1))
    rate_bps = float(far.link(far.slices[0], "up").rate_bps(float(PRBS), up_db[0]))
    assert 1e5 < rate_bps < 0.5 * PRBS * UP_BPS
    assert net.alone_s(demand(0, 0, 0.0, MB)) == pytest.approx(8e6 / rate_bps + DOWN_S + UP_S, abs=NEAR_S)


def test_who_is_out_of_reach_is_told() -> None:
    cell = a_cell(
        a_slice("near", 1),
        a_slice("mute", 2, terminal={"power_dbm": -200.0}),
        background=[{"slice": "mute", "up_bps": 1e3}],
    )
    net = network(cell, ("mute", "near", "mute", "near"))
    assert net.out_of_reach == [0, 2]  # they hear, and are not heard; others are of no account
    assert (net.alone_bps["down"] > 0.0).tolist() == [True, True, True, True, False]
    assert network(cell, ("near",)).out_of_reach == []
    silent = a_cell(a_slice("near", 1), power_dbm=-200.0)
    assert network(silent, ("near",)).out_of_reach == [0]


def test_a_control_message_waits_for_what_others_offer() -> None:
    def waits_s(net: Network) -> list[Any]:
        return [(net.messages(one, "down")[0].total_s, net.messages(one, "up")[0].total_s) for one in net.config.slices]

    idle = network(a_cell(a_slice("a", 1), a_slice("b", 2)), ("a", "b"))
    assert waits_s(idle) == [pytest.approx((DOWN_S, UP_S), abs=NEAR_S)] * 2
    offered = [{"slice": "a", "num_users": 2, "up_bps": 0.2 * PRBS * UP_BPS}, {"slice": "a", "up_bps": math.inf}]
    cell = a_cell(a_slice("a", 1, {"rrm": {"min": 50}}), a_slice("b", 2), background=offered)
    # Packets of 8,000 bits over half the cell, that is loaded by 80 percent: M/D/1 waits load / 2 (1 - load) of a packet.
    wait_s = 8000 / (0.5 * PRBS * UP_BPS) * 0.8 / (2 * 0.2)
    assert wait_s > 100 * NEAR_S
    assert waits_s(network(cell, ("a", "b"))) == [
        pytest.approx((DOWN_S, UP_S + wait_s), abs=NEAR_S),
        pytest.approx((DOWN_S, UP_S), abs=NEAR_S),
    ]
    full = a_cell(a_slice("a", 1, {"rrm": {"max": 10}}), background=[{"slice": "a", "up_bps": 0.11 * PRBS * UP_BPS}])
    assert waits_s(network(full, ("a",))) == [(pytest.approx(DOWN_S, abs=NEAR_S), math.inf)]


def test_who_is_where_and_who_is_let_in() -> None:
    net = network(a_cell(a_slice("a", 1), a_slice("b", 2)), ("b", "a"))
    assert [net.slice_of(node).name for node in (0, 1)] == ["b", "a"]
    with pytest.raises(ValueError, match=r"nodes.profiles: n is on slice wifi, and the cell has a, b; give .* that fit it"):
        network(net.config, ("wifi",))
    few = a_cell(a_slice("a", 1, admission={"max_ues": 2}))
    assert len(network(few, ("a", "a")).outcomes) == 2
    with pytest.raises(ValueError, match=r"network: node 2 is not admitted: 5GMM cause #62: slice a has its 2 terminals"):
        network(few, ("a", "a", "a"))
    crowded = few.model_copy(update={"background": [Background(slice="a", num_users=2)]})
    with pytest.raises(ValueError, match=r"background user 1 is not admitted"):
        network(crowded, ("a",))


@pytest.mark.parametrize(
    ("shares", "count", "dealt"),
    [
        ([5, 2, 3], 10, [5, 2, 3]),
        ([1, 1, 1], 10, [4, 3, 3]),
        ([5, 2, 3], 1, [1, 0, 0]),
        ([0.5, 0.25, 0.25], 7, [3, 2, 2]),  # 3.5, 1.75, 1.75
        ([1e-3, 1, 1], 5, [0, 3, 2]),
        ([1, 0.6, 0.4], 3, [1, 1, 1]),  # 1.5, 0.9, 0.6
    ],
)
def test_profiles_are_dealt_by_largest_remainder(shares: list[float], count: int, dealt: list[int]) -> None:
    kinds = [NodeProfile(name=f"p{i}", slice="embb", share=share) for i, share in enumerate(shares)]
    found = [p.name for p in profiles(NodesConfig(count=count, profiles=kinds), 0)]
    assert [found.count(f"p{i}") for i in range(3)] == dealt


def test_who_is_what_belongs_to_the_seed() -> None:
    config = NodesConfig(count=50)
    assert profiles(config, 1) == profiles(config, 1)
    assert profiles(config, 1) != profiles(config, 2)
    assert sorted(p.name for p in profiles(config, 1)) == sorted(p.name for p in profiles(config, 2))


def test_two_networks_of_one_seed_are_the_same() -> None:
    nodes = profiles(NodesConfig(count=12), 0)
    asks = [demand(n, MB, 1.0, MB) for n in range(12)]
    one, again, other = (Network(NetworkConfig.model_validate({}), nodes, seed).carry(asks, 77.0).upload_s for seed in (1, 1, 2))
    assert one.tobytes() == again.tobytes()
    assert one.tolist() != other.tolist()
