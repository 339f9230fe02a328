"""Intervals, against values worked out by hand or printed in books."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunus.report.intervals import Estimate, Measured, of_one_run, over_seeds, t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (4, 2.7764), (20, 2.0860), (21, 2.0796), (30, 2.0423),
     (60, 2.0003), (120, 1.9799), (10**6, 1.96)],
)  # fmt: skip
def test_the_t_quantile_of_the_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=1e-4)


def test_t_quantiles_fall():
    found = [t_quantile(freedom) for freedom in range(1, 60)]
    assert found == sorted(found, reverse=True)


def test_interval_over_seeds_by_hand():
    # Deviation 1, three values: 2 +- 4.3027 / sqrt(3).
    found = over_seeds([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.low == pytest.approx(2 - 2.48414, abs=1e-4)
    assert found.error == pytest.approx(2.48414, abs=1e-4)


def test_one_value_alone_says_nothing_about_its_error():
    assert over_seeds([0.5]) == Estimate(0.5, -math.inf, math.inf)
    assert not Estimate(0.5).above_zero and Estimate(0.5).error == math.inf


def test_wilsons_interval():
    # 81 of 263 (Newcombe 1998, table I): 0.2553 to 0.3662; 0 of 20: 0 to 0.1611.
    found = of_one_run(81 / 263, 263)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    none, all_ = of_one_run(0.0, 20), of_one_run(1.0, 20)
    assert (none.low, none.high) == pytest.approx((0, 0.1611), abs=1e-4)
    assert (all_.low, all_.high) == pytest.approx((0.8389, 1), abs=1e-4)


def test_a_measured_value_takes_the_error_that_it_can_have():
    assert Measured({3: 81 / 263}, 263).estimate == of_one_run(81 / 263, 263)
    assert Measured({3: 0.5}).estimate == Estimate(0.5)
    assert Measured({0: 1.0, 1: 2.0, 2: 3.0}, 263).estimate == over_seeds([1.0, 2.0, 3.0])


def test_differences_are_paired_by_seed():
    """The networks differ by 0.1 in every seed, though seeds differ by much more."""
    dense = Measured({0: 0.5, 1: 0.7, 2: 0.9, 7: 0.0})
    found = Measured({2: 1.01, 0: 0.6, 1: 0.79}).minus(dense)
    # 0.1, 0.09 and 0.11: deviation 0.01, 4.3027 * 0.01 / sqrt(3) = 0.02484.
    assert found.mean == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((0.07516, 0.12484), abs=1e-5)
    assert found.above_zero


def test_without_a_common_seed_nothing_is_known():
    found = Measured({0: 0.9, 1: 0.9}).minus(Measured({2: 0.5, 3: 0.5}))
    assert found.mean == pytest.approx(0.4) and not found.above_zero


def test_difference_of_two_single_runs():
    # Newcombe 1998, table II, method 10: 56 of 70 and 48 of 80: 0.2, from 0.0524 to 0.3339.
    found = Measured({0: 56 / 70}, 70).minus(Measured({0: 48 / 80}, 80))
    assert found.mean == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert Measured({0: 0.8}).minus(Measured({0: 0.6})) == Estimate(pytest.approx(0.2))


@given(st.integers(0, 50), st.integers(1, 50))
def test_wilson_stays_within_bounds(hits, more):
    samples = hits + more
    found = of_one_run(hits / samples, samples)
    assert -1e-12 <= found.low <= found.mean <= found.high <= 1 + 1e-12
