"""What the guard lets through, what it refuses and why, and what it learns."""

import json
import math
from typing import Any

import numpy as np
import pytest

from fedslice.core.params import Array, Model
from fedslice.core.records import Update
from server.aggregation import Guard, GuardConfig
from server.aggregation.exact import LARGEST_TERM
from tests.support import BFLOAT16, model_of

PERIOD = 2 * math.pi


def judged(arrays: dict[str, Array], model: Model, *, weight: float = 1.0, whole: bool = False, **config: Any) -> str | None:
    guard = Guard(GuardConfig(**config))
    update = Update(node=0, arrays=arrays, weight=weight, whole=whole)
    return guard.judge(update, model, guard.limits(model))[0]


def model_with(value: Any, kind: str = "weight", name: str = "a") -> Model:
    return model_of({name: np.asarray(value)}, {name: kind})


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0,)], ids=str)
@pytest.mark.parametrize("kind", ["weight", "statistic", "angle:6.28"])
def test_finite_passes_and_nan_or_inf_do_not(kind: str, shape: tuple[int, ...], dtype: Any) -> None:
    model = model_with(np.ones(shape, dtype), kind)
    assert judged({"a": np.full(shape, 0.5, dtype)}, model) is None
    for bad in (math.nan, math.inf, -math.inf):
        reason = judged({"a": np.full(shape, bad, dtype)}, model)
        assert reason == (None if shape == (0,) else "not finite: entry a holds a NaN or an infinity")


def test_one_nan_anywhere_in_a_large_entry_is_found() -> None:
    model = model_with(np.zeros((300, 400), np.float32))
    for place in (0, 65_535, 65_536, 119_999):
        change = np.zeros((300, 400), np.float32)
        change.reshape(-1)[place] = math.nan
        assert judged({"a": change}, model) == "not finite: entry a holds a NaN or an infinity"


@pytest.mark.parametrize("weight", [1e-6, 1, 1e9])
def test_weights_in_range_pass(weight: float) -> None:
    assert judged({"a": np.ones(2)}, model_with(np.ones(2)), weight=weight) is None


@pytest.mark.parametrize("weight", [0, -0.0, -1, 1.0000001e9, math.inf, -math.inf, math.nan])
def test_weights_out_of_range_are_refused(weight: float) -> None:
    reason = judged({"a": np.ones(2)}, model_with(np.ones(2)), weight=weight)
    assert reason == f"weight: {weight:g} is not in (0, 1e+09]"


def test_the_norm_limit_is_the_models_own_norm_then_what_was_accepted() -> None:
    model = model_of({"a": np.full(4, 5.0), "running_var": np.full(4, 1e6), "n": np.asarray(10**6)})
    guard = Guard(GuardConfig(norm_factor=10))
    assert guard.limits(model)[True] == pytest.approx(10 * 10.0)  # statistics and counters do not count
    assert guard.limits(model)[False] == pytest.approx(10 * 2e6)  # statistics have a limit of their own
    guard.observe([1.0, 2.0, 30.0])
    assert guard.limits(model)[True] == pytest.approx(10 * 2.0)
    guard.observe([1e-9] * 60)  # late in training: a hundredth of the model's own norm stays in line
    assert guard.limits(model)[True] == pytest.approx(10 * 0.1)
    guard.observe([3.0] * 64)  # the oldest are forgotten
    assert guard.limits(model)[True] == pytest.approx(10 * 3.0)
    again = Guard(GuardConfig(norm_factor=10))
    again.restore(json.loads(json.dumps(guard.state())))
    assert again.limits(model)[True] == guard.limits(model)[True]
    assert Guard(GuardConfig()).limits(model_with(np.zeros(3)))[True] == 100.0  # a model of zeros can still move


@pytest.mark.parametrize("whole", [False, True])
def test_norm_is_that_of_the_change(whole: bool) -> None:
    base = np.array([3.0, 4.0])
    model = model_with(base)
    direction = np.array([0.6, 0.8])
    for length, refused in ((499.9, False), (500.1, True)):
        change = length * direction
        reason = judged({"a": base + change if whole else change}, model, whole=whole)
        assert (reason or "").startswith("norm: the change has norm 500, the limit is 500") is refused


