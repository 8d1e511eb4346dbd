"""What a node reads of the config."""

from pydantic import Field

from client.partition import IidConfig, PartitionConfig
from client.tasks import ShuttleConfig, TaskConfig
from client.trainers import TrainingConfig
from fedslice.core.config import Table


class ClientConfig(Table):
    """The tables that say what is learned, on what and how."""

    task: TaskConfig = Field(default_factory=ShuttleConfig)
    partition: PartitionConfig = Field(default_factory=IidConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
