"""What kinds of node there are, and which kind each node is."""

from typing import Annotated

from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.seeds import rng

Positive = Annotated[float, Field(ge=1e-3, le=1e15)]
Watts = Annotated[float, Field(ge=0, le=1e6)]


class NodeProfile(Table):
    """A kind of node: its slice, its speed and its power; how far from the antenna it is, and how fast it moves.

    Without `distance_m` each node of the kind is placed somewhere on the floor.
    """

    name: str
    slice: str
    share: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    examples_per_s: Positive = 20_000.0
    idle_w: Watts = 2.0
    compute_w: Watts = 6.0
    transmit_w: Watts = 2.5
    weight: Positive = 1.0  # the pace at which it is served within its slice
    distance_m: Annotated[float, Field(gt=0)] | None = None
    speed_m_s: Annotated[float, Field(ge=0, le=150)] = 0.0


_DEFAULT = [
    NodeProfile(name="gateway", slice="embb", share=5),
    NodeProfile(name="controller", slice="urllc", share=2, examples_per_s=8_000, compute_w=4),
    NodeProfile(name="sensor", slice="mmtc", share=3, examples_per_s=2_500, idle_w=0.3, compute_w=1.5, transmit_w=0.8),
]


class NodesConfig(Table):
    """How many nodes there are, and of which kinds."""

    count: Annotated[int, Field(ge=1, le=100_000)] = 10
    profiles: Annotated[list[NodeProfile], Field(min_length=1)] = _DEFAULT


def profiles(config: NodesConfig, seed: int) -> list[NodeProfile]:
    """Return the profile of each node, dealt by share and then shuffled by the seed."""
    total = sum(profile.share for profile in config.profiles)
    exact = [config.count * profile.share / total for profile in config.profiles]
    counts = [int(share) for share in exact]
    # Largest remainder: the shares are met as closely as whole nodes allow.
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: config.count - sum(counts)]:
        counts[i] += 1
    dealt = [profile for profile, count in zip(config.profiles, counts, strict=True) for _ in range(count)]
    return [dealt[i] for i in rng(seed, "profiles").permutation(config.count)]
