"""Tasks: one a file, listed here. Adding one is its file, its config in the union, and its test."""

from typing import Annotated

from pydantic import Field

from client.tasks.digits import DigitsConfig
from client.tasks.shuttle import ShuttleConfig
from client.tasks.task import Dataset, Task

TaskConfig = Annotated[ShuttleConfig | DigitsConfig, Field(discriminator="name")]

__all__ = ["Dataset", "DigitsConfig", "ShuttleConfig", "Task", "TaskConfig"]
