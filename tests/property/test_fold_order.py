"""The fold gives the same bytes in any order, and the exact weighted mean within a stated bound."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslice.core.params import Array, Model, dtype_of
from fedslice.core.records import Update
from server.aggregation import Fold, Mean
from server.aggregation.exact import LARGEST_TERM, RESOLUTION, ExactSum
from tests.support import bits, model_of

DTYPES = ["float16", "bfloat16", "float32", "float64"]
LARGEST_OF = {"float16": 1e4, "bfloat16": 1e12, "float32": 1e12, "float64": 1e12}


def mixed_model(scale: float, rng: np.random.Generator) -> Model:
    """Entries of every dtype and kind; 0-dimensional, empty, and longer than a chunk of the sum."""
    arrays: dict[str, Array] = {
        name: np.asarray(rng.normal(0, min(scale, LARGEST_OF[name]), (2, 3))).astype(dtype_of(name)) for name in DTYPES
    }
    arrays["scalar"] = np.asarray(rng.normal(0, scale), np.float32)
    arrays["empty"] = np.zeros((0, 4), np.float32)
    arrays["norm.running_var"] = np.abs(rng.normal(0, scale, 3)).astype(np.float32)
    arrays["norm.num_batches_tracked"] = np.asarray(rng.integers(0, 1000))
    arrays["phase"] = rng.uniform(-3, 3, 2).astype(np.float32)
    return model_of(arrays, {"phase": "angle:6.283185307179586"})


def update_of(node: int, model: Model, scale: float, weight: float, rng: np.random.Generator) -> Update:
    whole, scale = bool(rng.integers(2)), min(scale, 1e17 / weight)  # what is far beyond, the guard refuses
    arrays = {}
    for name, base in model.arrays.items():
        if base.dtype.kind in "iu":
            arrays[name] = np.asarray(rng.integers(0, 2**62))
            continue
        change = rng.normal(0, min(scale, LARGEST_OF.get(name, scale)), base.shape)
        change = rng.uniform(-3.0, 3.0, base.shape) if name == "phase" else change * 10.0 ** rng.integers(-6, 1, base.shape)
        arrays[name] = np.asarray(base.astype(np.float64) + change if whole else change).astype(base.dtype)
    return Update(node=node, arrays=arrays, weight=weight, whole=whole)


def fold_bits(fold: Fold | None) -> Any:
    assert fold is not None
    return bits(fold.changes), bits(fold.settled)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    cohort=st.integers(1, 64),
    exponents=st.lists(st.integers(-12, 12), min_size=1, max_size=3),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 1e9), (0.001, 3.0), (5e8, 1e9)]),
)
def test_any_order_gives_the_same_bytes(seed: int, cohort: int, exponents: list[int], weights: tuple[float, float]) -> None:
    rng = np.random.default_rng(seed)
    model = mixed_model(10.0 ** rng.choice(exponents), rng)
    drawn = np.exp(rng.uniform(math.log(weights[0]), math.log(weights[1]), cohort))
    drawn = np.where(rng.random(cohort) < 0.5, np.maximum(1, np.rint(drawn)), drawn)
    updates = [update_of(i, model, 10.0 ** rng.choice(exponents), float(drawn[i]), rng) for i in range(cohort)]
    expected = fold_bits(Mean().fold(model, updates))
    for order in (range(cohort - 1, -1, -1), rng.permutation(cohort), rng.permutation(cohort)):
        assert fold_bits(Mean().fold(model, [updates[i] for i in order])) == expected


def exact_mean(values: list[float], weights: list[float]) -> Fraction:
    return sum((Fraction(v) * Fraction(w) for v, w in zip(values, weights, strict=True)), Fraction()) / sum(
        map(Fraction, weights)
    )


def bound(values: list[float], weights: list[float]) -> float:
    """Half a quantum a term over the total weight, and a few roundings of the largest value."""
    return RESOLUTION / 2 * len(values) / math.fsum(weights) + 2.0**-50 * max(map(abs, values))


values = st.floats(-1e12, 1e12).filter(lambda v: v == 0 or abs(v) >= 1e-12)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(values, st.floats(1e-3, 1e6) | st.integers(1, 10**6).map(float)), min_size=1, max_size=64))
def test_the_mean_is_exact_within_its_bound(terms: list[tuple[float, float]]) -> None:
    total = ExactSum(())
    for value, weight in terms:
        total.add(np.array(value), weight)
    numbers, weights = [v for v, _ in terms], [w for _, w in terms]
    found = float(total.mean(math.fsum(weights)))
    assert abs(Fraction(found) - exact_mean(numbers, weights)) <= bound(numbers, weights)


@pytest.mark.parametrize(
    "terms",
    [
        [1e6] * 64,  # the low limb fills up and carries
        [-1e6] * 64,
        [2.0**40, -(2.0**40), 2.0**-30],  # terms beyond 2**62 quanta that cancel
        [-(2.0**19), 2.0**19 - 2.0**-30],
        [LARGEST_TERM, -LARGEST_TERM, 1.0, -LARGEST_TERM],
        [LARGEST_TERM] * 64,
        [-LARGEST_TERM] * 64 + [1.0],
        [2.0**18 - 2.0**-26] * 3 + [-(2.0**18)] * 3,
        [-RESOLUTION] * 5,
        [2.0**31] * 200 + [-(2.0**31)] * 200 + [0.125],  # the high limb goes from 16 to 64 bits
    ],
    ids=range(10),
)
def test_sums_that_outgrow_a_limb(terms: list[float]) -> None:
    means = set()
    for ordered in (terms, terms[::-1], sorted(terms), sorted(terms, key=abs)):
        total = ExactSum((2, 1))
        for term in ordered:
            total.add(np.array([[term], [-5 * RESOLUTION]]), 1.0)  # beside a large term, a small negative one
        mean = total.mean(1.0)
        exact = sum(map(Fraction, terms), Fraction())
        assert abs(Fraction(mean[0, 0]) - exact) <= abs(exact) * Fraction(2) ** -52
        assert mean[1, 0] == -5 * RESOLUTION * len(terms)
        means.add(mean.tobytes())
    assert len(means) == 1


@pytest.mark.parametrize("term", [1.01 * LARGEST_TERM, -1.01 * LARGEST_TERM, 1e300, math.inf, math.nan])
def test_a_term_beyond_the_largest_is_an_error_not_a_wrong_sum(term: float) -> None:
    with pytest.raises(OverflowError, match="beyond"):
        ExactSum((1,)).add(np.array([term]), 1.0)


def test_more_of_the_largest_terms_than_fit_are_an_error_not_a_wrong_sum() -> None:
    total = ExactSum((1,))
    largest = np.array([LARGEST_TERM])

    def fill() -> None:
        for _ in range(2**15 + 1):
            total.add(largest, 1.0)

    with pytest.raises(OverflowError, match="than a sum can hold"):
        fill()


def test_entries_longer_than_a_chunk_and_the_empty_one() -> None:
    rng = np.random.default_rng(0)
    terms = rng.normal(0, 1, (5, 100_003))
    total = ExactSum((100_003,))
    for row, weight in zip(terms, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True):
        total.add(row, weight)
    np.testing.assert_allclose(total.mean(15.0), np.arange(1, 6) @ terms / 15, rtol=0, atol=1e-13)
    nothing = ExactSum((0, 3))
    nothing.add(np.zeros((0, 3)), 1.0)
    assert nothing.mean(1.0).shape == (0, 3)
    assert Mean().fold(model_of({"a": np.zeros(1)}), []) is None


def test_a_variance_never_becomes_negative_by_the_folds_rounding() -> None:
    rng = np.random.default_rng(3)
    for exponent in range(-20, 12):
        base = np.abs(rng.normal(0, 10.0**exponent, 50)).astype(np.float32)
        model = model_of({"running_var": base})
        for weights in (rng.uniform(1, 1e4, 10), rng.uniform(1e-6, 1e-4, 10)):
            updates = [Update(node=i, arrays={"running_var": -base}, weight=float(w)) for i, w in enumerate(weights)]
            fold = Mean().fold(model, updates)
            assert fold is not None
            assert (fold.settled["running_var"] >= 0).all()
