"""The Flower ClientApp: train, evaluate, and three queries with which a federation begins.

The same code answers for a simulated node, an edge gateway and a node of Flower's own engine.
"""

from flwr.app import ConfigRecord, ConfigRecordValues, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from client import scaling
from client.session import Session, session
from edge.flower import to_params, to_record
from fedslice.core.errors import UsageError
from fedslice.core.params import Kind, Params, difference, kind_text, shared
from fedslice.core.records import NodeId

app = ClientApp()


@app.query("describe")
def describe(message: Message, context: Context) -> Message:
    """Say who this node is: its id, its role, its slice and how much data it holds."""
    known, node = _who(context)
    evaluator = node >= known.nodes.count
    report: dict[str, ConfigRecordValues] = {
        "node": node,
        "role": "evaluate" if evaluator else "train",
        "slice": "" if evaluator else known.slices[node],
        "num-examples": 0 if evaluator else len(known.parts[node]),
        "num-processed": 0 if evaluator else known.work(node),
    }
    return Message(RecordDict({"report": ConfigRecord(report)}), reply_to=message)


@app.query("sums")
def sums(message: Message, context: Context) -> Message:
    """Send counts, sums and sums of squares of the features, from which the nodes' common scale is made."""
    known, node = _who(context)
    x, _ = known.examples(node)
    return Message(RecordDict({"arrays": to_record(scaling.sums(x))}), reply_to=message)


@app.query("init")
def init(message: Message, context: Context) -> Message:
    """Send the initial model with its kinds, and how the task is judged. Any node would send the same bytes."""
    known, _ = _who(context)
    model = known.initial_model(to_params(message.content.array_records["totals"]))
    sent = shared(model.arrays, model.entries)
    kinds: dict[str, ConfigRecordValues] = {name: kind_text(model.entries[name]) for name in sent}
    content = RecordDict()
    content["arrays"] = to_record(sent)
    content["kinds"] = ConfigRecord(kinds)
    content["better"] = ConfigRecord({**known.task.better})
    return Message(content, reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on this node's data and send the difference."""
    known, node = _who(context)
    base = _whole(known, message, context)
    round_number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
    result = known.train(node, base, round_number)
    _keep_local(known, result.arrays, context)
    sent = shared(result.arrays, known.entries)
    changes = {name: difference(array, base[name], known.entries[name]) for name, array in sent.items()}
    content = RecordDict()
    content["arrays"] = to_record(changes)
    content["metrics"] = MetricRecord({"num-examples": len(known.parts[node]), "train_loss": result.loss})
    content["report"] = ConfigRecord({"node": node, "carries": "difference"})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Measure the model on the test part, if this is the evaluator, or else on this node's own data."""
    known, node = _who(context)
    measured, num_examples = known.evaluate(node, _whole(known, message, context))
    content = RecordDict({"metrics": MetricRecord({"num-examples": num_examples, **measured})})
    return Message(content, reply_to=message)


def _who(context: Context) -> tuple[Session, NodeId]:
    known = session(context.run_config)
    node = context.node_config.get("partition-id")
    if not isinstance(node, int) or not 0 <= node <= known.nodes.count:
        count = known.nodes.count
        raise UsageError(f"a node needs a partition-id from 0 to {count - 1}, or {count} for the evaluator; it has {node!r}")
    return known, node


def _whole(known: Session, message: Message, context: Context) -> Params:
    """Return the model that came, completed by the layers that never leave this node."""
    received = to_params(message.content.array_records["arrays"])
    personal = [name for name, entry in known.entries.items() if entry.kind is Kind.LOCAL]
    if not personal:
        return received
    kept = to_params(context.state.array_records["local"]) if "local" in context.state else known.initial_model({}).arrays
    return {**received, **{name: kept[name] for name in personal}}


def _keep_local(known: Session, arrays: Params, context: Context) -> None:
    personal = {name: array for name, array in arrays.items() if known.entries[name].kind is Kind.LOCAL}
    if personal:
        context.state["local"] = to_record(personal)
