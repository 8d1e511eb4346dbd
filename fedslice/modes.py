"""The one place that joins server, client and edge."""

import os
import sys
from typing import Any, get_args

from client.app import app as client_app
from client.session import session
from client.tasks import TaskConfig
from edge.simulation import SimulationGrid, UserValue
from edge.slices import Network, profiles, survey
from fedslice.core.config import RunConfig
from fedslice.core.errors import UsageError
from fedslice.core.events import Listener
from fedslice.settings import Settings, checked
from server.app import serve
from server.run_folder import Summary


def check(run: RunConfig) -> Settings:
    """Return the config if a federation could start from it: parts fit together, data are there and can be dealt out.

    Raises:
        UsageError: Something is wrong; the text says what, where, and what would be right.
    """
    settings = checked(run)
    _network(run, settings)
    settings.aggregation.build()
    known = session(run.as_run_config())
    _ = known.parts, known.entries
    return settings


def slices(run: RunConfig) -> dict[str, Any]:
    """Return what a config's cell offers, its slices and what each node gets: see `edge.slices.survey`.

    Raises:
        UsageError: Something in the config is wrong.
    """
    return survey(_network(run, checked(run)))


def _network(run: RunConfig, settings: Settings) -> Network:
    seed = settings.federation.seed
    try:
        return Network(settings.network, profiles(settings.nodes, seed), seed)
    except ValueError as error:
        raise UsageError(f"{run.source}: {error}") from error


def simulate(run: RunConfig, *listeners: Listener) -> Summary:
    """Run a federation in this process and its workers, on a virtual clock.

    Raises:
        UsageError: See `check`.
        RunError: The run could not go on.
    """
    settings = check(run)
    count = settings.nodes.count
    # Addresses count from 1, as Flower's do not use 0. The last node is the evaluator.
    node_configs: dict[int, dict[str, UserValue]] = {
        node + 1: {"partition-id": node, "num-partitions": count} for node in range(count + 1)
    }
    workers = min(settings.federation.workers or len(os.sched_getaffinity(0)), count)
    grid = SimulationGrid(client_app, node_configs, run.as_run_config(), workers)
    try:
        return serve(grid, run, *listeners, resolved=settings.model_dump())
    finally:
        grid.close()


def known_tasks() -> list[dict[str, str]]:
    """Return the name of each task, what it is, and where its data come from."""
    union, _ = get_args(TaskConfig)
    rows = []
    for config in get_args(union):
        module = sys.modules[config.__module__]
        about = next(iter((module.__doc__ or "").splitlines()), "")
        where = getattr(module, "WEB", "")
        rows.append({"name": config.model_fields["name"].default, "about": about, "data": where or "comes along"})
    return rows
