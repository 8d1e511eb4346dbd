"""Profiles of cells and slices: what is shipped, and which rule a wrong one breaks."""

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from edge.slices.profile import Profile, RrmRatio, Snssai, load_profile
from fedslice.core.config import dumps, validate
from fedslice.core.errors import UsageError

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "configs" / "slices").glob("*.toml"))
PLACE = {"kind": "InF-SL", "farthest_m": 250.0, "gnb_height_m": 1.5}
CELL = {"carrier_ghz": 3.7, "bandwidth_mhz": 40, "place": PLACE}
PLAIN: dict[str, Any] = {
    "cell": CELL,
    "slices": [
        {
            "name": "embb",
            "snssai": {"sst": 1},
            "fiveqi": 9,
            "down": {"rrm": {"min": 40}, "delay_ms": 4.0},
            "up": {"rrm": {"min": 40}, "delay_ms": 10.0},
        },
        {
            "name": "urllc",
            "snssai": {"sst": 2, "sd": "0f10ed"},
            "fiveqi": 82,
            "down": {"rrm": {"dedicated": 5, "min": 10, "max": 30}, "delay_ms": 3.0, "gfbr_bps": 1e6, "mfbr_bps": 2e6},
            "up": {"rrm": {"dedicated": 5, "min": 10, "max": 30}, "delay_ms": 3.0, "mcs_table": 3},
        },
    ],
}


def changed(**changes: Any) -> dict[str, Any]:
    """Return the plain profile with values at dotted places, `__` for a dot, changed."""
    tables = copy.deepcopy(PLAIN)
    for place, value in changes.items():
        at: Any = tables
        *parents, last = place.split("__")
        for part in parents:
            at = at[int(part)] if part.isdigit() else at.setdefault(part, {})
        at[last] = value
    return tables


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_profiles_are_read_and_read_back(path: Path) -> None:
    profile = load_profile(path)
    for dump in (profile.model_dump(), profile.model_dump(exclude_unset=True)):
        assert validate(Profile, tomllib.loads(dumps(dump)), "again") == profile
    for one in profile.slices:
        assert 0 < one.down.delay_ms < one.qos.delay_budget_ms
        assert min(profile.peak_bps(one, "down"), profile.peak_bps(one, "up")) > 1e6


def test_these_are_shipped() -> None:
    assert [path.stem for path in SHIPPED] == ["campus-n78-100", "factory-n78-40", "rural-20", "testbed-33"]


def test_the_factory_is_the_one_of_the_experiments() -> None:
    factory = load_profile(SHIPPED[1])
    assert (factory.cell.prbs, factory.cell.down_share, factory.cell.up_share) == (106, 0.74, 0.23)
    shares = {s.name: (s.snssai.sst, s.up.rrm.dedicated, s.up.rrm.min, s.up.rrm.max) for s in factory.slices}
    assert shares == {"embb": (1, 0, 40, 100), "urllc": (2, 5, 10, 30), "mmtc": (3, 0, 5, 20)}
    embb, urllc, mmtc = factory.slices
    assert [s.down.rrm == s.up.rrm for s in factory.slices] == [True] * 3
    assert urllc.up.mcs_table == urllc.down.mcs_table == 3
    assert mmtc.terminal.power_dbm == 20.0
    assert factory.most_prbs(mmtc, "up") == pytest.approx(21.2)
    assert round(factory.peak_bps(embb, "down") / 1e6) == 336
    assert round(factory.peak_bps(embb, "up") / 1e6) == 42
    assert factory.link(embb, "up").power_limited
    assert not factory.link(embb, "down").power_limited


def test_a_terminal_has_no_more_than_its_bandwidth() -> None:
    profile = Profile.model_validate(changed(slices__0__terminal={"bandwidth_mhz": 20}))
    assert profile.most_prbs(profile.slices[0], "down") == 51


@pytest.mark.parametrize(
    ("sst", "sd", "text"), [(1, "0F10ED", "1-0F10ED"), (255, "00000a", "255-00000A"), (0, "ffffff", "0"), (1, "FFFFFF", "1")]
)
def test_a_slice_id_as_text(sst: int, sd: str, text: str) -> None:
    assert str(Snssai(sst=sst, sd=sd)) == text


def test_no_sd_and_its_reserved_value_are_the_same() -> None:
    assert Snssai(sst=1) == Snssai(sst=1, sd="ffffff")
    assert str(Snssai(sst=1)) == "1"


