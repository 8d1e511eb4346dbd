"""The report says what the logs say: no more, no less, and nothing when there is nothing."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from fedslice.core.errors import UsageError
from fedslice.core.records import Rejection
from fedslice.report import figures, measures, tables, write_report
from fedslice.report.page import render
from fedslice.report.runs import Run, read_run, read_runs
from tests.fake_runs import fake_run

EVIL = "<img src=x onerror=alert(1)>&\"'"


def body(html: str) -> str:
    """Return the page without Plotly's own source."""
    assert html.count(get_plotlyjs()) == 1
    return html.replace(get_plotlyjs(), "")


def column(figure: Any, axis: str, trace: int = 0) -> list[Any]:
    return list(figure.to_dict()["data"][trace][axis])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    fake_run(tmp_path / "one", void=[4], gaps=[6, 7], refuse=0.3)
    return read_run(tmp_path / "one")


def logged(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / "rounds.jsonl").read_text().splitlines()]


def test_progress_shows_the_records_and_leaves_gaps(run: Run) -> None:
    records = logged(run)
    by_round, by_time, by_bytes = (figures.progress([run], "f1", against) for against in ("round", "time", "bytes"))
    assert column(by_round, "x") == [record["round"] for record in records]
    for drawn in (by_round, by_time, by_bytes):
        assert column(drawn, "y") == [record["evaluate"]["f1"] for record in records]
    assert column(by_round, "y")[5:7] == [None, None]
    assert column(by_time, "x") == [record["virtual_s"] for record in records]
    assert by_time.layout.xaxis.title.text == "virtual time (s)"
    total = sum(record["bytes_down"] + record["bytes_up"] for record in records)
    assert column(by_bytes, "x")[-1] == total / 1e6
    assert by_bytes.layout.xaxis.title.text.endswith("(MB)")


def test_a_round_without_evaluation_is_passed_over(run: Run) -> None:
    for record in run.rounds[1::2]:
        record.evaluate.clear()
    assert column(figures.progress([run], "f1", "round"), "x") == list(range(1, 31, 2))


def test_loss_of_training_stands_in_where_none_was_evaluated(run: Run) -> None:
    for record in run.rounds:
        record.evaluate.clear()
    losses = [record["train"]["loss"] for record in logged(run)]
    assert column(figures.progress([run], "loss", "round"), "y") == losses


def test_cohort_shows_what_became_of_each_node(run: Run) -> None:
    table = figures.cohort(run).data[0].z
    for number, record in enumerate(logged(run)):
        reasons = {item["node"]: item["reason"] for item in record["rejected"]}
        for row, node in enumerate(run.nodes):
            if node not in record["selected"]:
                expected = measures.Outcome.NOT_SELECTED
            elif node in record["replied"]:
                expected = measures.Outcome.VOID if record["void"] else measures.Outcome.FOLDED
            else:
                silent = reasons[node] == "no reply before the deadline"
                expected = measures.Outcome.NO_REPLY if silent else measures.Outcome.REFUSED
            assert table[row][number] == expected


def test_a_second_answer_does_not_undo_the_first(run: Run) -> None:
    node = run.rounds[0].replied[0]
    run.rounds[0].rejected.append(Rejection(node=node, reason="duplicate: the node answered before"))
    assert measures.outcomes(run)[node][0] == measures.Outcome.FOLDED
    assert "duplicate" in measures.reasons([run])


def test_every_refusal_is_counted_once(run: Run) -> None:
    reasons = measures.reasons([run])
    drawn = figures.refusals(run, reasons)
    refused = [item for record in logged(run) for item in record["rejected"]]
    assert refused
    for trace, reason in enumerate(reasons):
        assert sum(column(drawn, "y", trace)) == sum(item["reason"].split(":")[0] == reason for item in refused)
    totals = re.findall(r"<td>(\d+)</td></tr>", tables.refused_nodes(run, reasons))
    assert sum(map(int, totals)) == len(refused)


