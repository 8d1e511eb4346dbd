"""The Flower ServerApp. On every grid it is this that runs."""

import logging
from collections.abc import Mapping
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedslice.core.config import RunConfig
from fedslice.core.events import Listener
from server.config import ServerConfig
from server.coordinator import Coordinator
from server.run_folder import RunFolder, Summary

app = ServerApp()
logger = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run's config describes."""
    serve(grid, RunConfig.of(context.run_config), _log)


def _log(event: str, fields: dict[str, Any]) -> None:
    """Write what `flwr run --stream` shows: Flower has no other view of a run."""
    if event == "round":
        measured = ", ".join(f"{name} {value:.4f}" for name, value in fields["evaluate"].items())
        folded, refused = len(fields["replied"]), len(fields["rejected"])
        logger.info("round %d: %d folded, %d refused; %s", fields["round"], folded, refused, measured)
    elif event == "finished":
        logger.info("the run is in %s", fields["run_dir"])


def serve(grid: Grid, run: RunConfig, *listeners: Listener, resolved: Mapping[str, Any] | None = None) -> Summary:
    """Run a federation over a grid.

    Args:
        grid: Whatever reaches the nodes.
        run: Where the config is.
        listeners: Who is told of each event.
        resolved: The config with every default filled in, for the run folder, from whoever knows all tables; the
            coordinator alone can fill in only its own.

    Raises:
        UsageError: The config or the run folder is not usable.
        RunError: The run could not go on.
    """
    config = run.section(ServerConfig)
    tables = resolved or {**run.tables(), **config.model_dump()}
    folder = RunFolder.named(run.out, config.federation.name, tables)
    with folder.events(*listeners) as events:
        return Coordinator(config, grid, folder, events).run()
