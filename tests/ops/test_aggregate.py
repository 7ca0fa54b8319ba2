"""Interquartile mean, stratified bootstrap and probability of improvement against numbers worked
out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxrl_fast.errors import ConfigError
from jaxrl_fast.ops.aggregate import (
    SURE,
    bootstrap,
    interval,
    intervals,
    iqm,
    probability_of_improvement,
    span,
)


def test_interval_is_students():
    # t(0.975, 5 degrees of freedom) = 2.570582 in any table; the variance of 1 to 6 is 3.5
    half = 2.570582 * math.sqrt(3.5 / 6)
    np.testing.assert_allclose(interval([1, 2, 3, 4, 5, 6]), (3.5, 3.5 - half, 3.5 + half),
                               rtol=1e-6)
    np.testing.assert_allclose(interval([1, np.nan, 2, 3, 4, np.inf, 5, 6]),
                               (3.5, 3.5 - half, 3.5 + half), rtol=1e-6)
    assert interval([7] * 9) == (7, 7, 7)


def test_interval_of_few_values_is_their_range():
    assert (
        interval([500, 100]) == (300, 100, 500) and span([500, 100]) == ", range 100.00 to 500.00")
    assert interval([500, np.nan, 100, 120, 480, 300]) == (300, 100, 500)
    # cut at the range
    assert interval([500] * 5 + [0]) == (2500 / 6, pytest.approx(2500 / 6 - 2.570582 * 500 / 6),
                                         500)
    assert ", 95% interval " in span(range(SURE))


def test_interval_of_too_few_values_is_not_made_up():
    mean, low, high = interval([3.0])
    assert mean == 3 and math.isnan(low) and math.isnan(high) and span([3.0]) == ""
    assert all(map(math.isnan, interval([])))


def test_interval_covers_the_truth_as_often_as_it_says():
    samples = np.random.default_rng(0).normal(5, 2, (4000, SURE))
    _, low, high = intervals(samples)
    assert 0.935 < np.mean((low < 5) & (high > 5)) < 0.96
    # the range itself, from which it is cut
    assert np.mean((samples.min(1) < 5) & (samples.max(1) > 5)) > 0.95
    assert np.mean((samples[:, 1:].min(1) < 5) & (samples[:, 1:].max(1) > 5)) < 0.95


def test_iqm_by_hand():
    assert iqm([8, 1, 7, 2, 6, 3, 5, 4]) == pytest.approx(4.5)  # of 3, 4, 5, 6
    # a quarter of five is 1.25
    assert iqm([0, 1, 2, 3, 10]) == pytest.approx((0.75 * 1 + 2 + 0.75 * 3) / 2.5)
    assert iqm([5.0]) == 5.0 and iqm([1.0, 3.0]) == 2.0
    # all tasks together
    assert iqm([[1, 100], [2, 200], [3, 300], [4, 400]]) == pytest.approx((3 + 4 + 100 + 200) / 4)
    assert iqm([-1000, 1, 1, 1, 1, 1, 1, 1e9]) == 1.0  # neither tail matters


def test_lost_runs_count_as_the_worst():
    assert iqm([math.nan, 1, 2, 3]) == iqm([1, 1, 2, 3])
    assert math.isnan(iqm([math.nan, math.nan]))


def test_bootstrap_intervals_equal_the_standard_error():
    assert bootstrap([3.0, 3.0, 3.0]) == (3.0, 3.0)
    assert all(map(math.isnan, bootstrap([3.0])))
    scores = np.random.default_rng(0).normal(10, 2, 400)
    mean = lambda x: x.mean(axis=(-2, -1))
    low, high = bootstrap(scores, mean, resamples=4000)
    # 2 / sqrt(400) is the standard error
    assert low == pytest.approx(scores.mean() - 1.96 * 0.1, abs=0.03)
    assert high == pytest.approx(scores.mean() + 1.96 * 0.1, abs=0.03)
    assert bootstrap(scores) == bootstrap(scores) != bootstrap(scores, seed=1)
    narrow, wide = bootstrap(scores, mean, 0.5), bootstrap(scores, mean, 0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_bootstrap_draws_within_each_task():
    """Two tasks far apart, no spread within either: were they mixed, the mean would vary."""
    assert bootstrap([[0.0, 100.0]] * 5, lambda x: x.mean(axis=(-2, -1))) == (50.0, 50.0)


def test_probability_of_improvement_by_hand():
    # 0 0, half half, 1 1
    assert probability_of_improvement([1, 2, 3], [2, 2])[0] == pytest.approx(0.5)
    assert probability_of_improvement([5, 6, 7], [1, 2])[:] == (1.0, 1.0, 1.0)
    assert probability_of_improvement([1, 4], [2, 3])[0] == 0.5
    # wins one task of two
    assert probability_of_improvement([[1, 9], [1, 9]], [[5, 5], [5, 5]])[0] == 0.5
    value, low, high = probability_of_improvement([3.0], [1.0, 2.0])
    assert value == 1.0 and math.isnan(low) and math.isnan(high)
    a, b = np.random.default_rng(1).normal(0.5, 1, 60), np.random.default_rng(2).normal(0, 1, 60)
    value, low, high = probability_of_improvement(a, b)
    assert low < value < high and low > 0.5


@pytest.mark.parametrize("scores", [[], np.zeros((2, 2, 2)), [[]]])
def test_bad_scores(scores):
    with pytest.raises(ConfigError, match="scores must be "):
        iqm(scores)


def test_other_tasks_are_refused():
    with pytest.raises(ConfigError, match="the 2 tasks that a has"):
        probability_of_improvement([[1, 2]], [[1, 2, 3]])
