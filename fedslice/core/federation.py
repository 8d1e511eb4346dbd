"""The table that coordinator and nodes share."""

from typing import Annotated

from pydantic import Field

from fedslice.core.config import Table


class FederationConfig(Table):
    """What the run is called, how long it is, and when a round counts.

    Without a deadline the coordinator waits for all. A round with fewer than `quorum` good updates is void.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = "federation"
    seed: Annotated[int, Field(ge=0)] = 0
    rounds: Annotated[int, Field(ge=1)] = 30
    deadline_s: Annotated[float, Field(gt=0)] | None = None
    quorum: Annotated[int, Field(ge=1)] = 1
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    join_timeout_s: Annotated[float, Field(gt=0)] = 60.0  # how long to wait at the start for nodes that are not there yet
    workers: Annotated[int, Field(ge=0, le=256)] = 0  # processes that simulate nodes; 0: as many as there are cores
