"""Puts the figures and tables on one HTML page that carries all it needs and asks no network for anything."""

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from fedslice.core.errors import UsageError
from fedslice.report import figures, measures, radio, radio_measures, tables
from fedslice.report.radio_log import WAYS
from fedslice.report.runs import Run, read_runs
from fedslice.report.style import CSS, run_colour

# The browser itself then refuses whatever would leave the page.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_CONFIG = {"responsive": True, "displaylogo": False, "modeBarButtons": [["toImage"]]}
_AGAINST = {"round": "by round", "time": "by virtual time", "bytes": "by bytes moved"}

# The buttons are the legend of all plots at once: one hides a run wherever it is drawn.
_SCRIPT = """
for (const button of document.querySelectorAll(".runs button")) button.addEventListener("click", () => {
  const run = Number(button.dataset.toggle), shown = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", shown);
  for (const part of document.querySelectorAll(`[data-run="${run}"]`)) part.hidden = !shown;
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const traces = plot.data.flatMap((trace, place) => trace.meta === run ? [place] : []);
    if (traces.length) Plotly.restyle(plot, {visible: shown}, traces);
  }
  window.dispatchEvent(new Event("resize"));
});
"""


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report of one or more runs.

    Args:
        runs: Run folders. An unfinished run is shown as far as it went.
        out: The HTML file to write; its folder is made if need be.

    Returns:
        The file.

    Raises:
        UsageError: A folder is not a run, or the file cannot be written.
    """
    html = render(read_runs(runs))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8", errors="replace")  # a folder's name may be no text
    except OSError as error:
        raise UsageError(f"{out}: cannot write the report ({error.strerror or error})") from error
    return out


def render(runs: Sequence[Run]) -> str:
    """Return the page. The same runs give the same bytes."""
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs compared"
    parts = (_results, _progress, _cohorts, _refusals, _fairness, _slices, _radio, _settings)
    sections = "".join(part(runs) for part in parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · FedSlice</title>\n<style>{CSS}</style>\n<script>{get_plotlyjs()}</script>\n</head>\n"
        "<body>\n<main>\n"
        f'<header><h1>{escape(title)}</h1><p class="soft">{escape(_subtitle(runs))}</p></header>\n'
        f"{_legend_of_runs(runs)}{_notes(runs)}{sections}</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _subtitle(runs: Sequence[Run]) -> str:
    folder = runs[0].folder.resolve().name
    return f"FedSlice report of {folder}" if len(runs) == 1 and folder != runs[0].label else "FedSlice report"


def _legend_of_runs(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return ""
    button = '<button type="button" data-toggle="{}" aria-pressed="true" title="show or hide">{}</button>'
    buttons = [button.format(index, tables.swatched(run.label, run_colour(index))) for index, run in enumerate(runs)]
    return f'<nav class="runs" aria-label="runs">{"".join(buttons)}</nav>\n'


def _notes(runs: Sequence[Run]) -> str:
    notes = [f"<b>{escape(run.label)}</b>: {escape(note)}" for run in runs for note in run.notes]
    items = "".join(f"<li>{note}</li>" for note in notes)
    return f'<div class="notes" role="note"><ul>{items}</ul></div>\n' if notes else ""


def _results(runs: Sequence[Run]) -> str:
    differences = tables.differences(runs)
    more = f'<div class="card"><h3>Settings that differ</h3>{differences}</div>' if differences else ""
    space = f'<div class="row">{_card(tables.results(runs))}</div>' if more else _card(tables.results(runs))
    return _section("Results", space + more)


def _progress(runs: Sequence[Run]) -> str:
    if not any(run.rounds for run in runs):
        return _section("Progress", _card("No round has finished yet."))
    metrics = list(dict.fromkeys([*(next(iter(run.better)) for run in runs if run.better), "loss"]))
    known = {name for run in runs for record in run.rounds for name in (*record.evaluate, *record.train)}
    cards = [
        _plot_card(f"{metric} {words}", f"progress-{row}-{against}", figures.progress(runs, metric, against))
        for row, metric in enumerate(name for name in metrics if name in known)
        for against, words in _AGAINST.items()
    ]
    return _section("Progress", _grid(cards, "") if cards else _card("No metric was reported."))


def _cohorts(runs: Sequence[Run]) -> str:
    seen = {outcome for run in runs for outcome in set(measures.outcomes(run).flat)}
    looks = [look for outcome, look in figures.OUTCOME_LOOKS.items() if outcome in seen]
    return _section("Cohorts", _legend(looks) + _for_each(runs, lambda run: [("", figures.cohort(run))], "cohort"))


def _refusals(runs: Sequence[Run]) -> str:
    reasons = measures.reasons(runs)
    if not reasons:
        return _section("Refusals", _card("None: no update was refused, and none was missing."))
    cards = []
    for index, run in enumerate(runs):
        if not any(record.rejected for record in run.rounds):
            cards.append(_run_card(runs, index, '<p class="soft">None: no update was refused, and none was missing.</p>'))
            continue
        plot = _plot(f"refusals-{index}", figures.refusals(run, reasons))
        inner = f'<div class="grid two"><div>{plot}</div><div>{tables.refused_nodes(run, reasons)}</div></div>'
        cards.append(_run_card(runs, index, inner))
    return _section("Refusals", _legend(figures.reason_looks(reasons)) + _grid(cards, "one"))


def _fairness(runs: Sequence[Run]) -> str:
    measured = [name for run in runs for known in run.nodes.values() for name in known.metrics]
    judged = [name for run in runs for name in run.better if name in measured]
    metric = next(iter((*judged, *measured)), None)
    cards = []
    if metric is not None:
        cards.append(_plot_card(f"{metric} of each node", "node-metric", figures.node_metric(runs, metric)))
    if any(run.rounds for run in runs):
        cards.append(_plot_card("Rounds folded of each node", "node-rounds", figures.node_participation(runs)))
    hint = "Jain's index is 1 when all nodes are alike; the Gini coefficient is 0 when all took part equally often."
    missing = "" if metric else " No node's own metrics were logged."
    table = _card(f'{tables.fairness(runs, metric)}<p class="hint">{hint}{missing}</p>')
    return _section("Fairness", _grid(cards, "two" if len(cards) == 2 else "one") + table)


def _slices(runs: Sequence[Run]) -> str:
    slices = measures.slice_names(runs)
    if not slices:
        return _section("Slices", _card("No slice was accounted for."))

    def plots(run: Run) -> list[tuple[str, go.Figure]]:
        return [("Bytes", figures.slice_bytes(run, slices)), ("Busy time", figures.slice_busy(run, slices))]

    return _section("Slices", _legend(figures.slice_looks(slices)) + _for_each(runs, plots, "slices"))


def _radio(runs: Sequence[Run]) -> str:
    times = any(time is not None for run in runs for record in run.rounds for time in (record.round_s, record.bound_s))
    if not times and not any(run.radio for run in runs):
        return _section("Radio", _card("No radio was modelled, or nothing of it was logged."))
    looks = radio.looks(measures.slice_names(runs), runs)
    cards = []
    if times:
        title, plot = "Round time against T*", _plot("round-time", radio.round_time(runs))
        cards.append(_card(f'<h3>{title}</h3>{plot}<p class="hint">{escape(_bound_words(runs))}</p>'))
    if any(radio_measures.latencies(run, way) for run in runs for way in WAYS):
        title, plot = "Latency by slice", _plot("latency", radio.latency(runs, looks))
        cards.append(_card(f'<h3>{title}</h3>{plot}<p class="hint">Means over the rounds.</p>'))

    def plots(run: Run) -> list[tuple[str, go.Figure]]:
        shares = [(f"PRBs, {way}link", radio.prb_shares(run, way, looks)) for way in WAYS]
        links = [(f"Nodes, {way}link", radio.links(run, way, looks)) for way in WAYS]
        return [(title, plot) for title, plot in shares + links if plot.data]

    each = _for_each(runs, plots, "radio") if any(run.radio for run in runs) else ""
    return _section("Radio", _grid(cards, "two" if len(cards) == 2 else "one") + _legend(looks) + each)


def _bound_words(runs: Sequence[Run]) -> str:
    """Return what T* is, and how near the rounds came to it."""
    ratios = {run.label: ratio for run in runs if math.isfinite(ratio := radio_measures.bound_ratio(run))}
    if not ratios:
        return "T*, the least time that any sharing of the radio could have taken, is not known."
    took = ", ".join(f"{ratio:.2f} times T*" + (f" in {label}" if len(runs) > 1 else "") for label, ratio in ratios.items())
    together = radio_measures.rounds_a_point(runs)
    means = f" Each point is the mean of {together} rounds." if together > 1 else ""
    what = "Dashed: T*, the least that any sharing of the radio could take at the median channel of the round's start."
    return f"{what} The median round took {took}.{means}"


def _settings(runs: Sequence[Run]) -> str:
    return _section("Settings", _card("".join(tables.settings(run, index) for index, run in enumerate(runs))))


def _for_each(runs: Sequence[Run], plots: Callable[[Run], list[tuple[str, go.Figure]]], name: str) -> str:
    """Return a card a run, with its plots side by side."""
    cards = []
    for index, run in enumerate(runs):
        if not run.rounds:
            cards.append(_run_card(runs, index, '<p class="soft">No round has finished yet.</p>'))
            continue
        if not (shown := plots(run)):
            cards.append(_run_card(runs, index, '<p class="soft">Nothing of this was logged.</p>'))
            continue
        drawn = [
            f"<div>{f'<h3>{title}</h3>' if title else ''}{_plot(f'{name}-{index}-{place}', plot)}</div>"
            for place, (title, plot) in enumerate(shown)
        ]
        cards.append(_run_card(runs, index, _grid(drawn, "two" if len(drawn) > 1 else "one")))
    return _grid(cards, "one")


def _run_card(runs: Sequence[Run], index: int, inner: str) -> str:
    head = f"<h3>{tables.swatched(runs[index].label, run_colour(index))}</h3>" if len(runs) > 1 else ""
    return f'<div class="card" data-run="{index}">{head}{inner}</div>'


def _plot_card(title: str, name: str, plot: go.Figure) -> str:
    return _card(f"<h3>{escape(title)}</h3>{_plot(name, plot)}")


def _plot(name: str, plot: go.Figure) -> str:
    # The id is fixed, not random: the page stays the same from one writing to the next.
    return str(plot.to_html(config=_CONFIG, include_plotlyjs=False, full_html=False, validate=False, div_id=name))


def _legend(looks: Sequence[tuple[str, str]]) -> str:
    if not looks:
        return ""
    return f'<ul class="legend">{"".join(f"<li>{tables.swatched(text, colour)}</li>" for text, colour in looks)}</ul>'


def _grid(cards: Sequence[str], kind: str) -> str:
    return f'<div class="grid {kind}">{"".join(cards)}</div>' if cards else ""


def _card(inner: str) -> str:
    return f'<div class="card">{inner}</div>'


def _section(title: str, inner: str) -> str:
    return f"<section><h2>{title}</h2>{inner}</section>\n"
