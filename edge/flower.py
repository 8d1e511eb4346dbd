"""The one file that touches what Flower keeps private, and the bridge between its arrays and ours.

Pinned to flwr 1.42 and held by `tests/integration/test_flower_contract.py`.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, Metadata, RecordDict
from flwr.supercore.run import Run as Run
from flwr.supercore.task_identity import TaskIdentity

from fedslice.core.params import Array as NumpyArray
from fedslice.core.params import Params, dtype_name, dtype_of

COORDINATOR_ID = 1
_METADATA = (
    "run_id",
    "message_id",
    "src_node_id",
    "dst_node_id",
    "reply_to_message_id",
    "group_id",
    "created_at",
    "ttl",
    "message_type",
    "src_task_id",
    "dst_task_id",
)
_NPY_HEADER_BYTES = 128
_ARRAY_OVERHEAD_BYTES = 40
_SCALAR_BYTES = 11


class LazyArray(Array):
    """A Flower array that stays a numpy array, and turns into bytes only where somebody asks for them."""

    # Flower writes a class's name in front of its bytes and looks it up when it reads them.
    __qualname__ = "Array"

    def __init__(self, array: NumpyArray) -> None:
        """Hold the array; nothing is copied, and nobody may write through it."""
        view = array.view()
        view.flags.writeable = False
        self.__dict__["view"] = view
        self.__dict__.update(dtype=dtype_name(array.dtype), shape=array.shape, stype="numpy.ndarray")

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """Return the bytes of an `.npy` file; bfloat16, which that format lacks, as 16-bit integers."""
        buffer = BytesIO()
        view: NumpyArray = self.__dict__["view"]
        np.save(buffer, view.view(np.uint16) if self.dtype == "bfloat16" else view, allow_pickle=False)
        return buffer.getvalue()

    def numpy(self) -> NumpyArray:
        """Return a copy that may be written, as Flower's own arrays do."""
        return np.array(self.__dict__["view"])

    def __reduce__(self) -> tuple[type[Array], tuple[str, tuple[int, ...], str, bytes]]:
        """Travel between Flower's own processes as one of its own arrays."""
        return Array, (self.dtype, self.shape, self.stype, self.data)


def to_record(arrays: Params) -> ArrayRecord:
    """Return parameters as a Flower record without copying them."""
    return record_of({name: LazyArray(array) for name, array in arrays.items()})


def record_of(arrays: Mapping[str, Array]) -> ArrayRecord:
    """Return a Flower record of Flower arrays, past its checks: they cost more than all else of a small update."""
    record = ArrayRecord()
    record.__dict__["_data"] = dict(arrays)
    return record


def to_params(record: ArrayRecord) -> dict[str, NumpyArray]:
    """Return a record's parameters, read-only where they could be shared.

    Raises:
        ValueError: An entry's bytes are not an array.
    """
    return {name: _to_numpy(name, array) for name, array in record.items()}


def _to_numpy(name: str, array: Array) -> NumpyArray:
    if isinstance(array, LazyArray):
        view: NumpyArray = array.__dict__["view"]
        return view
    try:
        # Not np.load, which would open archives too.
        decoded: NumpyArray = np.lib.format.read_array(BytesIO(array.data), allow_pickle=False)
    except Exception as error:
        raise ValueError(f"entry {name} is not an array: {error}") from error
    # Ours come as 16-bit integers; a bfloat16 array that Flower itself has written, as two bytes of anything.
    is_bfloat16 = array.dtype == "bfloat16" and decoded.dtype in (np.uint16, np.dtype("V2"))
    return decoded.view(dtype_of("bfloat16")) if is_bfloat16 else decoded


def content_bytes(content: RecordDict) -> int:
    """Return the bytes that a message's content takes on a wire, without writing them.

    Within 1 % of Flower's own serialisation for any model of more than a few kilobytes.
    """
    total = 0
    for key, record in content.items():
        total += len(key)
        for name, value in record.items():
            total += len(name) + _value_bytes(value)
    return total


def _value_bytes(value: Any) -> int:
    if isinstance(value, LazyArray):
        return int(value.__dict__["view"].nbytes) + _NPY_HEADER_BYTES + _ARRAY_OVERHEAD_BYTES
    if isinstance(value, Array):
        return len(value.data) + _ARRAY_OVERHEAD_BYTES
    if isinstance(value, list):
        return sum(_value_bytes(item) for item in value)
    return len(value) + 2 if isinstance(value, str | bytes) else _SCALAR_BYTES


def begin_run(run_id: int) -> Run:
    """Return a run and make this process its coordinator; without that Flower builds no instruction."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run_id, COORDINATOR_ID
    return Run.create_empty(run_id)


def set_message_id(message: Message, message_id: str) -> None:
    """Name an instruction, which Flower lets only its own servers do."""
    message.metadata.__dict__["_message_id"] = message_id


def metadata_fields(message: Message) -> dict[str, Any]:
    """Return an instruction's metadata as plain values."""
    return {name: getattr(message.metadata, name) for name in _METADATA}


def received(fields: dict[str, Any], content: RecordDict) -> Message:
    """Return an instruction as its receiver has it: its records are its own to change, the arrays' memory is shared."""
    own = content.copy()
    for key, record in content.items():
        own[key] = record.copy()
    return Message(metadata=Metadata(**fields), content=own)  # type: ignore[call-overload,no-any-return]


def error_reply(instruction: Message, code: int, reason: str) -> Message:
    """Return the reply that says why there is no other."""
    return Message(Error(code=code, reason=reason), reply_to=instruction)
