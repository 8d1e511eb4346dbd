"""The look of the page and of the plots in it: colours that colour-blind readers can tell apart, light and dark."""

from typing import Any

import plotly.graph_objects as go

# Okabe and Ito's palette, without its black, which a dark page would swallow.
BLUE, ORANGE, GREEN, PURPLE, RED, SKY, YELLOW = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"
GREY = "#8d99a6"
RUN_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)
RUN_DASHES = ("solid", "dash", "dot")
SLICE_COLOURS = (GREEN, SKY, PURPLE, ORANGE, BLUE, RED, YELLOW)
REASON_COLOURS = (RED, ORANGE, PURPLE, BLUE, SKY, GREEN, YELLOW, GREY)

# One grey that reads on white and on black; where there is CSS, the page refines it.
_INK = "#79838f"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_AXIS: dict[str, Any] = {
    "gridcolor": "rgba(127,137,148,0.22)",
    "zeroline": False,
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 12}},
    "ticks": "",
    "ticklabelstandoff": 4,
}
_TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": _FONT, "size": 12, "color": _INK},
        "margin": {"l": 52, "r": 14, "t": 8, "b": 40},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#20262d", "bordercolor": "#20262d", "font": {"family": _FONT, "size": 12, "color": "#ffffff"}},
        "barmode": "stack",
        "bargap": 0.18,
    }
)


def run_colour(index: int) -> str:
    """Return the colour of a run, by its place on the command line."""
    return RUN_COLOURS[index % len(RUN_COLOURS)]


def run_dash(index: int) -> str:
    """Return the dash of a run's lines: it differs once the colours are used up."""
    return RUN_DASHES[index // len(RUN_COLOURS) % len(RUN_DASHES)]


def figure(height: int, x: dict[str, Any], y: dict[str, Any]) -> go.Figure:
    """Return an empty figure in the house style."""
    # Naming a template also keeps out Plotly's default one, which is 7 kB a plot.
    return go.Figure(layout={"template": _TEMPLATE, "height": height, "xaxis": x, "yaxis": y})


CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --ink: #1b2229; --soft: #5b6672; --line: #e2e6ea;
  --grid: #e3e7eb; --warn: #fff6e0; --warn-line: #ecd08c; }
@media (prefers-color-scheme: dark) { :root { --page: #101418; --card: #181d23; --ink: #e6eaee; --soft: #a1abb6;
  --line: #2b323a; --grid: #2c343d; --warn: #2b2414; --warn-line: #5e4c1c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 1320px; margin: 0 auto; padding: 40px 32px 64px; }
h1 { font-size: 28px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 19px; font-weight: 650; margin: 0 0 12px; }
h3 { font-size: 14px; font-weight: 600; margin: 0 0 8px; overflow-wrap: anywhere; }
p { margin: 0; }
.soft { color: var(--soft); }
header p { margin-top: 6px; }
section { margin-top: 44px; }
.row { margin-bottom: 16px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; min-width: 0; }
.grid { display: grid; gap: 16px; grid-template-columns: repeat(3, minmax(0, 1fr)); }
.grid.two { grid-template-columns: repeat(2, minmax(0, 1fr)); }
.grid.one { grid-template-columns: minmax(0, 1fr); }
.grid + .grid, .grid + .card, .card + .grid, .grid + .legend { margin-top: 16px; }
@media (max-width: 1000px) { .grid { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media (max-width: 720px) { .grid, .grid.two { grid-template-columns: minmax(0, 1fr); } main { padding: 24px 14px 48px; }
  .card { padding: 14px 12px; } section { margin-top: 36px; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 8px 12px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; font-size: 13px; }
th:first-child, td:first-child { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child > * { border-bottom: 0; }
tbody th { color: var(--ink); font-size: 14px; white-space: normal; overflow-wrap: anywhere; }
tbody th:has(.swatch) { min-width: 120px; }
tr > th:first-child { position: sticky; left: 0; background: var(--card); }
table.words th, table.words td { text-align: left; }
td.best { font-weight: 650; }
td.wrap { white-space: normal; overflow-wrap: anywhere; min-width: 90px; }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 12px 0 0; overflow-x: auto; }
.swatch { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 8px; vertical-align: -1px;
  border: 1px solid transparent; }
.swatch.empty { border-color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 12px; padding: 0; list-style: none; font-size: 13px;
  color: var(--soft); overflow-wrap: anywhere; }
.runs { position: sticky; top: 0; z-index: 20; background: var(--page); padding: 10px 0; margin: 20px 0 -18px;
  display: flex; flex-wrap: wrap; gap: 8px; }
.runs button { font: inherit; font-size: 14px; color: var(--ink); background: var(--card); border: 1px solid var(--line);
  border-radius: 999px; padding: 4px 14px 4px 12px; cursor: pointer; max-width: 100%; overflow-wrap: anywhere; }
.runs button[aria-pressed="false"] { opacity: 0.45; text-decoration: line-through; }
.runs button:focus-visible { outline: 2px solid #56b4e9; outline-offset: 2px; }
.notes { background: var(--warn); border: 1px solid var(--warn-line); border-radius: 10px; padding: 12px 18px; margin-top: 24px; }
.runs + .notes { margin-top: 28px; }
.notes ul { margin: 0; padding-left: 18px; }
.hint { font-size: 13px; color: var(--soft); margin-top: 12px; }
details { border-bottom: 1px solid var(--line); padding: 10px 0; }
details:last-child { border-bottom: 0; }
summary { cursor: pointer; }
[hidden] { display: none !important; }
.js-plotly-plot .xtick text, .js-plotly-plot .xtick2 text, .js-plotly-plot .ytick text, .js-plotly-plot .barlayer text,
.js-plotly-plot .g-xtitle text, .js-plotly-plot .g-ytitle text { fill: var(--soft) !important; }
.js-plotly-plot .gridlayer path { stroke: var(--grid) !important; stroke-opacity: 1 !important; }
.js-plotly-plot .modebar { opacity: 0 !important; }
.js-plotly-plot:hover .modebar { opacity: 1 !important; }
.js-plotly-plot .modebar-group { background: transparent !important; }
"""
