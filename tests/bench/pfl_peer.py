"""The same federation in pfl-research, by its public interface."""

import time
from typing import Any

import torch

from client.session import Session


class _Net(torch.nn.Module):
    """A task's model as pfl wants one: with its loss and metrics."""

    def __init__(self, known: Session) -> None:
        super().__init__()
        self.known, self.net = known, known.task.model()

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        return self.known.task.loss(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"loss": Weighted(float(self.loss(x, y)) * len(x), len(x))}


def _clock(times: list[float]) -> Any:
    """Return a callback that notes the seconds of each iteration."""
    from pfl.callback.base import TrainingProcessCallback
    from pfl.metrics import Metrics

    class Clock(TrainingProcessCallback):  # type: ignore[misc,unused-ignore]
        began = 0.0

        def on_train_begin(self, *, model: Any) -> Any:
            self.began = time.perf_counter()
            return Metrics()

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
            now = time.perf_counter()
            times.append(now - self.began)
            self.began = now
            return False, Metrics()

    return Clock()


def run(known: Session, rounds: int) -> list[float]:
    """Return the seconds of each central iteration over all nodes."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    from tests.bench import simulate as bench

    times: list[float] = []

    data = {node: tuple(map(torch.from_numpy, known.examples(node))) for node in range(bench.NODES)}
    sampler = get_user_sampler("minimize_reuse", list(data))
    users = FederatedDataset(lambda user: PyTorchTensorDataset(tensors=data[user], user_id=str(user)), sampler)
    net = _Net(known)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    model = PyTorchModel(
        net, lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=bench.MOMENTUM), central_optimizer=optimizer
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=10**6, train_cohort_size=bench.NODES, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=None, local_learning_rate=bench.LR, local_batch_size=bench.BATCH, local_num_steps=bench.STEPS
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=bench.BATCH),
        callbacks=[_clock(times)],
    )
    return times