def test_statistics_have_a_norm_limit_of_their_own_and_a_range() -> None:
    model = model_of({"running_var": np.ones(2), "w": np.full(2, 1e6)})
    kept = {"w": np.zeros(2)}
    assert judged({"running_var": np.full(2, 99.0), **kept}, model) is None
    reason = judged({"running_var": np.full(2, 1e6), **kept}, model)
    assert reason == "norm: the change of statistics has norm 1.41e+06, the limit is 141"
    model = model_of({"running_var": np.ones(2)})
    for value, weight in ((1e300, 1.0), (1e155, 1e-3), (3e38, 1.0), (1e12, 1e9), (-1e300, 1e-3)):
        reason = judged({"running_var": np.full(2, value)}, model, weight=weight)
        assert reason == f"range: entry running_var times its weight is beyond {LARGEST_TERM:.3g}", value
        assert judged({"running_var": np.full(2, value)}, model, weight=weight, whole=True) == reason


@pytest.mark.parametrize("value", [1e300, 3e153, 1e154, 1.7e308])
def test_squares_that_overflow_are_refused_and_raise_nothing(value: float) -> None:
    many = np.full(100_000, value)
    for kind in ("weight", "statistic", "angle:6.28"):
        model = model_with(np.zeros(100_000), kind)
        assert (judged({"a": many}, model) or "").startswith(("range: entry a", "angle: entry a"))
        # Whole angles are taken to their nearest equivalent: at most half a period each.
        reason = judged({"a": many}, model, whole=True, norm_factor=1e3)
        assert reason is None if kind == "angle:6.28" else str(reason).startswith("range: entry a")


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64], ids=str)
def test_an_angle_changes_by_half_its_period_at_most(dtype: Any) -> None:
    model = model_with(np.zeros(2, dtype), f"angle:{PERIOD}")
    half = np.array([math.pi, -math.pi]).astype(dtype)  # its rounding may lie beyond
    assert judged({"a": half}, model) is None or dtype in (np.float16, BFLOAT16)
    assert judged({"a": (half.astype(np.float64) * 0.99).astype(dtype)}, model) is None
    reason = judged({"a": (half.astype(np.float64) * 1.02).astype(dtype)}, model)
    assert reason == "angle: entry a changes by more than half its period"
    assert judged({"a": np.array([100.0, -50.0]).astype(dtype)}, model, whole=True) is None


def test_a_variance_is_never_negative() -> None:
    model = model_of({"bn.running_var": np.full(2, 4.0, np.float32)})
    to_zero = np.full(2, -4.0, np.float32)
    assert judged({"bn.running_var": to_zero}, model) is None
    assert judged({"bn.running_var": np.zeros(2, np.float32)}, model, whole=True) is None
    reason = "statistic: entry bn.running_var would be a negative variance"
    assert judged({"bn.running_var": 2 * to_zero}, model) == reason
    assert judged({"bn.running_var": to_zero}, model, whole=True) == reason
    mean = model_of({"bn.running_mean": np.full(2, 4.0, np.float32)})
    assert judged({"bn.running_mean": 2 * to_zero}, mean) is None


def test_a_counter_goes_up_by_no_more_than_a_weight_may_be() -> None:
    model = model_of({"n": np.asarray(3)})
    assert judged({"n": np.asarray(10**9)}, model) is None
    assert judged({"n": np.asarray(0)}, model) is None
    assert judged({"n": np.asarray(2**63 - 1)}, model) == "counter: entry n goes up by more than 1e+09"
    assert judged({"n": np.asarray(3, np.int32)}, model) == "dtype: entry n is int32, not int64"
    assert judged({"n": np.zeros(1, np.int64)}, model) == "shape: entry n is (1,), not ()"


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((2, 1)), "shape: entry a is (2, 1), not (2,)"),
        (np.zeros(()), "shape: entry a is (), not (2,)"),
        (np.zeros(2, ">f8"), "dtype: entry a is >f8, not float64"),
        (np.zeros(2, np.complex128), "dtype: entry a is complex128, not float64"),
        (np.zeros(2, np.int64), "dtype: entry a is int64, not float64"),
        (np.array(["x", "y"]), "dtype: entry a is <U1, not float64"),
    ],
    ids=str,
)
def test_other_shapes_and_dtypes_are_named(array: Array, reason: str) -> None:
    assert judged({"a": array}, model_with(np.zeros(2))) == reason
