"""Fake run folders that look like real ones: a model that learns, nodes that are late, odd or refused."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedslice.core import config
from fedslice.core.records import as_json

SLICES = ("embb", "urllc", "mmtc")
REASONS = ("not finite: entry w holds a NaN", "norm: the change has norm 31.2, the limit is 4", "weight: 0 is not in (0, 1e+06]")
STEP_S = 0.1
Rounds = list[dict[str, Any]]


def fake_run(
    folder: Path,
    *,
    rounds: int = 30,
    nodes: int = 10,
    seed: int = 1,
    name: str = "quickstart",
    policy: str = "uniform",
    speed: float = 0.15,
    refuse: float = 0.06,
    void: Sequence[int] = (),
    gaps: Sequence[int] = (),
    slices: Sequence[str] = SLICES,
    reasons: Sequence[str] = REASONS,
    finished: bool = True,
    radio: bool = True,
) -> Rounds:
    """Write a run folder and return its rounds as written."""
    folder.mkdir(parents=True)
    _write_config(folder, name, seed, rounds if finished else rounds + 10, policy)
    rng = np.random.default_rng(seed)
    home = {node: slices[node % len(slices)] for node in range(nodes)}
    levels = [1 - 0.55 * np.exp(-speed * number) - 0.02 * rng.random() for number in range(1, rounds + 1)]
    records = [_round(number, rng, nodes, refuse, reasons) for number in range(1, rounds + 1)]
    for record, level in zip(records, levels, strict=True):
        _add_metrics(record, float("nan") if record["round"] in gaps else level)
        record["void"] = record["round"] in void
    _add_costs(records, rng, home)
    _write_events(folder, rng, home, evaluated=finished)
    if radio:
        _add_radio(folder, records, np.random.default_rng(seed), home)
    (folder / "rounds.jsonl").write_text("".join(_line(record) for record in records), encoding="utf-8")
    if finished:
        _write_summary(folder, name, seed, records)
    return records


def _round(number: int, rng: np.random.Generator, nodes: int, refuse: float, reasons: Sequence[str]) -> dict[str, Any]:
    chosen = sorted(rng.choice(nodes, max(2, nodes // 2), replace=False).tolist())
    rejected = [{"node": node, "reason": str(rng.choice(reasons))} for node in chosen if rng.random() < refuse]
    refused = {item["node"] for item in rejected}
    silent = {node for node in chosen if rng.random() < refuse / 2} - refused
    rejected += [{"node": node, "reason": "no reply before the deadline"} for node in sorted(silent)]
    replied = [node for node in chosen if node not in silent | refused]
    return {"round": number, "wall_s": 0.2, "selected": chosen, "replied": replied, "rejected": rejected}


def _add_metrics(record: dict[str, Any], level: float) -> None:
    record["train"] = {"loss": 1.1 - level}
    record["evaluate"] = {"f1": level, "accuracy": level / 2 + 0.5, "loss": 1.2 - level}


def _write_config(folder: Path, name: str, seed: int, rounds: int, policy: str) -> None:
    tables = {
        "federation": {"name": name, "seed": seed, "rounds": rounds},
        "task": {"name": "shuttle"},
        "selection": {"policy": policy},
        "training": {"epochs": 2, "lr": 0.05},
    }
    (folder / "config.toml").write_text(config.dumps(tables), encoding="utf-8")


def _add_costs(records: Rounds, rng: np.random.Generator, home: Mapping[int, str]) -> None:
    clock = 0.0
    for record in records:
        use = record["slices"] = _slice_use(rng, record["selected"], home)
        clock += 1.5 + max(item["busy_s"] for item in use.values())
        record["virtual_s"] = round(clock, 4)
        record["joules"] = round(float(3.2 * len(record["selected"]) + rng.random()), 3)
        for way in ("bytes_down", "bytes_up"):
            record[way] = int(sum(item[way] for item in use.values()))


def _slice_use(rng: np.random.Generator, chosen: Sequence[int], home: Mapping[int, str]) -> dict[str, dict[str, float]]:
    use: dict[str, dict[str, float]] = {}
    for node in chosen:
        item = use.setdefault(home[node], {"nodes": 0, "bytes_down": 0, "bytes_up": 0, "busy_s": 0.0})
        item["nodes"] += 1
        item["bytes_down"] += 48_512
        item["bytes_up"] += 12_128 + int(rng.integers(600))
        item["busy_s"] = round(item["busy_s"] + 0.3 + 0.6 * float(rng.random()), 4)
    return use


def _write_events(folder: Path, rng: np.random.Generator, home: Mapping[int, str], *, evaluated: bool) -> None:
    lines: list[dict[str, Any]] = []
    for node, name in home.items():
        lines.append({"at": 1.5, "event": "node_joined", "node": node, "slice": name, "num_examples": 200 + 37 * node})
    lines.append({"at": 1.5, "event": "node_joined", "node": len(home), "role": "evaluate", "slice": "", "num_examples": 0})
    lines.append({"at": 1.9, "event": "began", "better": {"f1": "higher", "accuracy": "higher"}})
    lines.append({"at": 2.0, "event": "round", "round": 1})
    for node in home if evaluated else ():
        level = 0.97 - 0.25 * float(rng.random()) ** 2
        metrics = {"f1": level, "accuracy": level / 2 + 0.5, "loss": 1.2 - level}
        lines.append({"at": 9.0, "event": "node_evaluated", "node": node, "metrics": metrics, "num_examples": 50})
    (folder / "events.jsonl").write_text("".join(map(_line, lines)), encoding="utf-8")


def _add_radio(folder: Path, records: Rounds, rng: np.random.Generator, home: Mapping[int, str]) -> None:
    """Tell how the radio carried each round: it was busy until a second and a half before the round's end."""
    lines = []
    distance = {node: float(rng.random()) for node in home}
    for record in records:
        record["round_s"] = round(max(item["busy_s"] for item in record["slices"].values()), 4)
        record["bound_s"] = round(record["round_s"] / (1.2 + float(rng.random())), 4)
        from_s = round(record["virtual_s"] - 1.5 - record["round_s"], 4)
        steps = math.ceil(record["round_s"] / STEP_S)
        users = [*sorted(record["slices"]), f"{min(home.values())} (background)"]
        shares = {way: _shares(rng, users, steps) for way in ("up", "down")}
        nodes = {str(node): _link(rng, distance[node]) for node in record["selected"]}
        latency = {name: {"down": 4.5 + place, "up": 11.0 + 6 * place} for place, name in enumerate(sorted(record["slices"]))}
        event = {"at": 3.0, "event": "radio", "round": record["round"], "from_s": from_s, "step_s": STEP_S}
        lines.append(event | shares | {"nodes": nodes, "latency_ms": latency})
    with (folder / "events.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(map(_line, lines))


def _shares(rng: np.random.Generator, users: Sequence[str], steps: int) -> dict[str, list[float]]:
    # One more than there are users: some PRBs lie idle.
    drawn = rng.dirichlet(np.full(len(users) + 1, 6.0), steps)
    return {user: [round(float(share), 4) for share in drawn[:, place]] for place, user in enumerate(users)}


def _link(rng: np.random.Generator, distance: float) -> dict[str, float]:
    link = {}
    for way, best_db in (("up", 27.0), ("down", 36.0)):
        link[f"sinr_{way}_db"] = sinr_db = round(best_db - 25 * distance + float(rng.normal()), 2)
        link[f"{way}_bps"] = round(3e6 * math.log2(1 + 10 ** (sinr_db / 10)) * (0.4 + float(rng.random())), 1)
    return link


def _write_summary(folder: Path, name: str, seed: int, records: Rounds) -> None:
    last = records[-1]["evaluate"] if records else {}
    summary = {
        "name": name,
        "seed": seed,
        "rounds": len(records),
        "void_rounds": sum(record["void"] for record in records),
        "metrics": last,
        "bytes_down": sum(record["bytes_down"] for record in records),
        "bytes_up": sum(record["bytes_up"] for record in records),
        "virtual_s": records[-1]["virtual_s"] if records else 0.0,
        "wall_s": 6.0,
        "joules": sum(record["joules"] for record in records),
        "rejected": sum(len(record["rejected"]) for record in records),
        "model_sha256": "7f" * 32,
        "run_dir": str(folder),
    }
    (folder / "summary.json").write_text(json.dumps(as_json(summary)), encoding="utf-8")


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(as_json(value), allow_nan=False) + "\n"