def test_rare_reasons_share_a_name(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", refuse=0.9, reasons=[f"reason {number}" for number in range(20)])
    run = read_run(tmp_path / "one")
    reasons = measures.reasons([run])
    assert len(reasons) == measures.MAX_REASONS + 1
    assert reasons[-1] == measures.OTHER_REASONS
    drawn = figures.refusals(run, reasons)
    shown = sum(sum(column(drawn, "y", trace)) for trace in range(len(reasons)))
    assert shown == sum(len(record.rejected) for record in run.rounds)


def test_nodes_stand_from_worst_to_best(run: Run) -> None:
    drawn = figures.node_metric([run], "f1")
    assert column(drawn, "y") == sorted(known.metrics["f1"] for known in run.nodes.values())
    losses = column(figures.node_metric([run], "loss"), "y")
    assert losses == sorted(losses, reverse=True)
    folded = column(figures.node_participation([run]), "y")
    assert sum(folded) == sum(len(record["replied"]) for record in logged(run) if not record["void"])


def test_slices_add_up(run: Run) -> None:
    names = measures.slice_names([run])
    carried, busy = figures.slice_bytes(run, names), figures.slice_busy(run, names)
    assert carried.layout.yaxis.title.text == "down and up (kB)"
    for number, record in enumerate(logged(run)):
        total = sum(column(carried, "y", trace)[number] for trace in range(len(names)))
        assert total * 1e3 == pytest.approx(record["bytes_down"] + record["bytes_up"])
        busy_s = sum(column(busy, "y", trace)[number] for trace in range(len(names)))
        assert busy_s == pytest.approx(sum(use["busy_s"] for use in record["slices"].values()))


def test_page_of_three_runs_compares_them(tmp_path: Path) -> None:
    fake_run(tmp_path / "a", name="same")
    fake_run(tmp_path / "b", name="same", policy="loss_and_speed", seed=2)
    fake_run(tmp_path / "c", name="third", seed=3, finished=False)
    out = write_report([tmp_path / name for name in "abc"], tmp_path / "deep" / "report.html")
    html = body(out.read_text(encoding="utf-8"))
    assert "3 runs compared" in html
    # Runs of one name go by their folders.
    assert [run.label for run in read_runs([tmp_path / name for name in "abca"])] == ["a", "b", "third", "a (2)"]
    assert "selection.policy" in html
    assert "training.lr" not in html.split("Settings that differ")[1].split("</table>")[0]
    assert "30 of 40" in html
    assert "No summary.json" in html
    # Six of progress, a cohort, refusals, two of slices and four of the radio for each run, two of fairness, two of the radio.
    assert html.count("Plotly.newPlot") == 6 + 3 * 8 + 2 + 2
    assert html.count("data-toggle") == 3


def test_page_is_the_same_each_time(tmp_path: Path) -> None:
    fake_run(tmp_path / "one")
    first = write_report([tmp_path / "one"], tmp_path / "1.html").read_bytes()
    assert write_report([tmp_path / "one"], tmp_path / "2.html").read_bytes() == first


def test_page_loads_nothing(tmp_path: Path) -> None:
    fake_run(tmp_path / "one")
    html = body(write_report([tmp_path / "one"], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?:""", html)
    assert "default-src 'none'" in html


def test_names_are_escaped(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", name=EVIL, slices=[EVIL], reasons=[EVIL], policy=EVIL, refuse=0.5)
    fake_run(tmp_path / "two", name="plain")
    for folders in ([tmp_path / "one"], [tmp_path / "one", tmp_path / "two"]):
        html = body(write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8"))
        assert "<img" not in html
        assert "&lt;img src=x" in html
    # Plotly has a markup of its own, so its texts are escaped as well.
    assert "&lt;img" in figures.progress(read_runs([tmp_path / "one"]), "f1", "round").data[0].name


def test_no_refusals_is_said(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", refuse=0)
    assert "None: no update was refused" in render(read_runs([tmp_path / "one"]))


def test_a_run_without_finished_rounds(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", rounds=0, finished=False)
    fake_run(tmp_path / "two")
    (tmp_path / "one" / "rounds.jsonl").unlink()
    html = body(render(read_runs([tmp_path / "one"])))
    assert "No round has finished" in html
    assert "Plotly.newPlot" not in html
    assert "0 of 10" in html
    assert body(render(read_runs([tmp_path / "two", tmp_path / "one"]))).count("Plotly.newPlot") == 6 + 8 + 2 + 2


def test_a_cut_line_is_left_out_and_noted(tmp_path: Path) -> None:
    fake_run(tmp_path / "one")
    path = tmp_path / "one" / "rounds.jsonl"
    path.write_text(path.read_text()[:-40])
    run = read_run(tmp_path / "one")
    assert len(run.rounds) == 29
    assert run.notes == ["rounds.jsonl: the last line was cut short and is left out."]


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    fake_run(tmp_path / "one")
    path = tmp_path / "one" / "rounds.jsonl"
    lines = path.read_text().splitlines()
    lines[2] = lines[2][:50]
    lines[4] = '{"round": 5}'
    path.write_text("\n".join([*lines, lines[-1]]) + "\n")
    run = read_run(tmp_path / "one")
    assert [record.round for record in run.rounds] == [1, 2, 4, *range(6, 31)]
    assert run.notes == [f"rounds.jsonl: line {number} cannot be read and is left out." for number in (3, 5)]


def test_void_rounds_are_counted(run: Run) -> None:
    assert re.search(r"<td>1</td><td>30</td><td>1</td>", tables.results([run]))


@pytest.mark.parametrize(("direction", "expected"), [("higher", "0.9000"), ("lower", "0.2000")])
def test_the_best_value_stands_out(tmp_path: Path, direction: str, expected: str) -> None:
    for name, value in (("a", 0.2), ("b", 0.9), ("c", None)):
        fake_run(tmp_path / name)
        (tmp_path / name / "events.jsonl").write_text(json.dumps({"event": "began", "better": {"f1": direction}}) + "\n")
        summary = {"metrics": {"f1": value}}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    table = tables.results(read_runs([tmp_path / name for name in "abc"]))
    assert re.findall(r'<td class="best">([^<]*)</td>', table) == [expected]


def test_fairness_names_the_worst_and_the_best_node(run: Run) -> None:
    scores = {node: known.metrics["f1"] for node, known in run.nodes.items()}
    table = tables.fairness([run], "f1")
    for node in (min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)):
        assert f"<td>{scores[node]:.4f} (node {node})</td>" in table


def test_long_ids_are_shortened_only_where_they_stay_apart(run: Run) -> None:
    for node in (2**60 + 1, 2**61 + 7):
        run.nodes[node] = run.nodes[0]
    assert figures.node_labels(run)[-2:] == ["…46977", "…93959"]
    run.nodes[10**12 + 46977] = run.nodes[0]
    assert figures.node_labels(run)[-3:-1] == [str(2**60 + 1), str(2**61 + 7)]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such run folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"not a run folder, it has no config\.toml and no rounds\.jsonl"):
        read_run(tmp_path)
    with pytest.raises(UsageError, match="at least one"):
        write_report([], tmp_path / "report.html")
    fake_run(tmp_path / "one")
    (tmp_path / "one" / "config.toml").unlink()
    with pytest.raises(UsageError, match=r"one: not a run folder, it has no config\.toml$"):
        read_run(tmp_path / "one")


def test_a_page_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    fake_run(tmp_path / "one")
    with pytest.raises(UsageError, match="cannot write the report"):
        write_report([tmp_path / "one"], tmp_path)


def test_a_large_run_is_quick_and_not_heavy(tmp_path: Path) -> None:
    fake_run(tmp_path / "one", rounds=500, nodes=200)
    start = time.perf_counter()
    out = write_report([tmp_path / "one"], tmp_path / "report.html")
    assert time.perf_counter() - start < 10
    assert out.stat().st_size < len(get_plotlyjs()) + 1_000_000


def test_the_report_needs_neither_torch_nor_flower() -> None:
    code = "import sys, fedslice.report; print(sorted({'torch', 'flwr', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
