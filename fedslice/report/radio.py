"""The figures of the radio, one function each: who had the PRBs, how long rounds took, how well each node's link carried."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedslice.core.records import NodeId
from fedslice.report import radio_measures
from fedslice.report.figures import MARKERS_UP_TO, about_node, node_labels, or_gap, round_step, slice_looks
from fedslice.report.measures import time_unit
from fedslice.report.radio_log import WAYS
from fedslice.report.runs import Run
from fedslice.report.style import figure, run_colour, run_dash

BACKGROUND = " (background)"  # what a slice's name ends in where its share is that of others than the federation's nodes
WORDED_BARS_UP_TO = 24
LOG_FROM = 30  # how many times the least the most must be to need a log axis

Looks = Sequence[tuple[str, str]]


def looks(slices: Sequence[str], runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return each slice on the radio with its colour, from the bottom of the stack to its top.

    A slice has the colour it has among `slices`, and its background a fainter one.
    """
    named = set[str]().union(*map(radio_measures.radio_slices, runs))
    homes = {_home(run, node) for run in runs for item in run.radio for node in item.links if node in run.nodes}
    wholes = {name.removesuffix(BACKGROUND) for name in named | homes}
    found = []
    for name, colour in slice_looks([*slices, *sorted(wholes - set(slices))]):
        found += [(name, colour)] if name in named | homes else []
        found += [(name + BACKGROUND, _faint(colour))] if name + BACKGROUND in named else []
    return found


def prb_shares(run: Run, way: str, slices: Looks) -> go.Figure:
    """Draw each slice's share of the PRBs over virtual time, stacked."""
    times, shares = radio_measures.stairs(radio_measures.prb_shares(run, way))
    scale, unit = time_unit(float(times[-1]) if len(times) else 0.0)
    # A ten-thousandth of the width is less than a pixel, and more digits would only make the page heavy.
    digits = 4 - math.floor(math.log10((times[-1] - times[0]) / scale)) if len(times) else 0
    places = np.round(times / scale, digits).tolist()
    drawn = figure(
        250,
        {"title": {"text": f"virtual time ({unit})"}, "range": [places[0], places[-1]] if places else None, "nticks": 7},
        {"title": {"text": "share of PRBs"}, "range": [0, 100], "ticksuffix": " %", "dtick": 25},
    )
    drawn.update_layout(hovermode="x unified")
    for name, colour in slices:
        if name not in shares:
            continue
        drawn.add_scatter(
            x=places,
            y=[or_gap(share) for share in np.round(100 * shares[name], 2) + 0.0],
            name=escape(name),
            mode="lines",
            stackgroup=way,
            # A share holds from one time to the next; a line that slopes would show times at which it was another.
            line={"width": 0, "shape": "hv", "color": colour},
            fillcolor=colour,
            hoveron="points",
            # Plotly reads a gap as zero where it stacks.
            text=np.where(np.isnan(shares[name]), ", no exchange", "").tolist(),
            hovertemplate="%{y:.1f} %%{text}",
        )
    return drawn


def round_time(runs: Sequence[Run]) -> go.Figure:
    """Draw how long each round took, and T* dashed, two lines a run."""
    together = radio_measures.rounds_a_point(runs)
    points = [radio_measures.round_times(run, together) for run in runs]
    times = [time for line in points for _, *pair in line for time in pair if math.isfinite(time) and time > 0]
    scale, unit = time_unit(max(times, default=0.0))
    wide = bool(times) and max(times) > LOG_FROM * min(times)
    upright = {"type": "log", "tickformat": "~g"} if wide else {"rangemode": "tozero"}
    last = max((record.round for run in runs for record in run.rounds), default=0)
    drawn = figure(
        270, {"title": {"text": "round"}, "dtick": round_step(last)}, {"title": {"text": f"round time ({unit})"}, **upright}
    )
    for index, (run, line) in enumerate(zip(runs, points, strict=True)):
        common: dict[str, Any] = {"x": [first for first, *_ in line], "meta": index}
        colour, name = run_colour(index), escape(run.label)
        mode = "lines+markers" if len(line) <= MARKERS_UP_TO else "lines"
        drawn.add_scatter(
            y=[_scaled(took, scale) for _, took, _ in line],
            name=name,
            mode=mode,
            line={"color": colour, "dash": run_dash(index), "width": 2},
            marker={"size": 5},
            **common,
        )
        bound = [_scaled(bound, scale) for *_, bound in line]
        drawn.add_scatter(
            y=bound, name=f"{name}, T*", mode="lines", line={"color": colour, "dash": "5px,3px", "width": 1.5}, **common
        )
    return drawn


