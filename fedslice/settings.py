"""The whole config: the tables of coordinator and nodes together, so that a key nobody knows is found."""

from client.config import ClientConfig
from fedslice.core.config import RunConfig
from server.config import ServerConfig


class Settings(ClientConfig, ServerConfig):
    """Every table that there is."""


def checked(run: RunConfig) -> Settings:
    """Return the config with every default filled in.

    Raises:
        UsageError: The file cannot be read, or a key or a value is wrong.
    """
    return run.whole(Settings)
