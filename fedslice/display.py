"""What a person sees of a run: a line of progress while it goes, and a table at the end."""

from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from server.run_folder import Summary

_LINES_SHOWN = 8
_UNITS = ("B", "kB", "MB", "GB", "TB")


class Display:
    """Listens to a run's events. Refreshes by itself and not by a thread: workers are forked beside it."""

    def __init__(self, console: Console, *, silent: bool) -> None:
        """Show nothing if silent; without a terminal, print a plain line a round."""
        self._console, self._silent = console, silent
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal and not silent else None
        self._rows: deque[list[str]] = deque(maxlen=_LINES_SHOWN)
        self._judged_by = ""
        self._total = 0
        self._better: dict[str, str] = {}
        self._bytes = 0.0
        self.run_dir: Path | None = None

    def __enter__(self) -> Self:
        """Begin."""
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave what was shown on the screen."""
        if self._live:
            self._live.stop()

    def listen(self, event: str, fields: dict[str, Any]) -> None:
        """Show an event. Where nobody can see it any more, the run goes on unseen."""
        if event == "opened":
            self.run_dir = Path(fields["run_dir"])
        elif not self._silent:
            try:
                self._tell(event, fields)
            except (OSError, SystemExit):  # with the latter rich ends a program whose pipe nobody reads
                self._silent, self._live = True, None

    def _tell(self, event: str, fields: dict[str, Any]) -> None:
        if event == "out_of_reach":
            nodes = " ".join(map(str, fields["nodes"]))
            self._console.print(f"out of the cell's reach, see `fedslice slices`: {nodes}", highlight=False)
        if event == "began":
            self._better = dict(fields["better"])
            self._judged_by, self._total = next(iter(self._better), ""), fields["rounds"]
            self._console.print(
                f"{fields['nodes']} nodes joined; the model has {human_bytes(fields['model_bytes'])}", highlight=False
            )
        elif event == "round":
            self._show(fields)
        elif event == "waiting_for_nodes":
            self._console.print(f"{fields['present']} of {fields['expected']} nodes are there")
        elif event == "step_refused":
            self._console.print(f"round {fields['round']}: {fields['reason']}; it stands as it was", style="red")
        elif event == "evaluation_failed":
            where = f"round {fields['round']}" if "round" in fields else f"node {fields['node']}"
            self._console.print(f"{where}: no evaluation: {fields['reason']}", style="red")

    def results(self, summary: Summary, report: Path | None) -> None:
        """Print what came of the run, and where it lies."""
        table = Table(
            title=f"{summary.name}, seed {summary.seed}", title_justify="left", box=None, show_header=False, pad_edge=False
        )
        ordered = [name for name in self._better if name in summary.metrics]
        for name in [*ordered, *(n for n in summary.metrics if n not in ordered)]:
            value = summary.metrics[name]
            table.add_row(name, Text(f"{value:.4f}", "bold" if name == self._judged_by else ""))
        table.add_row("rounds", f"{summary.rounds} ({summary.void_rounds} void)")
        table.add_row("refused updates", str(summary.rejected))
        table.add_row("virtual time", f"{summary.virtual_s:.1f} s")
        table.add_row("real time", f"{summary.wall_s:.1f} s")
        table.add_row("down, up", f"{human_bytes(summary.bytes_down)}, {human_bytes(summary.bytes_up)}")
        table.add_row("energy", f"{summary.joules:.1f} J")
        table.add_row("run", summary.run_dir)
        table.add_row("report", str(report))
        self._console.print()
        Console(markup=False, highlight=False).print(table)

    def _show(self, fields: dict[str, Any]) -> None:
        self._bytes += fields["bytes_down"] + fields["bytes_up"]
        loss = fields["train"].get("train_loss")
        metric = fields["evaluate"].get(self._judged_by)
        refused = len(fields["rejected"])
        row = [
            f"{fields['round']}/{self._total}",
            " ".join(map(str, fields["selected"][:10])) + (" ..." if len(fields["selected"]) > 10 else ""),
            "void" if fields["void"] else f"{refused} refused" if refused else "",
            "-" if loss is None else f"{loss:.4f}",
            "-" if metric is None else f"{metric:.4f}",
            f"{fields['virtual_s']:.1f}",
            human_bytes(self._bytes),
        ]
        self._rows.append(row)
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            names = ("round", "cohort", "", "loss", self._judged_by, "virtual s", "bytes")
            self._console.print(
                " | ".join(f"{n} {v}".strip() for n, v in zip(names, row, strict=True) if v), highlight=False, soft_wrap=True
            )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("round", "cohort", "", "loss", self._judged_by, "virtual s", "bytes"):
            table.add_column(name, justify="left" if name in ("cohort", "") else "right", min_width=9)
        for row in self._rows:
            table.add_row(*row)
        return table


def human_bytes(count: float) -> str:
    """Return a number of bytes as people read it, in powers of 1000."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
