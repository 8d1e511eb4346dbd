"""The table that coordinator and nodes share."""

from typing import Annotated

from pydantic import Field

from fedslice.core.config import Table


class FederationConfig(Table):
    """What the run is called, how long it is, and when a round ends and counts.

    A round ends when the share `close_at` of its cohort is expected to have answered, at the latest at its deadline;
    without one the coordinator waits, but for who would take more than a week. With fewer than `quorum` good updates it
    is void.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "federation"
    seed: Annotated[int, Field(ge=0)] = 0
    rounds: Annotated[int, Field(ge=1)] = 30
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    close_at: Annotated[float, Field(gt=0, le=1)] = 1.0
    quorum: Annotated[int, Field(ge=1)] = 1
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    join_timeout_s: Annotated[float, Field(gt=0)] = 60.0  # how long to wait at the start for nodes that are not there yet
    workers: Annotated[int, Field(ge=0, le=256)] = 0  # processes that simulate nodes; 0: as many as there are cores
