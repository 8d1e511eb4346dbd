"""All that edge/flower.py takes from Flower's private parts: if a new Flower changes any of it, this says so."""

import inspect
import pickle
from collections.abc import Callable
from importlib.metadata import version
from io import BytesIO
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from edge.flower import (
    COORDINATOR_ID,
    LazyArray,
    Run,
    begin_run,
    content_bytes,
    error_reply,
    metadata_fields,
    received,
    set_message_id,
    to_params,
    to_record,
)

Floats = np.ndarray[Any, np.dtype[Any]]

ARRAYS: dict[str, Floats] = {
    "float32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "float16": np.array([1.5, -0.25, 6e4], np.float16),
    "bfloat16": np.array([[1.5, -2.25], [3e38, 1e-38]], ml_dtypes.bfloat16),
    "float64": np.array([np.pi, np.nan, np.inf]),
    "int64": np.array([2**62, -(2**62)]),
    "uint8": np.arange(5, dtype=np.uint8),
    "bool": np.array([True, False]),
    "complex64": np.array([1 + 2j], np.complex64),
    "0-dimensional": np.array(7, np.int64),
    "0-dimensional bfloat16": np.array(0.5, ml_dtypes.bfloat16),
    "empty": np.empty((0, 3), np.float32),
    "empty bfloat16": np.empty((2, 0), ml_dtypes.bfloat16),
    "strided": np.arange(20, dtype=np.float32).reshape(4, 5)[::2, ::-1],
    "Fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
}


def _instruction(content: RecordDict | None = None) -> Message:
    begin_run(5)
    message = Message(content or RecordDict({"config": ConfigRecord({"server-round": 1})}), 9, "train", group_id="g", ttl=60)
    set_message_id(message, "42")
    return message


def _inflated(message: Message) -> Message:
    """Carry a message as Flower's own servers do: as a tree of objects named by their hash."""
    objects = get_all_nested_objects(message)
    contents = {name: thing.deflate() for name, thing in objects.items()}
    carried = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(carried, Message)
    return carried


def _through_protobuf(message: Message) -> Message:
    return message_from_proto(ProtoMessage.FromString(message_to_proto(message).SerializeToString()))


def _through_pickle(message: Message) -> Message:
    """Carry a message as Ray does between Flower's simulation and its nodes."""
    carried = pickle.loads(pickle.dumps(message.content))  # noqa: S301 - our own bytes
    return Message(metadata=message.metadata, content=carried)  # type: ignore[call-overload,no-any-return]


CARRIERS: list[Callable[[Message], Message]] = [_inflated, _through_protobuf, _through_pickle]


def test_flower_is_the_one_that_this_was_written_for() -> None:
    assert version("flwr").startswith("1.42.")


def test_without_an_identity_flower_builds_no_instruction_and_begin_run_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_task_id", "_run_id", "_node_id"):
        assert hasattr(TaskIdentity, name)
        monkeypatch.setattr(TaskIdentity, name, None)
    with pytest.raises(RuntimeError, match="TaskIdentity"):
        Message(RecordDict(), 2, "train")
    run = begin_run(17)
    assert isinstance(run, Run)
    assert run.run_id == 17
    metadata = Message(RecordDict(), 2, "train").metadata
    assert (metadata.run_id, metadata.src_node_id, metadata.dst_node_id) == (17, COORDINATOR_ID, 2)


def test_metadata_has_the_fields_that_we_carry_and_no_other() -> None:
    message = _instruction()
    assert list(metadata_fields(message)) == list(inspect.signature(Metadata.__init__).parameters)[1:]


def test_an_instruction_is_rebuilt_from_its_metadata() -> None:
    message = _instruction()
    again = received(metadata_fields(message), message.content)
    assert metadata_fields(again) == metadata_fields(message)
    assert again.content == message.content
    reply = Message(RecordDict(), reply_to=again)
    assert reply.metadata.reply_to_message_id == "42"
    assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (9, COORDINATOR_ID)


def test_a_receiver_may_change_its_records_and_nobody_else_sees_it() -> None:
    message = _instruction(RecordDict({"arrays": to_record(ARRAYS), "config": ConfigRecord({"lr": 0.1})}))
    own = received(metadata_fields(message), message.content)
    own.content["arrays"].clear()
    own.content.config_records["config"]["lr"] = 0.2
    del own.content["config"]
    assert list(message.content.array_records["arrays"]) == list(ARRAYS)
    assert message.content.config_records["config"]["lr"] == 0.1


def test_a_name_given_to_an_instruction_is_its_id() -> None:
    message = _instruction()
    assert message.metadata.message_id == "42"
    set_message_id(message, "43")
    assert message.metadata.message_id == "43"


def test_an_error_reply_names_its_node_and_says_why() -> None:
    reply = error_reply(_instruction(), ErrorCode.NODE_UNAVAILABLE, "gone")
    assert reply.has_error()
    assert (reply.error.code, reply.error.reason) == (ErrorCode.NODE_UNAVAILABLE, "gone")
    assert (reply.metadata.src_node_id, reply.metadata.reply_to_message_id) == (9, "42")


