"""The report's radio shows what the events tell: shares keep their means, gaps stay gaps, old runs stay readable."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from fedslice.report import radio, radio_measures
from fedslice.report.page import render, write_report
from fedslice.report.radio_log import read_radio
from fedslice.report.radio_measures import Shares
from fedslice.report.runs import Run, read_run
from tests.fake_runs import fake_run

ROUND: dict[str, Any] = {
    "event": "radio",
    "round": 1,
    "from_s": 10.0,
    "step_s": 0.5,
    "up": {"embb": [0.25, 0.5], "embb (background)": [0.125, 0.25]},
    "down": {"embb": [1.0]},
    "nodes": {"0": {"sinr_up_db": 20.0, "sinr_down_db": 30.0, "up_bps": 2e6, "down_bps": 4e7}},
    "latency_ms": {"embb": {"down": 4.5, "up": 11.0}},
}


def fake_log(folder: Path, *events: dict[str, Any]) -> Run:
    """Write a run whose radio is told by these events."""
    fake_run(folder, rounds=2, nodes=4, radio=False)
    with (folder / "events.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(ROUND | event) + "\n" for event in events)
    return read_run(folder)


def logged(run: Run) -> list[dict[str, Any]]:
    lines = (run.folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "radio"]


def drawn_at(figure: Any, axis: str) -> dict[str, list[Any]]:
    return {trace["name"]: list(trace[axis]) for trace in figure.to_dict()["data"]}


def uneven(steps: int, *gaps: int) -> Shares:
    """Return shares in steps of 0.3 s, with a pause of 7 s before each of the steps named."""
    rng = np.random.default_rng(5)
    starts = 2.0 + 0.3 * np.arange(steps, dtype=np.float64)
    for gap in gaps:
        starts[gap:] += 7.0
    return Shares(starts=starts, ends=starts + 0.3, of={name: rng.random(steps) / 2 for name in "ab"})


def test_few_steps_are_drawn_as_logged_and_a_gap_is_a_gap(tmp_path: Path) -> None:
    run = fake_log(tmp_path / "one", {}, {"round": 2, "from_s": 11.0}, {"round": 3, "from_s": 20.0})
    figure = radio.prb_shares(run, "up", radio.looks(["embb"], [run]))
    assert drawn_at(figure, "x")["embb"] == [10.0, 10.5, 11.0, 11.5, 12.0, 20.0, 20.5, 21.0]
    assert drawn_at(figure, "y")["embb"] == [25.0, 50.0, 25.0, 50.0, None, 25.0, 50.0, None]
    assert drawn_at(figure, "y")["embb (background)"] == [12.5, 25.0, 12.5, 25.0, None, 12.5, 25.0, None]
    assert drawn_at(figure, "text")["embb"] == [*[""] * 4, ", no exchange", "", "", ", no exchange"]
    assert figure.layout.yaxis.range == (0, 100)
    assert {trace.line.shape for trace in figure.data} == {"hv"}


@pytest.mark.parametrize("steps", [600, 601, 4321, 40_000])
def test_thinning_keeps_the_mean_over_time(steps: int) -> None:
    shares = uneven(steps)
    times, thinned = radio_measures.stairs(shares)
    assert len(times) <= radio_measures.MOST_POINTS
    for name, values in shares.of.items():
        assert math.isnan(thinned[name][-1])
        mean = (thinned[name][:-1] * np.diff(times)).sum() / (times[-1] - times[0])
        assert mean == pytest.approx(values.mean(), rel=1e-9)


def test_thinning_weighs_by_modelled_time_and_leaves_gaps() -> None:
    shares = uneven(3000, 700, 701, 2000)
    times, thinned = radio_measures.stairs(shares)
    means, covered = radio_measures.binned(shares, times)
    assert covered.sum() == pytest.approx(3000 * 0.3, rel=1e-12)
    for name, values in shares.of.items():
        assert (means[name] * covered).sum() == pytest.approx((values * 0.3).sum(), rel=1e-12)
        assert np.isnan(thinned[name][:-1]).tolist() == (covered == 0).tolist()
    # Bins of a second and a half fit four or so times in each pause of seven.
    empty = np.flatnonzero(covered == 0)
    assert len(empty) == pytest.approx(3 * 7 / np.diff(times)[0], abs=6)
    assert max(values.max() for values in means.values()) <= 0.5


def test_a_bin_across_a_pause_is_the_mean_of_what_was_modelled() -> None:
    shares = Shares(starts=np.array([0.0, 9.0]), ends=np.array([3.0, 10.0]), of={"a": np.array([0.2, 1.0])})
    means, covered = radio_measures.binned(shares, np.array([0.0, 1.0, 10.0]))
    assert covered.tolist() == [1.0, 3.0]
    assert means["a"] == pytest.approx([0.2, (2 * 0.2 + 1.0) / 3])


def test_a_last_step_that_reaches_into_the_next_round_is_cut(tmp_path: Path) -> None:
    run = fake_log(tmp_path / "one", {"round": 2, "from_s": 10.75}, {})
    shares = radio_measures.prb_shares(run, "up")
    assert shares.starts.tolist() == [10.0, 10.5, 10.75, 11.25]
    assert shares.ends.tolist() == [10.5, 10.75, 11.25, 11.75]


def test_who_is_not_named_had_nothing_and_an_unknown_share_hides_its_step(tmp_path: Path) -> None:
    second = {"round": 2, "from_s": 11.0, "up": {"urllc": [None, 0.75], "embb": [0.5, 0.25]}}
    shares = radio_measures.prb_shares(fake_log(tmp_path / "one", {}, second), "up")
    assert shares.starts.tolist() == [10.0, 10.5, 11.5]
    assert {name: values.tolist() for name, values in shares.of.items()} == {
        "embb": [0.25, 0.5, 0.25],
        "embb (background)": [0.125, 0.25, 0.0],
        "urllc": [0.0, 0.0, 0.75],
    }


def test_slices_keep_their_colours_and_background_lies_on_its_own(tmp_path: Path) -> None:
    run = fake_log(
        tmp_path / "one", {"up": {"urllc": [0.5], "voice (background)": [0.1], "embb": [0.2], "embb (background)": [0.1]}}
    )
    looks = radio.looks(["embb", "mmtc", "urllc"], [run])
    assert [name for name, _ in looks] == ["embb", "embb (background)", "urllc", "voice (background)"]
    colours = dict(looks)
    assert (colours["embb"], colours["urllc"]) == ("#009e73", "#cc79a7")
    assert colours["embb (background)"] == "rgba(0,158,115,0.45)"
    drawn = radio.prb_shares(run, "up", looks)
    assert [(trace.name, trace.fillcolor) for trace in drawn.data] == looks
    assert [trace.name for trace in radio.prb_shares(run, "down", looks).data] == ["embb"]


def test_round_time_stands_beside_its_bound(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", rounds=12)
    path = tmp_path / "one" / "rounds.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[3]["bound_s"], records[5]["round_s"] = None, None
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    run = read_run(tmp_path / "one")
    drawn = drawn_at(radio.round_time([run]), "y")
    assert (drawn["quickstart"][5], drawn["quickstart, T*"][3]) == (None, None)
    for name, key in (("quickstart", "round_s"), ("quickstart, T*", "bound_s")):
        assert drawn[name] == [record[key] and pytest.approx(record[key], rel=1e-3) for record in records]
    ratios = [record["round_s"] / record["bound_s"] for place, record in enumerate(records) if place not in (3, 5)]
    assert f"The median round took {np.median(ratios):.2f} times T*.</p>" in render([run])


def test_many_rounds_are_drawn_by_their_means(tmp_path: Path) -> None:
    records = fake_run(tmp_path / "one", rounds=250, nodes=4)
    run = read_run(tmp_path / "one")
    drawn = radio.round_time([run])
    assert drawn_at(drawn, "x")["quickstart"] == list(range(1, 251, 3))
    first = sum(record["round_s"] for record in records[:3]) / 3
    assert drawn_at(drawn, "y")["quickstart"][0] == pytest.approx(first, rel=1e-3)
    assert "Each point is the mean of 3 rounds." in render([run])


@pytest.mark.parametrize(("longest", "kind"), [(29.0, None), (31.0, "log")])
def test_round_times_far_apart_get_a_log_axis(tmp_path: Path, longest: float, kind: str | None) -> None:
    fake_run(tmp_path / "one", rounds=2, radio=False)
    path = tmp_path / "one" / "rounds.jsonl"
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    lines = [first | {"round_s": 1.0}, second | {"round_s": longest}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(tmp_path / "one")
    assert radio.round_time([run]).layout.yaxis.type == kind
    assert "could have taken, is not known" in render([run])


def test_nodes_are_means_over_rounds_and_what_is_unknown_is_left_out(tmp_path: Path) -> None:
    nodes = {
        "0": {"sinr_up_db": 10.0, "up_bps": 4e6, "sinr_down_db": None, "down_bps": 1e6},
        "1": {"sinr_up_db": 5.0, "up_bps": 0.0},
        "77": {"sinr_up_db": 5.0, "up_bps": 1e6},
    }
    run = fake_log(tmp_path / "one", {}, {"round": 2, "from_s": 30.0, "nodes": nodes})
    assert radio_measures.links(run, "up") == {0: (15.0, 3e6), 1: (5.0, 0.0), 77: (5.0, 1e6)}
    assert radio_measures.links(run, "down") == {0: (30.0, 2.05e7)}
    # A rate of zero has no place on a log axis, and node 77 is none of this run's.
    (trace,) = radio.links(run, "up", radio.looks(["embb"], [run])).data
    assert (trace.name, trace.x, trace.y) == ("embb", (15.0,), (3.0,))
    assert trace.text == ("node 0, embb, 200 examples",)


def test_latency_is_a_bar_a_slice_way_and_run(tmp_path: Path) -> None:
    run = fake_log(tmp_path / "one", {}, {"round": 2, "from_s": 30.0, "latency_ms": {"embb": {"down": 5.5, "up": None}}})
    fake_run(tmp_path / "old", radio=False)
    figure = radio.latency([run, read_run(tmp_path / "old")], radio.looks(["embb"], [run]))
    (trace,) = figure.data
    assert (trace.x, trace.y, trace.text) == ((["embb", "embb"], ["down", "up"]), (5.0, 11.0), ("5.0", "11.0"))


def test_latencies_far_apart_are_all_seen_and_long_names_stay_apart(tmp_path: Path) -> None:
    near, far = {"down": 2.0, "up": 4.0}, {"down": 100.0, "up": 500.0}
    run = fake_log(tmp_path / "one", {"latency_ms": {"a" * 20: near, "b" * 20: far}, "up": {}, "down": {}, "nodes": {}})
    figure = radio.latency([run], radio.looks([], [run]))
    assert figure.layout.yaxis.type == "log"
    bottom, top = figure.layout.yaxis.range
    assert 10**bottom == pytest.approx(1.0)
    assert 10**top > 500
    assert figure.data[0].x[0] == [*["a" * 13 + "…"] * 2, *["b" * 13 + "…"] * 2]
    run = fake_log(tmp_path / "two", {"latency_ms": {"a" * 20 + "1": near, "a" * 20 + "2": near}, "up": {}, "down": {}})
    figure = radio.latency([run], radio.looks([], [run]))
    assert figure.data[0].x[0] == [*["a" * 20 + "1"] * 2, *["a" * 20 + "2"] * 2]
    assert figure.layout.yaxis.range == pytest.approx((0, 1.15 * 4.0))


@pytest.mark.parametrize("flaw", [{"step_s": 0}, {"from_s": None}, {"up": {"a": [0.1], "b": []}}, {"nodes": 3}])
def test_a_flawed_event_costs_only_itself(tmp_path: Path, flaw: dict[str, Any]) -> None:
    run = fake_log(tmp_path / "one", {}, {"round": 2} | flaw, {"round": 3, "from_s": 40.0})
    assert [item.from_s for item in run.radio] == [10.0, 40.0]
    assert len(run.notes) == 1
    assert run.notes[0].startswith("events.jsonl: line ")


def test_the_later_of_two_logs_of_a_round_counts(tmp_path: Path) -> None:
    run = fake_log(tmp_path / "one", {}, {"from_s": 11.0})
    assert [item.from_s for item in read_radio(run.folder / "events.jsonl", [])] == [11.0]


def test_old_runs_say_so_quietly(tmp_path: Path) -> None:
    fake_run(tmp_path / "old", radio=False)
    fake_run(tmp_path / "new")
    old, new = read_run(tmp_path / "old"), read_run(tmp_path / "new")
    assert {(record.round_s, record.bound_s) for record in old.rounds} == {(None, None)}
    assert old.notes == []
    assert math.isnan(radio_measures.bound_ratio(old))
    assert "No radio was modelled, or nothing of it was logged." in render([old])
    both = render([old, new])
    assert "No radio was modelled" not in both
    assert both.count("Nothing of this was logged.") == 1
    assert len(logged(new)) == len(new.radio) == 30


def test_a_long_run_stays_light(tmp_path: Path) -> None:
    sizes = []
    for name, told in (("with", True), ("without", False)):
        fake_run(tmp_path / name, rounds=1000, nodes=40, name="long", radio=told)
        sizes.append(write_report([tmp_path / name], tmp_path / "report.html").stat().st_size)
    assert sizes[0] - sizes[1] < 150_000
    assert sizes[0] < len(get_plotlyjs()) + 1_000_000
