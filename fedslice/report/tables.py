"""The tables of the page, as HTML. Every word that comes from a run is escaped here."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from fedslice.core.config import Tables, dumps
from fedslice.report import measures
from fedslice.report.figures import node_labels
from fedslice.report.lines import NAN
from fedslice.report.runs import Run
from fedslice.report.style import run_colour

NONE = "\N{EN DASH}"
MAX_REFUSED_NODES = 10


def results(runs: Sequence[Run]) -> str:
    """Return the table of results, a row a run; the best value of each metric stands out."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.better))
    heads = ["seed", "rounds", "void", *metrics, "virtual time", "bytes down", "bytes up", "energy", "refused", "model"]
    best = {name: _best(runs, name) for name in metrics} if len(runs) > 1 else {}
    rows = []
    for index, run in enumerate(runs):
        values = {name: final_metric(run, name) for name in metrics}
        cells = [_cell(run.summary.get("seed", _setting(run.config, "seed"))), _cell(_rounds(run))]
        cells.append(_cell(sum(record.void for record in run.rounds)))
        cells += [_cell(number(value), "best" if value == best.get(name) else "") for name, value in values.items()]
        cells += [_cell(text) for text in _costs(run)]
        cells.append(_cell(sum(len(record.rejected) for record in run.rounds)))
        sha = run.summary.get("model_sha256")
        cells.append(f'<td><code title="{escape(str(sha))}">{escape(str(sha)[:8])}</code></td>' if sha else _cell(NONE))
        rows.append(_row(swatched(run.label, run_colour(index)), cells))
    return _table("run", heads, rows)


def differences(runs: Sequence[Run]) -> str:
    """Return the settings in which the runs differ, a row a setting; empty when there is none."""
    flat = [dict(_flat(run.config)) for run in runs]
    # Name and seed stand in the table of results already.
    keys = sorted({key for settings in flat for key in settings} - {"federation.name", "federation.seed"})
    differing = [key for key in keys if len({settings.get(key, NONE) for settings in flat}) > 1]
    if not differing:
        return ""
    rows = [_row(f"<code>{escape(key)}</code>", [_cell(s.get(key, NONE), "wrap") for s in flat]) for key in differing]
    heads = [swatched(run.label, run_colour(index)) for index, run in enumerate(runs)]
    return _table("setting", heads, rows, words=True)


def refused_nodes(run: Run, reasons: Sequence[str]) -> str:
    """Return how often each node was refused for each reason, the most refused first; the last one in full on pointing."""
    counts: dict[int, Counter[str]] = {}
    last: dict[tuple[int, str], str] = {}
    for record in run.rounds:
        for item in record.rejected:
            reason = measures.reason_of(item, reasons)
            counts.setdefault(item.node, Counter())[reason] += 1
            last[item.node, reason] = f"round {record.round}: {item.reason}"
    present = [reason for reason in reasons if any(reason in row for row in counts.values())]
    names = dict(zip(run.nodes, node_labels(run), strict=True))
    order = sorted(counts, key=lambda node: (-counts[node].total(), node))
    rows = []
    for node in order[:MAX_REFUSED_NODES]:
        cells = [_cell(counts[node].get(reason, NONE), title=last.get((node, reason), "")) for reason in present]
        rows.append(_row(escape(names[node]), [*cells, _cell(counts[node].total())]))
    table = _table("node", [*present, "total"], rows)
    more = len(order) - MAX_REFUSED_NODES
    return table + (f'<p class="hint">{more} more nodes, none refused more often.</p>' if more > 0 else "")


def fairness(runs: Sequence[Run], metric: str | None) -> str:
    """Return how evenly the runs served their nodes, a row a run."""
    what = [f"{metric}: worst", "median", "best", "Jain"] if metric else []
    heads = ["nodes", *what, "rounds folded: least", "most", "Gini", "Jain"]
    rows = []
    for index, run in enumerate(runs):
        cells = [_cell(len(run.nodes))] + ([_cell(text) for text in _metric_spread(run, metric)] if metric else [])
        counts = list(measures.participation(run).values())
        cells += [_cell(min(counts, default=NONE)), _cell(max(counts, default=NONE))]
        cells += [_cell(number(measures.gini(counts))), _cell(number(measures.jain(counts)))]
        rows.append(_row(swatched(run.label, run_colour(index)), cells))
    return _table("run", heads, rows)