def latency(runs: Sequence[Run], slices: Looks) -> go.Figure:
    """Draw each slice's latency down and up, a bar a run, means over the rounds."""
    found = [{way: radio_measures.latencies(run, way) for way in WAYS} for run in runs]
    known = [value for ways in found for values in ways.values() for value in values.values() if value > 0]
    upright = {"title": {"text": "latency (ms)"}, **_bar_axis(min(known, default=1.0), max(known, default=1.0))}
    drawn = figure(270, {"type": "multicategory", "showdividers": False}, upright)
    drawn.update_layout(barmode="group")
    places = [(name, way) for name, _ in slices for way in WAYS if any(name in ways[way] for ways in found)]
    brief = _brief(list(dict.fromkeys(name for name, _ in places)))
    worded = len(places) * len(runs) <= WORDED_BARS_UP_TO
    for index, (run, ways) in enumerate(zip(runs, found, strict=True)):
        if not any(ways.values()):
            continue
        values = [ways[way].get(name) for name, way in places]
        drawn.add_bar(
            x=[[escape(brief[name]) for name, _ in places], [way for _, way in places]],
            y=values,
            name=escape(run.label),
            meta=index,
            text=["" if value is None else f"{value:.{0 if value >= 100 else 1}f}" for value in values] if worded else None,
            hovertemplate="%{y:,.1f} ms",
            textposition="outside",
            textangle=0,
            cliponaxis=False,
            marker={"color": run_colour(index), "line": {"width": 0}},
        )
    return drawn


def links(run: Run, way: str, slices: Looks) -> go.Figure:
    """Draw each node's mean rate against its mean SINR, a marker a node."""
    drawn = figure(
        270,
        {"title": {"text": "mean SINR (dB)"}, "nticks": 8},
        {"title": {"text": "mean rate (Mbit/s)"}, "type": "log", "tickformat": "~g"},
    )
    names = dict(zip(run.nodes, node_labels(run), strict=True))
    # A log axis has no place for a rate of zero.
    found = {node: link for node, link in radio_measures.links(run, way).items() if link[1] > 0 and node in names}
    for name, colour in slices:
        nodes = [node for node in found if _home(run, node) == name]
        if not nodes:
            continue
        drawn.add_scatter(
            x=_short([found[node][0] for node in nodes]),
            y=_short([found[node][1] / 1e6 for node in nodes]),
            name=escape(name),
            mode="markers",
            marker={"size": 8, "color": colour, "opacity": 0.85},
            text=[about_node(run, node, names[node]) for node in nodes],
            hovertemplate="%{text}: %{x} dB, %{y} Mbit/s<extra></extra>",
        )
    return drawn


def _home(run: Run, node: NodeId) -> str:
    return run.nodes[node].slice or "no slice"


def _bar_axis(least: float, most: float) -> dict[str, Any]:
    """Return an axis on which the least bar is seen, and the number of the highest one has room above it."""
    if most <= LOG_FROM * least:
        return {"range": [0, 1.15 * most]}
    bottom, top = math.log10(least / 2), math.log10(most)
    return {"type": "log", "tickformat": "~g", "range": [bottom, top + 0.15 * (top - bottom)]}


def _brief(names: Sequence[str]) -> dict[str, str]:
    """Return names short enough to stand below bars, as long as that leaves them apart."""
    short = {name: name if len(name) <= 14 else f"{name[:13]}…" for name in names}
    return short if len(set(short.values())) == len(names) else dict(zip(names, names, strict=True))


def _scaled(value: float, scale: float) -> float | None:
    return or_gap(float(f"{value / scale:.4g}"))


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.45)"


def _short(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