@pytest.mark.parametrize("triple", [(6, 5, 10), (0, 11, 10), (50, 40, 30)])
def test_ratios_out_of_order_are_refused(triple: tuple[int, int, int]) -> None:
    dedicated, least, most = triple
    with pytest.raises(ValueError, match="dedicated <= min <= max; given: "):
        RrmRatio(dedicated=dedicated, min=least, max=most)
    assert RrmRatio() == RrmRatio(dedicated=0, min=0, max=100)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (changed(slices__1__name="embb"), "slices: the name embb is used twice"),
    (changed(slices__1__snssai={"sst": 1}), "slices: the S-NSSAI 1 is used twice"),
    (changed(slices__0__snssai={"sst": 256}), "slices.0.snssai.sst: Input should be less than or equal to 255"),
    (changed(slices__0__snssai={"sst": 1, "sd": "12"}), "slices.0.snssai.sd"),
    (changed(slices__0__snssai={"sst": 1, "sd": "GGGGGG"}), "slices.0.snssai.sd"),
    (changed(slices__0__snssai={"sst": -1}), "slices.0.snssai.sst: Input should be greater than or equal to 0"),
    (changed(slices__0__up__rrm={"min": 95}), "the min of all slices sum to at most 100; up: 105"),
    (
        changed(slices__0__down__rrm={"dedicated": 96, "min": 96}),
        "the dedicated of all slices sum to at most 100; down: 101",
    ),
    (changed(slices__0__down__rrm={"max": 101}), "slices.0.down.rrm.max: Input should be less than or equal to 100"),
    (changed(slices__0__down__rrm={"min": 50, "max": 49}), "slices.0.down.rrm: TS 28.541 clause 4.3.36: dedicated <= min"),
    (changed(slices__0__fiveqi=68), "slices.0.fiveqi: 5QI 68 is not in TS 23.501 table 5.7.4-1; the nearest there is 67"),
    (changed(slices__0__up__gfbr_bps=1e6), "only GBR flows have a GFBR, and 5QI 9 is not one"),
    (changed(slices__1__down__gfbr_bps=0.0), "5QI 82 is Delay-critical GBR, so it needs a gfbr_bps down or up"),
    (changed(slices__1__down__gfbr_bps=3e6), "TS 23.501 clause 5.7.2.5: GFBR <= MFBR; given: 3e+06, 2e+06 bit/s"),
    (changed(slices__1__down__slice_mbr_bps=5e5), "UE-Slice-MBR holds every GFBR"),
    (changed(slices__1__down__ue_ambr_bps=5e6), "UE-AMBR bounds non-GBR flows; 5QI 82 has mfbr_bps"),
    (changed(slices__0__down__mfbr_bps=5e6), "MFBR bounds GBR flows; 5QI 9 has ue_ambr_bps"),
    (changed(slices__1__up__delay_ms=10.0), "5QI 82 has 10 ms, and the idle link alone takes 10 ms"),
    (changed(slices__1__up__gfbr_bps=50e6), "slice urllc peaks at 1.26e+07 bit/s up, below its GFBR of 5e+07"),
    (changed(slices__0__arp={"priority": 16}), "slices.0.arp.priority"),
    (changed(slices__0__arp={"priority": 0}), "slices.0.arp.priority"),
    (changed(slices__0__admission={"max_ues": 0}), "slices.0.admission.max_ues"),
    (changed(slices__0__terminal={"bandwidth_mhz": 33}), "a carrier of 33 MHz is not in TS 38.101-1 table 5.3.2-1"),
    (changed(slices__0__weight=0.0), "slices.0.weight"),
    (changed(slices=[]), "slices"),
    (changed(cell__bandwidth_mhz=45), "cell.bandwidth_mhz: a carrier of 45 MHz is not in"),
    (changed(cell__down_share=0.8, cell__up_share=0.3), "cell: TDD: down_share + up_share <= 1; given: 0.8 + 0.3"),
    (changed(cell__subcarrier_khz=15), "cell.subcarrier_khz"),
    (changed(cell__carrier_ghz=28.0), "cell.carrier_ghz"),
    (changed(cell__carrier_ghz=float("nan")), "cell.carrier_ghz"),
    (changed(cell__power_dbm=float("inf")), "cell.power_dbm"),
    (changed(cell__power_dbm=25_000.0), "cell.power_dbm: Input should be less than or equal to 80 (given: 25000.0)"),
    (changed(cell__power_dbm=-201.0), "cell.power_dbm: Input should be greater than or equal to -200"),
    (changed(slices__0__terminal={"power_dbm": 80.5}), "slices.0.terminal.power_dbm: Input should be less than or equal to 80"),
    (changed(cell__receive_gain_db=61.0), "cell.receive_gain_db: Input should be less than or equal to 60"),
    (changed(cell__receive_gain_db=-100.5), "cell.receive_gain_db: Input should be greater than or equal to -100"),
    (changed(cell__place__farthest_m=700.0), "cell.place: TR 38.901 table 7.4.1-1: InF-SL holds from 1 to 600 m"),
    (changed(cell__place__nearest_m=300.0), "given: 300 to 250 m"),
    (changed(cell__place__clutter_density=0.4), "InF-SL with clutter_density 0.4; sparse means below 0.4"),
    (changed(cell__place__kind="InF-DL"), "InF-DL with clutter_density 0.3; dense means 0.4 or more"),
    (changed(cell__place__kind="InF-SH"), "ue_height_m < clutter_height_m < gnb_height_m"),
    (changed(cell__place__gnb_height_m=8.0), "InF-SL has the antenna in the clutter"),
    (changed(cell__place={"kind": "UMa", "farthest_m": 500.0, "gnb_height_m": 25.0, "ue_height_m": 14.0}), "up to 13 m"),
    (changed(cell__place={"kind": "UMi", "farthest_m": 500.0, "gnb_height_m": 1.0}), "UMi needs gnb_height_m above 1 m"),
    (changed(cell__plaze={}), "unknown key cell.plaze; did you mean place?"),
    (changed(slices__0__up__rrm={"mni": 3}), "unknown key slices.0.up.rrm.mni; did you mean min?"),
]


@pytest.mark.parametrize(("tables", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_profile_that_breaks_a_rule_is_told_which(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        validate(Profile, tables, "cell.toml")
    assert message in str(refusal.value)


def test_the_plain_profile_is_fine() -> None:
    profile = validate(Profile, PLAIN, "cell.toml")
    assert str(profile.slices[1].snssai) == "2-0F10ED"
    assert profile.slices[1].qos.burst_bytes == 255
    assert profile.slices[0].arp.priority == 8
