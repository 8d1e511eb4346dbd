"""What a process knows of a federation's task: loaded once, whatever the number of nodes in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from client.config import ClientConfig
from client.partition import partition
from client.scaling import fill
from client.tasks import Dataset, Task
from client.trainers import Job, LocalTrainer, Result, examples_processed
from client.trainers.memory import isolated, numpy_views
from edge.slices import NodesConfig, profiles
from fedslice.core.config import RunConfig
from fedslice.core.federation import FederationConfig
from fedslice.core.params import Entry, Model, Params, describe
from fedslice.core.records import NodeId
from fedslice.core.seeds import derived_seed, rng


class _Tables(ClientConfig):
    """A node's own tables, and those that it shares with the coordinator."""

    federation: FederationConfig = FederationConfig()
    nodes: NodesConfig = NodesConfig()


@dataclass(frozen=True)
class Session:
    """The task, its data dealt out to nodes, and the trainer."""

    config: ClientConfig
    nodes: NodesConfig
    seed: int
    data: Path | None

    @cached_property
    def task(self) -> Task:
        """Return the task."""
        return self.config.task.build()

    @cached_property
    def dataset(self) -> Dataset:
        """Return the whole data set."""
        return self.task.load(self.data)

    @cached_property
    def parts(self) -> list[npt.NDArray[np.int64]]:
        """Return which examples each node holds."""
        draws = rng(self.seed, "partition")
        return partition(self.config.partition, self.dataset.labels, self.dataset.groups, self.nodes.count, draws)

    @cached_property
    def slices(self) -> list[str]:
        """Return the slice of each node."""
        return [profile.slice for profile in profiles(self.nodes, self.seed)]

    @cached_property
    def _module(self) -> torch.nn.Module:
        with isolated(derived_seed(self.seed, "init")):
            return self.task.model()

    @cached_property
    def _trainer(self) -> LocalTrainer:
        return LocalTrainer(self._module, self.task.loss, self.config.training)

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """Return what each entry of the model is."""
        return describe(numpy_views(self._module), self.task.kinds())

    def initial_model(self, totals: Mapping[str, npt.NDArray[np.float64]]) -> Model:
        """Return the seeded model, scaled by the federation's totals: the same bytes on every node."""
        # Its optimizer makes torch load for a second: better here, once, than in every worker that is forked later.
        _ = self._trainer
        with isolated(derived_seed(self.seed, "init")):
            module = self.task.model()
        fill(module, totals)
        return Model({name: view.copy() for name, view in numpy_views(module).items()}, self.entries)

    def work(self, node: NodeId) -> int:
        """Return how many examples a round makes a node compute on, as foretold from the config."""
        return examples_processed(self.config.training, len(self.parts[node]))

    @cached_property
    def _dealt(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], list[slice]]:
        """Return the training part sorted by node, so that what a node holds is a view and not a copy a round."""
        order = np.concatenate(self.parts)
        ends = np.cumsum([len(part) for part in self.parts])
        slices = [slice(int(end) - len(part), int(end)) for end, part in zip(ends, self.parts, strict=True)]
        return self.dataset.x[order], self.dataset.y[order], slices

    def examples(self, node: NodeId) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return a node's x and y, or the test part for the evaluator."""
        if node >= self.nodes.count:
            return self.dataset.test_x, self.dataset.test_y
        x, y, slices = self._dealt
        return x[slices[node]], y[slices[node]]

    def train(self, node: NodeId, arrays: Params, round_number: int) -> Result:
        """Return a node's result of one round."""
        x, y = self.examples(node)
        job = Job(arrays, x, y, derived_seed(self.seed, "train", round_number, node))
        return next(self._trainer.train([job]))

    def evaluate(self, node: NodeId, arrays: Params) -> tuple[dict[str, float], int]:
        """Return the model's metrics and loss on what a node holds, and the number of examples."""
        x, y = self.examples(node)
        with isolated(0), torch.no_grad():
            for name, view in numpy_views(self._module).items():
                np.copyto(view, arrays[name])
            self._module.eval()
            outputs = self._module(torch.from_numpy(x))
            loss = float(self.task.loss(outputs, torch.from_numpy(y)))
            # A model that has diverged is measured, not refused: its metrics are then NaN or poor.
            return {"loss": loss, **self.task.metrics(outputs.numpy(), y)}, len(x)


def session(run_config: Mapping[str, Any]) -> Session:
    """Return this process's session for a run's config."""
    # Where the coordinator writes is not a node's business: runs that differ in nothing else share what was loaded.
    return _session(RunConfig.of({**run_config, "out": ""}))


@lru_cache(maxsize=4)
def _session(run: RunConfig) -> Session:
    tables = run.section(_Tables)
    return Session(tables, tables.nodes, tables.federation.seed, Path(run.data) if run.data else None)
