"""Sums of any split of the rows give the mean and deviation of them all."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from client import scaling
from client.models import mlp
from fedslice.core.seeds import rng


def scale_of(parts: list[scaling.Sums], num_features: int) -> tuple[scaling.Sums, torch.nn.Module]:
    totals = {key: sum((part[key] for part in parts[1:]), parts[0][key]) for key in parts[0]}
    model = mlp(num_features, [4], 1)
    scaling.fill(model, totals)
    return totals, model.get_submodule("scale")


@given(
    num_rows=st.integers(10, 60),
    num_parts=st.integers(1, 8),
    magnitude=st.floats(1e-2, 1e4),
    offset=st.floats(-10, 10),
    seed=st.integers(0, 1000),
)
def test_any_split_gives_the_pooled_scale(num_rows: int, num_parts: int, magnitude: float, offset: float, seed: int) -> None:
    random = rng(seed, "rows")
    x = ((random.normal(size=(num_rows, 3)) + offset) * magnitude).astype(np.float32)
    node = random.integers(0, num_parts, num_rows)  # some parts may be empty
    totals, scale = scale_of([scaling.sums(x[node == k]) for k in range(num_parts)], 3)
    assert totals["count"] == num_rows
    pooled_mean, pooled_std = x.astype(np.float64).mean(axis=0), x.astype(np.float64).std(axis=0)
    assert isinstance(scale.mean, torch.Tensor)
    assert isinstance(scale.std, torch.Tensor)
    np.testing.assert_allclose(scale.mean.numpy(), pooled_mean, rtol=1e-6, atol=1e-6 * magnitude)
    np.testing.assert_allclose(scale.std.numpy(), pooled_std, rtol=1e-6)


def test_rows_that_are_not_finite_are_left_out() -> None:
    x = np.array([[1, 2], [np.nan, 5], [3, 4], [7, np.inf]], np.float32)
    sums = scaling.sums(x)
    assert sums["count"] == 2
    np.testing.assert_array_equal(sums["sum"], [4, 6])


def test_leading_axes_count_as_rows() -> None:
    x = rng(0, "rows").normal(size=(4, 5, 3)).astype(np.float32)
    flat = scaling.sums(x.reshape(20, 3))
    assert all((scaling.sums(x)[key] == flat[key]).all() for key in flat)


def test_a_feature_that_never_changes_is_only_centred() -> None:
    x = np.column_stack([np.full(50, 4512.3), np.arange(50)]).astype(np.float32)
    _, scale = scale_of([scaling.sums(x[:20]), scaling.sums(x[20:])], 2)
    scaled = scale(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(scaled[:, 0], 0.0, atol=1e-2)
    np.testing.assert_allclose(scaled[:, 1].std(), 1.0, rtol=1e-5)


def test_a_model_without_scale_is_left_alone() -> None:
    model = torch.nn.Linear(2, 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scaling.fill(model, scaling.sums(np.ones((3, 2), np.float32)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
