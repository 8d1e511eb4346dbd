"""The command line. It parses and prints; all work is behind `fedslice.modes` and `fedslice.report`."""

import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedslice import __version__
from fedslice.core.config import RunConfig
from fedslice.core.errors import FedSliceError
from fedslice.core.records import as_json

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells and supervisors expect
console = Console(stderr=True, markup=False, highlight=False)
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@contextmanager
def _one_clear_message() -> Iterator[None]:
    """Turn what ends a command into one message and an exit code."""
    try:
        yield
    except FedSliceError as error:
        console.print(Text("error: ", "bold red") + Text(str(error), ""), soft_wrap=True)
        sys.exit(error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        console.print(Text("error: ", "bold red") + Text(f"{place}{error.strerror or error}", ""), soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("interrupted")
        sys.exit(EXIT_INTERRUPTED)


Config = Annotated[str, typer.Argument(metavar="CONFIG", help="A TOML file, such as configs/quickstart.toml.")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in selection.policy=uniform.")
]
Data = Annotated[str, typer.Option(metavar="DIR", help="Folder of original data files, for the tasks that need one.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Override federation.seed.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Override federation.rounds.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]


def _print_version(asked: bool) -> None:
    if asked:
        print(f"fedslice {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated learning over sliced 5G networks."""


@app.command()
@_one_clear_message()
def simulate(
    config: Config,
    overrides: Overrides = [],  # noqa: B006 - typer copies it
    data: Data = "",
    out: Annotated[str, typer.Option(metavar="DIR", help="The run's folder. Default: runs/NAME-TIME.")] = "",
    seed: Seed = None,
    rounds: Rounds = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Run a whole federation on this machine, on a virtual clock."""
    run = _run_config(config, overrides, data, out, seed, rounds)
    from fedslice.display import Display
    from fedslice.modes import simulate as run_simulation
    from fedslice.report import write_report

    logging.getLogger("flwr").setLevel(logging.WARNING)  # which importing Flower has set to all
    for end in (signal.SIGTERM, signal.SIGHUP):  # a supervisor's stop is as good as Ctrl-C
        signal.signal(end, signal.default_int_handler)
    with Display(console, silent=quiet or as_json) as display:
        try:
            summary = run_simulation(run, display.listen)
        finally:
            folder = display.run_dir
            page = write_report([folder], folder / "report.html") if folder else None
            if page and sys.exc_info()[0] and not quiet:
                console.print(f"what was done so far is in {folder}", soft_wrap=True)
    if as_json:
        _print_json(asdict(summary))
    elif not quiet:
        display.results(summary, page)


@app.command()
@_one_clear_message()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The page. Default: report.html in the first folder.")] = None,
) -> None:
    """Write one HTML page that overlays runs."""
    from fedslice.report import write_report

    print(write_report(runs, out or runs[0] / "report.html"))


@app.command()
@_one_clear_message()
def check(
    config: Config,
    overrides: Overrides = [],  # noqa: B006 - typer copies it
    data: Data = "",
    seed: Seed = None,
    rounds: Rounds = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a federation could start from a config, and show it with every default filled in."""
    run = _run_config(config, overrides, data, "", seed, rounds)
    from fedslice.core.config import dumps
    from fedslice.modes import check as check_config

    settings = check_config(run).model_dump()
    if as_json:
        _print_json(settings)
    else:
        print(dumps(settings), end="")
        console.print(f"{config} is fine.", style="green")


@app.command()
@_one_clear_message()
def slices(
    config: Config,
    overrides: Overrides = [],  # noqa: B006 - typer copies it
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Show a config's 5G slices, and what each node gets of them."""
    run = _run_config(config, overrides, seed=seed)
    from fedslice.modes import slices as survey_slices
    from fedslice.slices_table import slices_tables

    found = survey_slices(run)
    if as_json:
        _print_json(found)
        return
    out = Console(markup=False, highlight=False)
    for part in slices_tables(found):
        out.print(part)


@app.command()
@_one_clear_message()
def tasks(as_json: AsJson = False) -> None:
    """List what can be learned."""
    from rich.table import Column, Table

    from fedslice.modes import known_tasks

    known = known_tasks()
    if as_json:
        _print_json({"tasks": known})
        return
    table = Table("task", "what", Column("data", overflow="fold"), box=None, pad_edge=False)
    for row in known:
        table.add_row(row["name"], row["about"], row["data"])
    Console(markup=False).print(table)


def _run_config(
    config: str, overrides: list[str], data: str = "", out: str = "", seed: int | None = None, rounds: int | None = None
) -> RunConfig:
    shortcuts = {"federation.seed": seed, "federation.rounds": rounds}
    extra = [f"{key}={value}" for key, value in shortcuts.items() if value is not None]
    run = RunConfig(config, (*overrides, *extra), data, out)
    run.tables()  # a file that cannot be read is said before torch and Flower are loaded
    return run


def _print_json(value: object) -> None:
    print(json.dumps(as_json(value), allow_nan=False))


def main() -> None:
    """Run the command line."""
    app()
