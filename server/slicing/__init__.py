"""Slicing policies: one a file, listed here. Adding one is its file, its config in the union, and its name."""

from typing import Annotated

from pydantic import Field

from server.slicing.deadline import DeadlineConfig
from server.slicing.least_time import Solution, bound_s, least_time
from server.slicing.min_max import MinMaxConfig
from server.slicing.proportional import ProportionalConfig
from server.slicing.quorum import QuorumConfig
from server.slicing.static import StaticConfig

SlicingConfig = Annotated[
    StaticConfig | ProportionalConfig | MinMaxConfig | QuorumConfig | DeadlineConfig, Field(discriminator="policy")
]

__all__ = [
    "DeadlineConfig",
    "MinMaxConfig",
    "ProportionalConfig",
    "QuorumConfig",
    "SlicingConfig",
    "Solution",
    "StaticConfig",
    "bound_s",
    "least_time",
]
