"""The figures, one function each. They take runs and give Plotly figures; the page arranges them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from itertools import accumulate
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedslice.core.records import NodeId, RoundRecord
from fedslice.report import measures
from fedslice.report.measures import Outcome
from fedslice.report.runs import Run
from fedslice.report.style import (
    BLUE,
    GREY,
    ORANGE,
    REASON_COLOURS,
    RED,
    SLICE_COLOURS,
    figure,
    run_colour,
    run_dash,
)

MARKERS_UP_TO = 60
NAMED_NODES_UP_TO = 30
WORDED_CELLS_UP_TO = 20_000

OUTCOME_LOOKS = {
    Outcome.NOT_SELECTED: ("not selected", "rgba(0,0,0,0)"),
    Outcome.FOLDED: ("trained and folded", BLUE),
    Outcome.VOID: ("replied, round void", GREY),
    Outcome.NO_REPLY: ("no reply in time", ORANGE),
    Outcome.REFUSED: ("refused", RED),
}


def progress(runs: Sequence[Run], metric: str, against: str) -> go.Figure:
    """Draw a metric of the global model, a line a run.

    Args:
        runs: The runs to overlay.
        metric: A metric's name; of the evaluation or, where no run evaluated it, of the training.
        against: What lies on the x axis: `round`, `time` or `bytes`.
    """
    measured = any(metric in record.evaluate for run in runs for record in run.rounds)
    columns = [_along(run, against) for run in runs]
    scale, x_axis = _x_axis(columns, against)
    drawn = figure(250, x_axis, {"title": {"text": escape(metric)}})
    for index, (run, places) in enumerate(zip(runs, columns, strict=True)):
        # A round that has no such metric was not evaluated: the line passes. A null one is a gap.
        values = [record.evaluate if measured else record.train for record in run.rounds]
        points = [(x / scale, or_gap(found[metric])) for x, found in zip(places, values, strict=True) if metric in found]
        sparse = len(points) <= MARKERS_UP_TO or any(y is None for _, y in points)
        drawn.add_scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            name=escape(run.label),
            meta=index,
            mode="lines+markers" if sparse else "lines",
            line={"color": run_colour(index), "dash": run_dash(index), "width": 2},
            marker={"size": 5 if len(points) <= MARKERS_UP_TO else 3},
        )
    return drawn


def cohort(run: Run) -> go.Figure:
    """Draw what became of each node in each round."""
    table = measures.outcomes(run)
    drawn = figure(_rows_height(len(run.nodes)), _round_axis(run.rounds), _node_axis(len(run.nodes)))
    steps = len(OUTCOME_LOOKS)
    words = np.array([text for text, _ in OUTCOME_LOOKS.values()], object)
    # The word of each cell, for whoever points at it, would make the page of a large fleet heavy.
    told = table.size <= WORDED_CELLS_UP_TO
    drawn.add_heatmap(
        x=[record.round for record in run.rounds],
        y=node_labels(run),
        z=table,
        text=words[table].tolist() if told else None,
        hovertemplate="node %{y}, round %{x}" + (": %{text}" if told else "") + "<extra></extra>",
        zmin=-0.5,
        zmax=steps - 0.5,
        # Each outcome is one flat step of the scale.
        colorscale=[(edge / steps, OUTCOME_LOOKS[Outcome(step)][1]) for step in range(steps) for edge in (step, step + 1)],
        showscale=False,
        xgap=1 if len(run.rounds) <= 100 else 0,
        ygap=1 if len(run.nodes) <= 60 else 0,
    )
    drawn.update_xaxes(showgrid=False)
    drawn.update_yaxes(showgrid=False)
    return drawn


def refusals(run: Run, reasons: Sequence[str]) -> go.Figure:
    """Draw how many updates of each round were refused or never came, stacked by reason."""
    drawn = figure(
        250, _round_axis(run.rounds), {"title": {"text": "updates not folded"}, "tickformat": "d", "rangemode": "tozero"}
    )
    counts = [Counter(measures.reason_of(item, reasons) for item in record.rejected) for record in run.rounds]
    if max((count.total() for count in counts), default=0) <= 5:
        drawn.update_yaxes(dtick=1)
    for reason, colour in reason_looks(reasons):
        drawn.add_bar(
            x=[record.round for record in run.rounds],
            y=[count[reason] for count in counts],
            name=escape(reason),
            marker={"color": colour, "line": {"width": 0}},
        )
    return drawn


def node_metric(runs: Sequence[Run], metric: str) -> go.Figure:
    """Draw the final metric of each node on its own data, each run's nodes from the worst to the best."""
    return _node_curves(runs, [measures.ranked(run, metric) for run in runs], "node, worst to best", metric)


def node_participation(runs: Sequence[Run]) -> go.Figure:
    """Draw in how many rounds each node's update was folded, from the least to the most."""
    ordered = [sorted(measures.participation(run).items(), key=lambda pair: pair[1]) for run in runs]
    drawn = _node_curves(runs, ordered, "node, least to most", "rounds folded")
    drawn.update_yaxes(rangemode="tozero", tickformat="d")
    return drawn


def slice_bytes(run: Run, slices: Sequence[str]) -> go.Figure:
    """Draw the bytes of each round, down and up together, stacked by slice."""
    most = max((sum(map(_slice_bytes, record.slices.values())) for record in run.rounds), default=0)
    scale, unit = measures.byte_unit(most)
    return _slice_bars(run, slices, lambda use: _slice_bytes(use) / scale, f"down and up ({unit})")


