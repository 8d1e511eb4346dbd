"""A checkpoint is there whole or not at all."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from server import checkpoint
from server.aggregation import AdamConfig
from server.model_file import read_arrays, read_model
from tests.support import bits, model_of

MODEL = model_of({"w": np.arange(6, dtype=np.float32).reshape(2, 3), "norm.num_batches_tracked": np.asarray(4)})


def test_what_is_committed_is_there_to_go_on_from(tmp_path: Path) -> None:
    optimizer = AdamConfig().build()
    optimizer.step({"w": MODEL.arrays["w"]}, {"w": np.ones((2, 3))})
    place = checkpoint.commit(tmp_path / "checkpoint", 3, MODEL, optimizer.tensors(), {"guard": {"accepted": [0.1, 1e-300]}})
    assert place == tmp_path / "checkpoint" / "round-000003"
    again = read_model(place / "model.safetensors")
    assert bits(again.arrays) == bits(MODEL.arrays)
    assert again.entries == MODEL.entries
    assert json.loads((place / "state.json").read_text()) == {"round": 3, "guard": {"accepted": [0.1, 1e-300]}}
    resumed = AdamConfig().build()
    resumed.restore(read_arrays(place / "optimizer.safetensors"))
    steps = [o.step({"w": MODEL.arrays["w"]}, {"w": np.full((2, 3), 0.5)}) for o in (optimizer, resumed)]
    assert bits(steps[0]) == bits(steps[1])


def test_an_optimizer_without_state_is_committed_too(tmp_path: Path) -> None:
    place = checkpoint.commit(tmp_path, 1, MODEL, {}, {})
    assert read_arrays(place / "optimizer.safetensors") == {}


def test_the_newest_two_are_kept_and_drafts_do_not_stay(tmp_path: Path) -> None:
    for number in range(1, 13):
        checkpoint.commit(tmp_path, number, MODEL, {}, {})
        kept = sorted(path.name for path in tmp_path.iterdir())
        assert kept == [f"round-{n:06d}" for n in (number - 1, number) if n > 0]


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    places = [checkpoint.commit(tmp_path / name, 1, MODEL, {}, {"b": 1, "a": {"d": 1, "c": 2}}) for name in ("x", "y")]
    for file in ("model.safetensors", "optimizer.safetensors", "state.json"):
        assert (places[0] / file).read_bytes() == (places[1] / file).read_bytes()


def test_a_commit_that_fails_on_the_way_leaves_those_before_and_no_name(tmp_path: Path) -> None:
    checkpoint.commit(tmp_path, 1, MODEL, {}, {})
    with pytest.raises(TypeError):
        checkpoint.commit(tmp_path, 2, MODEL, {}, {"not JSON": object()})
    assert [path.name for path in tmp_path.glob("round-*")] == ["round-000001"]
    checkpoint.commit(tmp_path, 2, MODEL, {}, {})  # over the draft that was left
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000001", "round-000002"]


def test_a_round_committed_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    checkpoint.commit(tmp_path, 1, MODEL, {}, {"try": 1})
    place = checkpoint.commit(tmp_path, 1, MODEL, {}, {"try": 2})
    assert json.loads((place / "state.json").read_text()) == {"round": 1, "try": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["round-000001"]


def test_numbers_that_json_lacks_survive_in_the_state(tmp_path: Path) -> None:
    place = checkpoint.commit(tmp_path, 1, MODEL, {}, {"loss": math.nan})
    assert math.isnan(json.loads((place / "state.json").read_text())["loss"])