@pytest.mark.parametrize("carry", CARRIERS)
@pytest.mark.parametrize("name", ARRAYS)
def test_a_lazy_array_arrives_as_one_of_flowers_own(name: str, carry: Callable[[Message], Message]) -> None:
    array = ARRAYS[name]
    content = carry(_instruction(RecordDict({"arrays": to_record({"w": array})}))).content
    carried = content.array_records["arrays"]["w"]
    assert type(carried) is Array
    assert (carried.dtype, carried.shape, carried.stype) == (str(array.dtype), array.shape, "numpy.ndarray")
    decoded = to_params(content.array_records["arrays"])["w"]
    assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
    assert decoded.tobytes() == array.tobytes()


@pytest.mark.parametrize("carry", CARRIERS)
def test_a_whole_content_arrives_in_its_order(carry: Callable[[Message], Message]) -> None:
    content = RecordDict()
    content["config"] = ConfigRecord(
        {"text": "ä", "bytes": b"\x00\xff", "flags": [True, False], "names": ["b", "a"], "none": [""]}
    )
    content["arrays"] = to_record(ARRAYS)
    content["metrics"] = MetricRecord({"loss": 0.1, "steps": 2**53 + 1, "all": [0.1, float("inf")]})
    carried = carry(_instruction(content)).content
    assert list(carried.array_records["arrays"]) == list(ARRAYS)
    assert carried.config_records == content.config_records
    assert carried.metric_records == content.metric_records


def test_a_lazy_array_bears_flowers_name_for_arrays() -> None:
    assert LazyArray.__qualname__ == Array.__qualname__
    assert LazyArray(ARRAYS["float32"]).deflate() == Array(ARRAYS["float32"]).deflate()
    assert LazyArray(ARRAYS["float32"]).object_id == Array(ARRAYS["float32"]).object_id


def test_a_record_filled_past_flowers_checks_is_a_record_like_any_other() -> None:
    record, checked = to_record(ARRAYS), ArrayRecord()
    for name, array in ARRAYS.items():
        checked[name] = LazyArray(array)
    assert "_data" in vars(checked)
    assert record.object_id == checked.object_id
    assert list(record.keys()) == list(checked.keys())
    assert all(isinstance(value, Array) for value in record.values())
    with pytest.raises(TypeError):
        record["w"] = np.zeros(1)  # type: ignore[assignment]
    assert list(record.copy()) == list(ARRAYS)


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_gives_a_copy_that_may_be_written_and_the_view_may_not(name: str) -> None:
    array = np.array(ARRAYS[name])
    lazy = LazyArray(array)
    copied = lazy.numpy()
    copied[...] = 0
    assert lazy.numpy().tobytes() == ARRAYS[name].tobytes()
    view = to_params(to_record({"w": array}))["w"]
    assert np.shares_memory(view, array) or not array.size
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[...] = 0
    assert array.flags.writeable


def test_torch_gets_tensors_that_share_nothing() -> None:
    array = np.ones(3, np.float32)
    to_record({"w": array}).to_torch_state_dict()["w"].zero_()
    assert array.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ARRAYS)
def test_flowers_own_arrays_are_decoded(name: str) -> None:
    array = ARRAYS[name]
    decoded = to_params(ArrayRecord({"w": Array(array)}))["w"]
    assert (decoded.dtype, decoded.shape, decoded.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_a_state_dict_is_decoded() -> None:
    module = torch.nn.BatchNorm1d(3)
    decoded = to_params(ArrayRecord(module.state_dict()))
    assert {name: (str(a.dtype), a.shape) for name, a in decoded.items()} == {
        "weight": ("float32", (3,)),
        "bias": ("float32", (3,)),
        "running_mean": ("float32", (3,)),
        "running_var": ("float32", (3,)),
        "num_batches_tracked": ("int64", ()),
    }


def _npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


UNREADABLE = {
    "nothing": b"",
    "noise": b"\x00" * 200,
    "text": b"no array at all",
    "cut in the head": _npy(ARRAYS["float32"])[:40],
    "cut in the body": _npy(ARRAYS["float32"])[:-1],
    "a pickle": _npy(np.array([{"a": 1}], object), allow_pickle=True),
    "a huge claim": _npy(ARRAYS["float32"]).replace(b"(3, 4), }" + b" " * 12, b"(3000000000000, 4), }"),
    "an archive": b"PK\x03\x04" + b"\x00" * 100,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_bytes_that_are_no_array_are_a_value_error(name: str) -> None:
    record = ArrayRecord({"w": Array("float32", (3, 4), "numpy.ndarray", UNREADABLE[name])})
    with pytest.raises(ValueError, match="entry w is not an array"):
        to_params(record)


def test_bytes_are_counted_as_flower_would_write_them() -> None:
    arrays = {f"layer{i}.weight": np.zeros((50, 40), np.float32) for i in range(8)} | {"n": np.array(1)}
    content = RecordDict({"arrays": to_record(arrays), "metrics": MetricRecord({"num-examples": 10, "train_loss": 0.5})})
    with_content, without = _instruction(content), _instruction(RecordDict())
    written = len(message_to_proto(with_content).SerializeToString()) - len(message_to_proto(without).SerializeToString())
    assert content_bytes(content) == pytest.approx(written, rel=0.01)
    own = RecordDict({"arrays": ArrayRecord({n: Array(a) for n, a in arrays.items()}), "metrics": content["metrics"]})
    assert content_bytes(own) == content_bytes(content)
