"""Deals the examples of a data set to nodes: disjoint, complete, and no node with none."""

import heapq
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedslice.core.config import Table
from fedslice.core.errors import UsageError

Ints = npt.NDArray[np.int64]


class IidConfig(Table):
    """Every node gets an equal share, drawn at random."""

    scheme: Literal["iid"] = "iid"


class DirichletConfig(Table):
    """Each label is dealt in proportions drawn from a Dirichlet; the smaller `alpha`, the less alike the nodes."""

    scheme: Literal["dirichlet"] = "dirichlet"
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.3


class ByGroupConfig(Table):
    """A group (plant, engine, bearing) stays whole: nodes hold different machines."""

    scheme: Literal["by_group"] = "by_group"


PartitionConfig = Annotated[IidConfig | DirichletConfig | ByGroupConfig, Field(discriminator="scheme")]


def partition(config: PartitionConfig, labels: Ints, groups: Ints, num_nodes: int, rng: np.random.Generator) -> list[Ints]:
    """Return which examples each node holds.

    Args:
        config: The scheme and its settings.
        labels: What `dirichlet` skews, (examples,).
        groups: What `by_group` keeps together, (examples,).
        num_nodes: How many nodes to deal to, at least one.
        rng: The source of every draw; `by_group` draws nothing.

    Returns:
        One sorted int64 array of indices a node: every example is in exactly one, and none is empty.

    Raises:
        UsageError: There are fewer examples than nodes or, by group, fewer groups.
    """
    if num_nodes < 1:
        raise UsageError(f"partition: at least one node is needed, not {num_nodes}")
    if len(labels) < num_nodes:
        raise UsageError(f"partition: {len(labels)} examples cannot be dealt to {num_nodes} nodes; lower the number of nodes")
    if isinstance(config, ByGroupConfig):
        nodes = _by_group(groups, num_nodes)
    elif isinstance(config, DirichletConfig):
        nodes = _dirichlet(labels, num_nodes, config.alpha, rng)
    else:
        nodes = _iid(len(labels), num_nodes, rng)
    order = np.argsort(nodes, kind="stable")  # stable, so that the indices of a node stay sorted
    return np.split(order, np.cumsum(np.bincount(nodes, minlength=num_nodes))[:-1])


def _iid(num_examples: int, num_nodes: int, rng: np.random.Generator) -> Ints:
    """Return the node of each example: shares differ by one example at most."""
    return rng.permutation(np.arange(num_examples) % num_nodes)


def _dirichlet(labels: Ints, num_nodes: int, alpha: float, rng: np.random.Generator) -> Ints:
    """Return the node of each example: a draw of proportions for each label."""
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    nodes = np.empty(len(labels), np.int64)
    for members in np.split(by_label, np.cumsum(np.unique(labels, return_counts=True)[1])[:-1]):
        ends = np.cumsum(_proportions(num_nodes, alpha, rng))
        # The middle of each example's stretch of [0, 1]; the last sum may fall short of 1 by rounding.
        middles = (np.arange(len(members)) + 0.5) / len(members)
        nodes[members] = np.minimum(np.searchsorted(ends, middles), num_nodes - 1)
    _fill_empty(nodes, num_nodes, shuffled)
    return nodes


def _proportions(num_nodes: int, alpha: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return one draw of a symmetric Dirichlet.

    At a small alpha gamma variates underflow to zero, all of them at once, and their ratio is NaN. So they are
    drawn as logarithms: Gamma(alpha) is Gamma(alpha + 1) times U^(1 / alpha).
    """
    uniform = 1.0 - rng.random(num_nodes)  # in (0, 1]
    # As large as alpha may be, its gamma variates have finite logarithms; as small, 1 / alpha may not: hence the floor.
    logs = np.log(rng.standard_gamma(alpha + 1.0, num_nodes)) + np.log(uniform) / max(alpha, 1e-300)
    shares: npt.NDArray[np.float64] = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def _fill_empty(nodes: Ints, num_nodes: int, shuffled: Ints) -> None:
    """Give each empty node one example of the node that then holds most, in place."""
    counts = np.bincount(nodes, minlength=num_nodes)
    if counts.all():
        return
    # In shuffled order, so that what is given away has no common label.
    order = shuffled[np.argsort(nodes[shuffled], kind="stable")]
    held = np.split(order, np.cumsum(counts)[:-1])
    largest = [(-count, node) for node, count in enumerate(counts.tolist()) if count]
    heapq.heapify(largest)
    for empty in np.flatnonzero(counts == 0).tolist():
        negative, donor = largest[0]  # a heap gives the least first, so counts are negative in it
        nodes[held[donor][-negative - 1]] = empty
        heapq.heapreplace(largest, (negative + 1, donor))


def _by_group(groups: Ints, num_nodes: int) -> Ints:
    """Return the node of each example: the largest group left goes to the node that holds least."""
    names, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < num_nodes:
        raise UsageError(f"partition: by_group cannot deal {len(names)} groups to {num_nodes} nodes; lower the number of nodes")
    loads = [(0, node) for node in range(num_nodes)]
    node_of = np.empty(len(names), np.int64)
    for group in np.argsort(-sizes, kind="stable").tolist():
        load, node = loads[0]
        node_of[group] = node
        heapq.heapreplace(loads, (load + int(sizes[group]), node))
    return node_of[index]
