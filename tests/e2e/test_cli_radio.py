"""The radio from the command line: its tables, its example, and what a user gets wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_cli import QUICKSTART, fedslice, rounds_of

SLICING = "configs/slicing.toml"


def test_slices_are_shown_with_what_each_node_gets() -> None:
    done = fedslice("slices", SLICING)
    assert done.returncode == 0, done.stderr
    for word in ("InF-SL", "106 PRBs", "embb", "Delay-critical GBR", "5-10-30", "0-5-20", "336 M", "41.9 M"):
        assert word in done.stdout
    found = json.loads(fedslice("slices", SLICING, "--json").stdout)
    assert len(found["nodes"]) == 20
    assert len(found["background"]) == 5
    assert {row["name"]: row["snssai"] for row in found["slices"]} == {"embb": "1", "urllc": "2", "mmtc": "3"}


def test_steering_ends_rounds_sooner_and_says_how_near_they_came(tmp_path: Path) -> None:
    last = {}
    for policy in ("static", "quorum"):
        folder = tmp_path / policy
        done = fedslice("simulate", SLICING, "--set", f"slicing.policy={policy}", "--out", str(folder), "--quiet")
        assert done.returncode == 0, done.stderr
        records: list[dict[str, Any]] = list(rounds_of(folder))
        last[policy] = records[-1]["virtual_s"]
        assert all(8 <= len(record["replied"]) <= 10 for record in records)  # more than 8 where several come at once
        assert all(record["bound_s"] > 0 for record in records)
        assert last[policy] == pytest.approx(sum(record["round_s"] for record in records))
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        assert sum(event["event"] == "radio" for event in events) == 15
    assert last["quorum"] < 0.9 * last["static"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("network.profile=nope", "shipped are campus-n78-100, factory-n78-40"),
        ("network.profile=campus-n78-100", "is on slice mmtc, and the cell has embb, federation, urllc; give [[nodes.profiles]]"),
        ("network.cell.bandwidth_mhz=41", "a carrier of 41 MHz is not in TS 38.101-1"),
        ("network.cell.place.clutter_density=0.5", "sparse means below 0.4"),
        ("slicing.policy=min-max", "did you mean min_max?"),
        ("slicing.policy=quorum", "federation.close_at"),
        ("federation.close_at=0", "greater than 0"),
    ],
)
def test_what_is_wrong_is_named(setting: str, words: str) -> None:
    done = fedslice("check", QUICKSTART, "--set", setting)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
