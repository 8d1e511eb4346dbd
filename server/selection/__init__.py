"""Selection policies: one a file, listed here. Adding one is its file, its config in the union, and its name."""

from typing import Annotated

from pydantic import Field

from server.selection.loss_and_speed import LossAndSpeedConfig
from server.selection.policy import Policy
from server.selection.uniform import UniformConfig

SelectionConfig = Annotated[UniformConfig | LossAndSpeedConfig, Field(discriminator="policy")]

__all__ = ["LossAndSpeedConfig", "Policy", "SelectionConfig", "UniformConfig"]
