"""Reads a run folder as it is, finished or not: what cannot be read is left out and noted."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedslice.core.config import Tables, load
from fedslice.core.errors import UsageError
from fedslice.core.records import NodeId, Rejection, RoundRecord
from fedslice.report.lines import as_number, as_numbers, objects, unreadable
from fedslice.report.radio_log import RadioRound, read_radio


@dataclass(slots=True, kw_only=True)
class Node:
    """What a run's logs tell of one node."""

    slice: str = ""
    num_examples: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run folder in memory. `notes` are sentences for the reader about what was missing."""

    folder: Path
    label: str
    config: Tables
    summary: dict[str, Any]
    rounds: list[RoundRecord]
    nodes: dict[NodeId, Node]
    notes: list[str]
    better: dict[str, str]  # the metrics to judge by, the first one first
    radio: list[RadioRound]  # by virtual time; empty where no radio was modelled


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders and give each run a label of its own.

    Raises:
        UsageError: There is no folder, or one of them is not a run.
    """
    if not folders:
        raise UsageError("report: name at least one run folder")
    runs = [read_run(folder) for folder in folders]
    names = Counter(run.label for run in runs)
    # Runs of one config share its name; their folders differ.
    labels = [run.label if names[run.label] == 1 else run.folder.resolve().name for run in runs]
    seen: Counter[str] = Counter()
    for index, label in enumerate(labels):
        seen[label] += 1
        runs[index] = replace(runs[index], label=label if seen[label] == 1 else f"{label} ({seen[label]})")
    return runs


def read_run(folder: Path) -> Run:
    """Read one run folder.

    Raises:
        UsageError: The folder is not a run, and what it lacks.
    """
    _check_is_run(folder)
    notes: list[str] = []
    config = load(folder / "config.toml")
    summary = _summary(folder / "summary.json", notes)
    rounds = _rounds(folder / "rounds.jsonl", notes)
    if not rounds:
        notes.append("No round has finished.")
    name = summary.get("name") or _configured_name(config) or folder.resolve().name
    return Run(
        folder=folder,
        label=str(name),
        config=config,
        summary=summary,
        rounds=rounds,
        nodes=_nodes(folder / "events.jsonl", rounds, notes),
        notes=notes,
        better=_better(folder / "events.jsonl", rounds),
        radio=read_radio(folder / "events.jsonl", notes),
    )


def _check_is_run(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such run folder")
    missing = [name for name in ("config.toml", "rounds.jsonl") if not (folder / name).is_file()]
    # A run that was stopped in its first round has a log of events, but no round yet.
    if missing == ["rounds.jsonl"] and (folder / "events.jsonl").is_file():
        return
    if missing:
        raise UsageError(f"{folder}: not a run folder, it has no {' and no '.join(missing)}")


def _configured_name(config: Tables) -> str | None:
    federation = config.get("federation")
    return federation.get("name") if isinstance(federation, dict) else None


def _summary(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.is_file():
        notes.append("No summary.json: the run has not ended. Totals are of the finished rounds.")
        return {}
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        summary = None
    if not isinstance(summary, dict):
        notes.append("summary.json cannot be read. Totals are of the finished rounds.")
        return {}
    return summary


def _rounds(path: Path, notes: list[str]) -> list[RoundRecord]:
    # Keyed by round: a run that was killed and resumed may have logged one twice, and the later counts.
    found: dict[int, RoundRecord] = {}
    for number, value in objects(path, notes):
        try:
            record = _record(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            notes.append(unreadable(path, number))
        else:
            found[record.round] = record
    return [found[number] for number in sorted(found)]


def _record(value: dict[str, Any]) -> RoundRecord:
    return RoundRecord(
        round=int(value["round"]),
        virtual_s=as_number(value["virtual_s"]),
        wall_s=as_number(value["wall_s"]),
        selected=[int(node) for node in value["selected"]],
        replied=[int(node) for node in value["replied"]],
        rejected=[Rejection(node=int(item["node"]), reason=str(item["reason"])) for item in value["rejected"]],
        bytes_down=int(value["bytes_down"]),
        bytes_up=int(value["bytes_up"]),
        joules=as_number(value["joules"]),
        slices={str(name) or "no slice": as_numbers(use) for name, use in value["slices"].items()},
        train=as_numbers(value["train"]),
        evaluate=as_numbers(value["evaluate"]),
        void=bool(value.get("void", False)),
        round_s=_known(value.get("round_s")),
        bound_s=_known(value.get("bound_s")),
    )


def _known(value: Any) -> float | None:
    return None if value is None else float(value)


def _better(path: Path, rounds: Sequence[RoundRecord]) -> dict[str, str]:
    """Return how the task says it is judged or, where the log does not tell, a guess from what was measured."""
    for _, event in objects(path, [], ('"began"',)):
        if isinstance(event.get("better"), dict) and event["better"]:
            return {str(name): str(which) for name, which in event["better"].items()}
    names = dict.fromkeys(name for record in rounds for name in record.evaluate)
    judged = [name for name in names if name != "loss"] or list(names)
    return {name: "lower" if name == "loss" else "higher" for name in judged}


def _nodes(path: Path, rounds: Sequence[RoundRecord], notes: list[str]) -> dict[NodeId, Node]:
    """Return every node that joined or was selected, in the order of their ids."""
    found: dict[NodeId, Node] = {}
    for record in rounds:
        for node in (*record.selected, *record.replied, *(item.node for item in record.rejected)):
            found.setdefault(node, Node())
    for number, event in objects(path, notes, ('"node_joined"', '"node_evaluated"')):
        try:
            _learn(found, event)
        except (KeyError, TypeError, ValueError, AttributeError):
            notes.append(unreadable(path, number))
    return dict(sorted(found.items()))


def _learn(found: dict[NodeId, Node], event: dict[str, Any]) -> None:
    if event["event"] not in ("node_joined", "node_evaluated") or event.get("role") == "evaluate":
        return
    node = found.setdefault(int(event["node"]), Node())
    if event["event"] == "node_evaluated":
        node.metrics = as_numbers(event["metrics"])
        return
    node.slice = str(event.get("slice") or "")
    if event.get("num_examples") is not None:
        node.num_examples = int(event["num_examples"])
