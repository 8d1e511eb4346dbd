"""Messages between this process and its workers: arrays in shared memory, the rest as JSON. No pickle."""

import base64
import json
import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from edge.flower import LazyArray, record_of
from fedslice.core.params import dtype_name, dtype_of

_ALIGNMENT = 64
_RECORDS = {"metrics": MetricRecord, "config": ConfigRecord}


class RegionFullError(Exception):
    """The shared memory is too small; `needed` bytes would do."""

    def __init__(self, needed: int) -> None:
        """Say how much is needed."""
        super().__init__(f"{needed} bytes needed")
        self.needed = needed


def pack(content: RecordDict, region: mmap.mmap, offset: int) -> tuple[list[Any], int]:
    """Put a content's arrays into shared memory.

    Returns:
        A JSON-ready description of the content, and the first free offset behind its arrays.

    Raises:
        RegionFullError: They do not fit. Nothing was written.
    """
    described: list[Any] = []
    copies: list[tuple[int, np.ndarray[Any, Any]]] = []
    for key, record in content.items():
        if not isinstance(record, ArrayRecord):
            kind = "metrics" if isinstance(record, MetricRecord) else "config"
            described.append([key, kind, {name: _plain(value) for name, value in record.items()}])
            continue
        entries = []
        for name, array in record.items():
            held, stype = _held(array)
            entries.append([name, array.dtype, array.shape, offset, stype, held.nbytes])
            copies.append((offset, held))
            offset += -(-held.nbytes // _ALIGNMENT) * _ALIGNMENT
        described.append([key, "arrays", entries])
    if offset > len(region):
        raise RegionFullError(offset)
    for start, held in copies:
        _at(region, dtype_name(held.dtype), held.shape, start)[...] = held
    return described, offset


def unpack(described: list[Any], region: mmap.mmap, *, copy: bool) -> RecordDict:
    """Return the content again; its arrays are views of shared memory unless copied."""
    content = RecordDict()
    for key, kind, entries in described:
        if kind != "arrays":
            content[key] = _RECORDS[kind]({name: _value(value) for name, value in entries.items()})
            continue
        arrays: dict[str, Array] = {}
        for name, dtype, shape, offset, stype, size in entries:
            if stype is None:
                view = _at(region, dtype, shape, offset)
                arrays[name] = LazyArray(view.copy() if copy else view)
            else:
                arrays[name] = Array(dtype, tuple(shape), stype, region[offset : offset + size])
        content[key] = record_of(arrays)
    return content


def encode(header: dict[str, Any]) -> bytes:
    """Return a header as bytes."""
    return json.dumps(header).encode()


def decode(data: bytes) -> Any:
    """Return the header again."""
    return json.loads(data)


def _held(array: Array) -> tuple[np.ndarray[Any, Any], str | None]:
    """Return what of an array is carried: a foreign one as the bytes it is, for its reader judges if they are one."""
    if isinstance(array, LazyArray):
        return array.__dict__["view"], None
    return np.frombuffer(array.data, np.uint8), array.stype


def _at(region: mmap.mmap, dtype: str, shape: Sequence[int], offset: int) -> np.ndarray[Any, Any]:
    kind = dtype_of(dtype)
    count = math.prod(shape)
    # frombuffer refuses an offset at the very end, which an empty array may have.
    flat = np.frombuffer(region, kind, count, offset) if count else np.empty(0, kind)
    return flat.reshape(shape)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return [_value(item) for item in value] if isinstance(value, list) else value
