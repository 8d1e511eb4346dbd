"""The command line as a user types it: real processes, their exit codes and what they print."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART, DIGITS = "configs/quickstart.toml", "configs/digits.toml"
WITH_FLOWER = ["--set", "aggregation={rule='flower', strategy='flwr.serverapp.strategy.FedAvg'}"]
SUMMARY_KEYS = {
    "name", "seed", "rounds", "void_rounds", "metrics", "bytes_down", "bytes_up", "virtual_s", "wall_s", "joules",
    "rejected", "model_sha256", "run_dir",
}  # fmt: skip
ROUND_KEYS = {
    "round", "virtual_s", "wall_s", "selected", "replied", "rejected", "bytes_down", "bytes_up", "joules", "slices",
    "train", "evaluate", "void", "round_s", "bound_s",
}  # fmt: skip


def fedslice(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedslice", *arguments]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False, env=environment)


def rounds_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_quickstart_finds_anomalies_that_some_nodes_never_saw(tmp_path: Path) -> None:
    done = fedslice("simulate", QUICKSTART, "--out", str(tmp_path / "run"), "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary) == SUMMARY_KEYS
    assert summary["rounds"] == 30
    assert summary["wall_s"] < 60
    assert {"f1", "auc_roc", "auc_pr", "accuracy"} < set(summary["metrics"])
    assert summary["metrics"]["f1"] > 0.95
    assert summary["metrics"]["auc_pr"] > 0.97
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    judged = {e["node"]: e["metrics"] for e in events if e["event"] == "node_evaluated"}
    assert len(judged) == 10
    # F1 is undefined, and so null, exactly where a node holds no anomaly.
    assert sum(metrics["f1"] is None for metrics in judged.values()) == 2


def test_a_run_folder_holds_what_the_design_says(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = fedslice("simulate", DIGITS, "--rounds", "3", "--seed", "4", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == {
        "config.toml", "rounds.jsonl", "events.jsonl", "summary.json", "model.safetensors", "checkpoint", "report.html",
    }  # fmt: skip
    records = rounds_of(folder)
    assert [record["round"] for record in records] == [1, 2, 3]
    assert all(set(record) == ROUND_KEYS for record in records)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["seed"], summary["rounds"], summary["run_dir"]) == (4, 3, str(folder))
    assert str(folder / "report.html") in done.stdout
    # The resolved config runs again, and gives the same model.
    again = fedslice("simulate", str(folder / "config.toml"), "--out", str(tmp_path / "again"), "--json")
    assert json.loads(again.stdout)["model_sha256"] == summary["model_sha256"]


def test_digits_reaches_its_marks(tmp_path: Path) -> None:
    assert fedslice("simulate", DIGITS, "--out", str(tmp_path / "run"), "--quiet").returncode == 0
    accuracy = [record["evaluate"]["accuracy"] for record in rounds_of(tmp_path / "run")]  # type: ignore[index]
    assert accuracy[9] >= 0.85
    assert accuracy[29] >= 0.94


@pytest.mark.parametrize("rule", [[], WITH_FLOWER], ids=["ours", "flowers"])
def test_quiet_prints_nothing(tmp_path: Path, rule: list[str]) -> None:
    done = fedslice("simulate", DIGITS, *rule, "--rounds", "1", "--out", str(tmp_path / "run"), "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_that_look_like_markup_are_only_names(tmp_path: Path) -> None:
    folder = tmp_path / "x[" / "b]y [red]"
    done = fedslice("simulate", DIGITS, "--rounds", "1", "--out", str(folder))
    assert done.returncode == 0
    assert str(folder) in done.stdout


def test_without_out_a_run_is_named_by_its_time(tmp_path: Path) -> None:
    done = fedslice("simulate", str(ROOT / DIGITS), "--rounds", "1", "--json", cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-")
    assert json.loads(done.stdout)["run_dir"] == f"runs/{folder.name}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", "nowhere.toml"], ["nowhere.toml", "No such file"]),
        (["simulate", DIGITS, "--set", "selection.polcy=uniform"], ["selection", "polcy", "did you mean policy"]),
        (["simulate", DIGITS, "--set", "taks.name=tep"], ["taks", "did you mean task"]),
        (["simulate", DIGITS, "--set", "selection.policy=unifrm"], ["unifrm", "did you mean uniform"]),
        (["simulate", DIGITS, "--set", "federation.rounds=ten"], ["federation.rounds", "integer", "ten"]),
        (["simulate", DIGITS, "--set", "federation.rounds=0"], ["federation.rounds", "greater than or equal to 1"]),
        (["simulate", DIGITS, "--set", "federation.rounds"], ["table.key=value"]),
        (["simulate", DIGITS, "--set", "federation.name.x=1"], ["name holds a value, not a table"]),
        (["simulate", DIGITS, "--rounds", "ten"], ["--rounds", "ten"]),
        (["simulate", DIGITS, "--set", "nodes.count=3000"], ["3000", "1437"]),
        (["simulate", DIGITS, "--set", "task.name=tep"], ["--data", "https://"]),
        (["simulate", DIGITS, "--set", "task.name=cmapss", "--data", "nowhere"], ["nowhere"]),
        (["simulate", DIGITS, "--out", "/proc/fedslice"], ["/proc/fedslice", "--out"]),
        (["simulate", DIGITS, "--set", "aggregation={rule='flower', strategy='flwr.Nope'}"], ["flwr.Nope"]),
        (["simulate", DIGITS, "--set", "nodes.profiles=[{name='a', slice='x'}]"], ["a is on slice x", "embb"]),
        (["check", DIGITS, "--set", "federation.quorum=6"], ["federation.quorum = 6", "selection.cohort = 5"]),
        (["check", DIGITS, "--set", "federation.name=[/red]"], ["federation.name", "[/red]"]),
        (["check", DIGITS, "--set", "training.lr=inf"], ["training.lr", "finite"]),
        (["check", DIGITS, "--set", "network.cell.power_dbm=inf"], ["network.cell.power_dbm", "finite"]),
        (["check", DIGITS, "--set", "network.profile=nope"], ["network.profile = 'nope'", "rural-20", ".toml"]),
        (["check", DIGITS, "--set", "task.hidden=[-1]"], ["task.hidden.0", "greater than or equal to 1"]),
        (["check", DIGITS, "--set", "task.hidden=[\n8]"], ["one line"]),
        (["check", DIGITS, *WITH_FLOWER, "--set", "optimizer.name=adam"], ["[optimizer]", "FedAvg makes the step itself"]),
        (
            ["check", DIGITS, *WITH_FLOWER, "--set", "aggregation.strategy=flwr.serverapp.strategy.FedProx"],
            ["FedProx", "proximal"],
        ),
        (["check", "x" * 300], ["xxx", "cannot read"]),
        (["simulate", DIGITS, "--rounds", "1", "--out", "x" * 300], ["xxx", "--out"]),
        (["check", DIGITS, "--set", "training.lr=-1"], ["training.lr", "greater than 0"]),
        (["report", "configs"], ["configs", "rounds.jsonl"]),
        (["report"], ["RUN"]),
        (["simulte"], ["simulte"]),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_a_users_mistake_gives_one_clear_message(arguments: list[str], says: list[str]) -> None:
    done = fedslice(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in says:
        assert part in done.stderr


@pytest.mark.parametrize("name", ["rounds.jsonl", "config.toml", "notes.txt"])
def test_a_folder_that_holds_anything_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    done = fedslice("simulate", DIGITS, "--out", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "precious")]


def test_a_run_whose_rounds_are_all_void_fails_and_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = fedslice("simulate", DIGITS, "--rounds", "2", "--set", "federation.deadline_s=0.001", "--out", str(folder), "--json")
    assert done.returncode == 1
    assert "no round counted" in done.stderr
    records = rounds_of(folder)
    assert [record["void"] for record in records] == [True, True]
    assert all("late" in r["reason"] for record in records for r in record["rejected"])  # type: ignore[attr-defined]
    assert json.loads((folder / "summary.json").read_text())["rejected"] == 10
    assert "late" in (folder / "report.html").read_text()
    assert f"what was done so far is in {folder}" in done.stderr


@pytest.mark.parametrize(("end", "workers"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 2)])
def test_what_ends_a_run_keeps_what_was_done(tmp_path: Path, end: signal.Signals, workers: int) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "fedslice", "simulate", DIGITS, "--rounds", "100000", "--out", str(folder)]
    running = subprocess.Popen(
        [*command, "--set", f"federation.workers={workers}"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("round 3/"):
            break
    os.kill(running.pid, end)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == len(rounds_of(folder)) >= 3
    assert (folder / "report.html").exists()
    assert f"what was done so far is in {folder}" in err


def test_nobody_watching_does_not_end_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "fedslice", "simulate", DIGITS, "--rounds", "5", "--out", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        running.stderr.readline()
        running.stderr.close()
        assert running.wait(timeout=60) == 0
    assert len(rounds_of(folder)) == 5


def test_report_overlays_runs(tmp_path: Path) -> None:
    for policy in ("uniform", "loss_and_speed"):
        overrides = ["--set", f"selection.policy={policy}", "--set", f"federation.name={policy}"]
        fedslice("simulate", DIGITS, "--rounds", "2", *overrides, "--out", str(tmp_path / policy), "-q")
    done = fedslice("report", str(tmp_path / "uniform"), str(tmp_path / "loss_and_speed"), "--out", str(tmp_path / "both.html"))
    assert done.stdout.strip() == str(tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()
    assert "uniform" in page
    assert "loss_and_speed" in page


def test_version_tasks_and_check() -> None:
    assert fedslice("--version").stdout == "fedslice 0.1.0\n"
    tasks = {row["name"] for row in json.loads(fedslice("tasks", "--json").stdout)["tasks"]}
    assert tasks == {"shuttle", "digits", "tep", "hydraulic", "cmapss", "ims"}
    assert "hydraulic" in fedslice("tasks").stdout
    checked = fedslice("check", DIGITS, "--set", "partition.scheme=iid")
    assert checked.returncode == 0
    assert 'scheme = "iid"' in checked.stdout
    assert json.loads(fedslice("check", DIGITS, "--json").stdout)["nodes"]["count"] == 10


def test_shell_completion_is_offered() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "fedslice")],
        env={**os.environ, "_FEDSLICE_COMPLETE": "complete_bash", "COMP_WORDS": "fedslice si", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["simulate"]
