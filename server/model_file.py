"""Models on disk: safetensors, with the kinds of their entries in the header."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fedslice.core.errors import UsageError
from fedslice.core.params import Array, Model, Params, describe, dtype_of, kind_text

_DTYPES = {
    "BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64", "C64": "complex64", "BOOL": "bool",
    **{f"{sign}{bits}": f"{name}{bits}" for sign, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}  # fmt: skip
_KINDS = "kinds"


def to_bytes(arrays: Params, kinds: dict[str, str] | None = None) -> bytes:
    """Return arrays as a safetensors file; the same arrays always give the same bytes."""
    # One metadata key only: the writer does not order several.
    metadata = {_KINDS: json.dumps(kinds, sort_keys=True)} if kinds is not None else None
    # copy() keeps 0-dimensional arrays so, which ascontiguousarray would not.
    return save({name: array.copy(order="C") for name, array in arrays.items()}, metadata)


def model_bytes(model: Model) -> bytes:
    """Return a model as a safetensors file."""
    return to_bytes(model.arrays, {name: kind_text(entry) for name, entry in model.entries.items()})


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a safetensors file.

    Raises:
        UsageError: There is no such file, or it is damaged.
    """
    return _arrays(_read(path), path)


def read_model(path: Path) -> Model:
    """Return a model with its kinds.

    Raises:
        UsageError: See `read_arrays`.
    """
    data = _read(path)
    arrays = _arrays(data, path)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    try:
        kinds = json.loads(header.get("__metadata__", {}).get(_KINDS, "{}"))
        return Model(arrays, describe(arrays, {str(name): str(kind) for name, kind in dict(kinds).items()}))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: the kinds of its entries are damaged: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def _arrays(data: bytes, path: Path) -> dict[str, Array]:
    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise UsageError(f"{path}: not a safetensors file, or damaged: {error}") from error
    if unknown := sorted({tensor["dtype"] for _, tensor in tensors} - _DTYPES.keys()):
        raise UsageError(f"{path}: holds a dtype that is not known here: {unknown[0]}")
    return {n: np.frombuffer(t["data"], dtype_of(_DTYPES[t["dtype"]])).reshape(t["shape"]) for n, t in tensors}