def slice_busy(run: Run, slices: Sequence[str]) -> go.Figure:
    """Draw how long each slice was busy in each round, stacked by slice."""
    return _slice_bars(run, slices, lambda use: use.get("busy_s", 0.0), "busy time (s)")


def reason_looks(reasons: Sequence[str]) -> list[tuple[str, str]]:
    """Return each reason with its colour; no reply has the one it has among the cohorts."""
    others = (colour for colour in REASON_COLOURS if colour != ORANGE)
    return [(reason, ORANGE if reason.startswith(measures.NO_REPLY) else next(others, ORANGE)) for reason in reasons]


def slice_looks(slices: Sequence[str]) -> list[tuple[str, str]]:
    """Return each slice with its colour; past the palette the colours come round again."""
    return [(name, SLICE_COLOURS[index % len(SLICE_COLOURS)]) for index, name in enumerate(slices)]


def node_labels(run: Run) -> list[str]:
    """Return what to call each node: its id, or the end of it where ids are Flower's 64-bit ones."""
    full = [str(node) for node in run.nodes]
    short = [f"…{text[-5:]}" if len(text) > 8 else text for text in full]
    return short if len(set(short)) == len(full) else full


def about_node(run: Run, node: NodeId, name: str) -> str:
    """Return what to say of a node to whoever points at it."""
    known = run.nodes[node]
    examples = "" if known.num_examples is None else f", {known.num_examples} examples"
    return f"node {name}{', ' + escape(known.slice) if known.slice else ''}{examples}"


def round_step(count: float) -> int:
    """Return a round number of rounds between ticks, so that about eight fit and none is a fraction."""
    return next((step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if count <= 8 * step), 10_000)


def or_gap(value: float) -> float | None:
    """Return the value, or None, which draws nothing, where it is no number."""
    return value if math.isfinite(value) else None


def _node_curves(runs: Sequence[Run], ordered: Sequence[Sequence[tuple[NodeId, float]]], x: str, y: str) -> go.Figure:
    most = max((len(pairs) for pairs in ordered), default=0)
    drawn = figure(270, {"title": {"text": x}, "dtick": round_step(most)}, {"title": {"text": escape(y)}})
    for index, (run, pairs) in enumerate(zip(runs, ordered, strict=True)):
        names = dict(zip(run.nodes, node_labels(run), strict=True))
        drawn.add_scatter(
            x=list(range(1, len(pairs) + 1)),
            y=[value for _, value in pairs],
            name=escape(run.label),
            meta=index,
            mode="lines+markers" if most <= MARKERS_UP_TO else "lines",
            line={"color": run_colour(index), "dash": run_dash(index), "width": 1.5},
            marker={"size": 8 if len(runs) == 1 else 6},
            text=[about_node(run, node, names[node]) for node, _ in pairs],
            hovertemplate="%{text}: %{y}",
        )
        # With one run the places on the axis can carry the nodes' own names.
        if len(runs) == 1 and 0 < most <= NAMED_NODES_UP_TO:
            drawn.update_traces(mode="markers")
            drawn.update_xaxes(tickvals=list(range(1, most + 1)), ticktext=[names[node] for node, _ in pairs])
    return drawn


def _slice_bars(run: Run, slices: Sequence[str], value: Callable[[dict[str, float]], float], title: str) -> go.Figure:
    drawn = figure(250, _round_axis(run.rounds), {"title": {"text": title}, "rangemode": "tozero"})
    for name, colour in slice_looks(slices):
        drawn.add_bar(
            x=[record.round for record in run.rounds],
            y=[or_gap(value(record.slices.get(name, {}))) for record in run.rounds],
            name=escape(name),
            marker={"color": colour, "line": {"width": 0}},
        )
    return drawn


def _slice_bytes(use: dict[str, float]) -> float:
    return use.get("bytes_down", 0.0) + use.get("bytes_up", 0.0)


def _along(run: Run, against: str) -> list[float]:
    if against == "round":
        return [record.round for record in run.rounds]
    if against == "time":
        return [record.virtual_s for record in run.rounds]
    return list(accumulate(record.bytes_down + record.bytes_up for record in run.rounds))


def _x_axis(columns: Sequence[Sequence[float]], against: str) -> tuple[float, dict[str, Any]]:
    """Return what to divide by and the axis, in one unit for all runs."""
    most = max((x for column in columns for x in column if math.isfinite(x)), default=0.0)
    if against == "round":
        return 1, {"title": {"text": "round"}, "dtick": round_step(most)}
    scale, unit = measures.time_unit(most) if against == "time" else measures.byte_unit(most)
    title = "virtual time" if against == "time" else "bytes so far, down and up"
    return scale, {"title": {"text": f"{title} ({unit})"}, "rangemode": "tozero", "nticks": 7}


def _round_axis(rounds: Sequence[RoundRecord]) -> dict[str, Any]:
    first, last = rounds[0].round, rounds[-1].round
    return {"title": {"text": "round"}, "dtick": round_step(last - first + 1), "range": [first - 0.5, last + 0.5]}


def _node_axis(count: int) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": "node"}, "type": "category", "autorange": "reversed", "nticks": 25}
    # Few nodes are all named; of many, Plotly names some.
    return {**axis, "dtick": 1} if count <= NAMED_NODES_UP_TO else axis


def _rows_height(count: int) -> int:
    return 120 + 18 * count if count <= NAMED_NODES_UP_TO else min(600 + count, 760)