def settings(run: Run, index: int) -> str:
    """Return all settings of a run, folded away."""
    return f"<details><summary>{swatched(run.label, run_colour(index))}</summary><pre>{escape(dumps(run.config))}</pre></details>"


def swatched(text: str, colour: str) -> str:
    """Return a text behind a square of its colour."""
    kind = "swatch empty" if colour == "rgba(0,0,0,0)" else "swatch"
    return f'<span class="{kind}" style="background:{colour}"></span>{escape(text)}'


def number(value: float) -> str:
    """Return a number with four places where that is readable."""
    if not math.isfinite(value):
        return NONE
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.3g}"


def final_metric(run: Run, name: str) -> float:
    """Return a metric at the end of a run; of a run that has not ended, the last one known."""
    found = (run.summary.get("metrics") or {}).get(name)
    if isinstance(found, int | float):
        return float(found)
    if run.summary:
        return NAN
    known = [record.evaluate[name] for record in run.rounds if math.isfinite(record.evaluate.get(name, NAN))]
    return known[-1] if known else NAN


def _metric_spread(run: Run, metric: str) -> list[str]:
    ranked = measures.ranked(run, metric)
    if not ranked:
        return [NONE] * 4
    names = dict(zip(run.nodes, node_labels(run), strict=True))
    ends = [f"{number(value)} (node {names[node]})" for node, value in (ranked[0], ranked[-1])]
    values = [value for _, value in ranked]
    return [ends[0], number(float(np.median(values))), ends[1], number(measures.jain(values))]


def _costs(run: Run) -> Iterable[str]:
    yield _with_unit(_total(run, "virtual_s", [record.virtual_s for record in run.rounds[-1:]]), measures.time_unit)
    yield _with_unit(_total(run, "bytes_down", [record.bytes_down for record in run.rounds]), measures.byte_unit)
    yield _with_unit(_total(run, "bytes_up", [record.bytes_up for record in run.rounds]), measures.byte_unit)
    yield _with_unit(_total(run, "joules", [record.joules for record in run.rounds]), measures.energy_unit)


def _total(run: Run, key: str, parts: Sequence[float]) -> float:
    found = run.summary.get(key)
    return float(found) if isinstance(found, int | float) else float(sum(parts))


def _with_unit(value: float, unit_of: Any) -> str:
    if not math.isfinite(value):
        return NONE
    scale, unit = unit_of(value)
    return f"{value / scale:.0f} {unit}" if unit == "B" else f"{value / scale:.1f} {unit}"


def _rounds(run: Run) -> str:
    finished, planned = len(run.rounds), _setting(run.config, "rounds")
    return f"{finished} of {planned}" if isinstance(planned, int) and planned != finished else str(finished)


def _setting(config: Tables, key: str) -> Any:
    federation = config.get("federation")
    return federation.get(key, NONE) if isinstance(federation, Mapping) else NONE


def _best(runs: Sequence[Run], name: str) -> float | None:
    values = [value for run in runs if math.isfinite(value := final_metric(run, name))]
    lower = any(run.better.get(name) == "lower" for run in runs)
    return (min(values) if lower else max(values)) if values else None


def _flat(table: Mapping[Any, Any], place: str = "") -> Iterable[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield from _flat(dict(enumerate(value)), f"{place}{key}.")
        else:
            yield f"{place}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _table(corner: str, heads: Sequence[str], rows: Sequence[str], *, words: bool = False) -> str:
    """Return a table; one of words is set to the left, and its heads are HTML already."""
    kind = ' class="words"' if words else ""
    cells = "".join(f'<th scope="col">{head if words else escape(head)}</th>' for head in heads)
    top = f'<tr><th scope="col">{escape(corner)}</th>{cells}</tr>'
    return f'<div class="scroll"><table{kind}><thead>{top}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _row(head: str, cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{head}</th>{"".join(cells)}</tr>'


def _cell(value: Any, kind: str = "", title: str = "") -> str:
    look = f' class="{kind}"' if kind else ""
    hover = f' title="{escape(title)}"' if title else ""
    return f"<td{look}{hover}>{escape(str(value))}</td>"
