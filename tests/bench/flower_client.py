"""A client as Flower's PyTorch tutorial writes one, for the same nodes: what Ray's actors import."""

from functools import lru_cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from client.session import Session
from tests.bench import simulate as bench

app = ClientApp()


@lru_cache(maxsize=1)
def _known() -> Session:
    torch.set_num_threads(1)
    return bench.known()


@lru_cache(maxsize=128)
def _data(node: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = _known().examples(node)
    return torch.from_numpy(x), torch.from_numpy(y)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train on this partition."""
    known = _known()
    x, y = _data(int(context.node_config["partition-id"]))
    model = known.task.model()
    bench._train_plainly(model, msg.content.array_records["arrays"].to_torch_state_dict(), x, y, known)
    metrics = MetricRecord({"num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=msg)
