"""Tasks: one a file, listed here. Adding one is its file, its config in the union, and its test."""

from typing import Annotated

from pydantic import Field

from client.tasks.cmapss import CmapssConfig
from client.tasks.digits import DigitsConfig
from client.tasks.hydraulic import HydraulicConfig
from client.tasks.ims import ImsConfig
from client.tasks.shuttle import ShuttleConfig
from client.tasks.task import Dataset, Task
from client.tasks.tep import TepConfig

TaskConfig = Annotated[
    ShuttleConfig | DigitsConfig | TepConfig | HydraulicConfig | CmapssConfig | ImsConfig,
    Field(discriminator="name"),
]

__all__ = [
    "CmapssConfig",
    "Dataset",
    "DigitsConfig",
    "HydraulicConfig",
    "ImsConfig",
    "ShuttleConfig",
    "Task",
    "TaskConfig",
    "TepConfig",
]
