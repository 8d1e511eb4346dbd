"""Models on disk: the same bytes always, everything back, and damage named."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedslice.core.errors import UsageError
from fedslice.core.params import Array, Model
from server.model_file import model_bytes, read_arrays, read_model, to_bytes
from tests.support import BFLOAT16, bits, model_of


def a_model() -> Model:
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {
        "net.0.weight": rng.normal(0, 1, (3, 4)).astype(np.float32),
        "half": rng.normal(0, 1, 5).astype(np.float16),
        "brain": rng.normal(0, 1, 5).astype(BFLOAT16),
        "norm.running_var": np.ones(2, np.float64),
        "norm.num_batches_tracked": np.asarray(2**53 + 1),
        "empty": np.zeros((0, 3), np.float32),
        "mask": np.array([True, False]),
        "phase": np.array([math.nan, math.inf, -0.0], np.float32),
    }
    return model_of(arrays, {"phase": f"angle:{2 * math.pi!r}", "half": "statistic"})


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_everything_comes_back(tmp_path: Path) -> None:
    model = a_model()
    path = written(tmp_path / "m.safetensors", model_bytes(model))
    again = read_model(path)
    assert bits(again.arrays) == bits(model.arrays)
    assert again.entries == model.entries
    assert again.entries["phase"].period == 2 * math.pi
    assert bits(read_arrays(path)) == bits(model.arrays)
    others = load_file(str(path))
    np.testing.assert_array_equal(others["net.0.weight"], model.arrays["net.0.weight"])


def test_the_same_model_always_gives_the_same_bytes() -> None:
    model = a_model()
    names = sorted(model.arrays, reverse=True)
    reordered = Model({n: model.arrays[n] for n in names}, {n: model.entries[n] for n in names})
    strided = {n: np.asfortranarray(a) if a.ndim > 1 else np.repeat(a, 2)[::2] if a.ndim else a for n, a in model.arrays.items()}
    assert model_bytes(reordered) == model_bytes(model)
    assert model_bytes(Model(strided, model.entries)) == model_bytes(model)
    other = Model({**model.arrays, "half": model.arrays["half"] + np.float16(1)}, model.entries)
    assert model_bytes(other) != model_bytes(model)


def test_arrays_without_kinds_get_the_defaults(tmp_path: Path) -> None:
    arrays = {"w": np.ones(2, np.float32), "n": np.asarray(3)}
    path = written(tmp_path / "m", to_bytes(arrays))
    assert read_model(path).entries == model_of(arrays).entries


def header_of(data: bytes, change: Callable[[dict[str, object]], object]) -> bytes:
    """The file with another header."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def kinds_are(text: str) -> Callable[[bytes], bytes]:
    return lambda data: header_of(data, lambda header: header.update(__metadata__={"kinds": text}))


def in_float8(data: bytes) -> bytes:
    entry = {"dtype": "F8_E4M3", "shape": [20], "data_offsets": [0, 20]}
    text = json.dumps({"a": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(20)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: b"", "not a safetensors file, or damaged"),
        (lambda data: b"junk" * 20, "not a safetensors file, or damaged"),
        (lambda data: data[:-1], "not a safetensors file, or damaged"),
        (lambda data: data[:50], "not a safetensors file, or damaged"),
        (lambda data: data + b"x", "not a safetensors file, or damaged"),
        (lambda data: data[:8] + b"X" + data[9:], "not a safetensors file, or damaged"),
        (in_float8, "holds a dtype that is not known here: F8_E4M3"),
        (kinds_are("{"), "the kinds of its entries are damaged"),
        (kinds_are("[1]"), "the kinds of its entries are damaged"),
        (kinds_are('{"nobody": "weight"}'), "the kinds of its entries are damaged: .*nobody"),
        (kinds_are('{"half": "wieght"}'), "the kinds of its entries are damaged: .*wieght"),
        (kinds_are('{"half": 3}'), "the kinds of its entries are damaged"),
    ],
    ids=range(12),
)
def test_damage_is_one_clear_error(damage: Callable[[bytes], bytes], text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "m.safetensors", damage(model_bytes(a_model())))
    with pytest.raises(UsageError, match=rf"m\.safetensors: {text}"):
        read_model(path)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            read_model(path)
