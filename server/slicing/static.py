"""Static: the slices' own ratios rule, as if nobody learned here."""

from typing import Literal

from fedslice.core.config import Table
from fedslice.core.federation import FederationConfig


class StaticConfig(Table):
    """Nothing to choose."""

    policy: Literal["static"] = "static"

    def build(self, federation: FederationConfig) -> None:
        """Return no policy: there is nothing to steer."""
