"""Means, intervals and tests against scipy's and statsmodels' definitions."""

import numpy as np
import pytest
from scipy import stats

from vitrail.compare.statistics import crossings, difference, holm, mean


def test_the_interval_is_students():
    values = [0.91, 0.93, 0.95, 0.90]
    found = mean(values)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.value, found.low, found.high, found.count) == (
        pytest.approx(np.mean(values)),
        pytest.approx(low),
        pytest.approx(high),
        4,
    )
    assert (mean([0.5]).low, mean([0.5]).high) == (None, None)


def test_the_difference_is_scipys_paired_test():
    one, other = {0: 0.9, 1: 0.8, 2: 0.85, 5: 0.1}, {0: 0.93, 1: 0.82, 2: 0.9, 7: 0.3}
    found = difference(one, other)
    expected = stats.ttest_rel([0.93, 0.82, 0.9], [0.9, 0.8, 0.85])
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.mean.value == pytest.approx(0.1 / 3)
    assert difference({0: 1.0}, {1: 1.0}) is None
    assert difference({0: 1.0}, {0: 2.0}).differs is None
    assert difference({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}).differs is False
    assert difference({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0}).differs is None  # seeds that change nothing say nothing
    assert difference({0: 1.0, 1: 2.0, 2: 1.5}, {0: 2.0, 1: 3.01, 2: 2.49}).differs is True


def test_holm_keeps_the_chance_of_any_false_alarm():
    """On noise alone, at most one comparison of twenty calls out, however many tests each has."""
    draw = np.random.default_rng(0)
    alarms = sum(min(holm(list(draw.random(8)))) < 0.05 for _ in range(4_000)) / 4_000
    assert alarms == pytest.approx(1 - 0.95 ** (1 / 8 * 8), abs=0.015)
    assert holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]


def test_where_curves_cross():
    """Linear in the logarithm: x and 2 - x over log10 cross at the middle."""
    one = [(0.01, 0.0), (0.1, 1.0), (1.0, 2.0)]
    other = [(0.01, 2.0), (0.1, 1.5), (1.0, 0.0)]
    (place,) = crossings(one, other)
    assert place == pytest.approx(10 ** (-1 + 0.5 / 2.5))
    assert crossings(one, [(x, y + 1) for x, y in one]) == []
    assert len(crossings(one, [(0.01, 1.0), (0.1, 1.0), (1.0, 1.0)])) == 1  # also through a place where both are alike
