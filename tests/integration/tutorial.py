"""An app as Flower's PyTorch tutorial writes it: a task, a ClientApp and a ServerApp that know nothing of FedSlice."""

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# ---------------------------------------------------------------- task.py


class Net(nn.Module):
    def __init__(self, normed: bool = True) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.bn = nn.BatchNorm1d(32) if normed else nn.Identity()
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.fc2(F.relu(self.bn(self.fc1(x))))
        return hidden


def load_data(partition_id: int, num_partitions: int) -> tuple[DataLoader[tuple[torch.Tensor, ...]], ...]:
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32)[partition_id::num_partitions]
    y = torch.tensor(labels)[partition_id::num_partitions]
    cut = int(0.8 * len(x))
    train_set, test_set = TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:])
    return DataLoader(train_set, batch_size=16, shuffle=True), DataLoader(test_set, batch_size=64)


def train_fn(net: nn.Module, trainloader: DataLoader[tuple[torch.Tensor, ...]], epochs: int, lr: float) -> float:
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / len(trainloader)


def test_fn(net: nn.Module, testloader: DataLoader[tuple[torch.Tensor, ...]]) -> tuple[float, float, int]:
    correct, loss, seen = 0, 0.0, 0
    net.eval()
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images)
            loss += float(F.cross_entropy(outputs, labels, reduction="sum"))
            correct += int((outputs.argmax(1) == labels).sum())
            seen += len(labels)
    return loss / seen, correct / seen, seen


# ---------------------------------------------------------- client_app.py

client_app = ClientApp()


@client_app.train()
def train(msg: Message, context: Context) -> Message:
    # Load the model and initialize it with the received weights
    model = Net(bool(context.run_config["normed"]))
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]

    # Load the data
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    trainloader, _ = load_data(partition_id, num_partitions)  # type: ignore[arg-type]

    # Call the training function
    train_loss = train_fn(model, trainloader, context.run_config["local-epochs"], context.run_config["lr"])  # type: ignore[arg-type]

    # Construct and return reply Message
    model_record = ArrayRecord(model.state_dict())
    metrics = MetricRecord({"train_loss": train_loss, "num-examples": len(trainloader.dataset)})  # type: ignore[arg-type]
    content = RecordDict({"arrays": model_record, "metrics": metrics})
    return Message(content=content, reply_to=msg)


@client_app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = Net(bool(context.run_config["normed"]))
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
    _, valloader = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])  # type: ignore[arg-type]
    eval_loss, eval_acc, num_examples = test_fn(model, valloader)
    metrics = MetricRecord({"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": num_examples})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)


# ---------------------------------------------------------- server_app.py

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    # Load global model
    global_model = Net(bool(context.run_config["normed"]))
    arrays = ArrayRecord(global_model.state_dict())

    # Initialize FedAvg strategy
    strategy = FedAvg(fraction_train=context.run_config["fraction-train"])  # type: ignore[arg-type]

    # Start strategy, run FedAvg for `num_rounds`
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["lr"]}),
        num_rounds=context.run_config["num-server-rounds"],  # type: ignore[arg-type]
    )

    # Keep the final model
    context.state["arrays"] = result.arrays
    context.state["accuracy"] = result.evaluate_metrics_clientapp[context.run_config["num-server-rounds"]]  # type: ignore[index]


RUN_CONFIG = {"normed": True, "local-epochs": 1, "lr": 0.1, "fraction-train": 0.6, "num-server-rounds": 3}
