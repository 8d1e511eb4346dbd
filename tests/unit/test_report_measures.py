"""The measures of evenness have their closed forms, and numbers get readable units."""

import math

import pytest

from fedslice.report import measures


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_gini_and_jain_have_their_closed_forms(count: int) -> None:
    one_has_all = [0.0] * (count - 1) + [3.0]
    assert measures.gini(one_has_all) == pytest.approx((count - 1) / count)
    assert measures.jain(one_has_all) == pytest.approx(1 / count)
    assert measures.gini([2.0] * count) == pytest.approx(0)
    assert measures.jain([2.0] * count) == pytest.approx(1)
    ramp = list(range(1, count + 1))
    assert measures.gini(ramp) == pytest.approx((count - 1) / (3 * count))
    assert measures.jain(ramp) == pytest.approx(3 * (count + 1) / (2 * (2 * count + 1)))


def test_gini_and_jain_of_nothing_are_not_numbers() -> None:
    assert all(math.isnan(of(values)) for of in (measures.gini, measures.jain) for values in ([], [0, 0]))


@pytest.mark.parametrize(("most", "unit"), [(0, "B"), (999, "B"), (1e3, "kB"), (2.5e6, "MB"), (3e9, "GB")])
def test_bytes_have_decimal_units(most: float, unit: str) -> None:
    assert measures.byte_unit(most)[1] == unit


@pytest.mark.parametrize(("most", "unit"), [(0, "s"), (119, "s"), (120, "min"), (7200, "h"), (400_000, "d")])
def test_times_stay_in_the_smaller_unit_until_there_are_two(most: float, unit: str) -> None:
    assert measures.time_unit(most)[1] == unit
