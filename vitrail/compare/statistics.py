"""Means over seeds with their intervals, and whether two arms differ by more than what seeds do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

SAME = 1e-9  # of a mean difference, below which differences do not differ
LEVEL = 0.05  # below which a difference is taken for one


@dataclass(frozen=True)
class Mean:
    """Of some numbers, and between what the mean of many more lies with 95 % (Student 1908); of one alone: None."""

    value: float
    low: float | None
    high: float | None
    count: int


def mean(values: Sequence[float]) -> Mean:
    """Of numbers that differ by chance."""
    count, middle = len(values), fmean(values)
    if count < 2:  # noqa: PLR2004
        return Mean(middle, None, None, count)
    half = _quantile(count - 1) * stdev(values) / math.sqrt(count)
    return Mean(middle, middle - half, middle + half, count)


@dataclass(frozen=True)
class Difference:
    """How two arms differ where both had the same seeds and examples: the mean, its interval, and its p-value (a
    paired t-test); None of fewer than two pairs, or where all of them are the same.
    """

    mean: Mean
    p_value: float | None
    corrected: float | None = None  # for as many comparisons as there are (Holm 1979)

    @property
    def differs(self) -> bool | None:
        """Whether it is more than noise; None where that cannot be told."""
        p_value = self.p_value if self.corrected is None else self.corrected
        return None if p_value is None else p_value < LEVEL


def difference(one: Mapping[Any, float], other: Mapping[Any, float]) -> Difference | None:
    """The second less the first, over what both were measured at; None where there is nothing."""
    both = [other[key] - one[key] for key in one if key in other]
    if not both:
        return None
    average = mean(both)
    if len(both) < 2:  # noqa: PLR2004
        return Difference(average, None)
    spread = stdev(both)
    if spread <= SAME * abs(average.value):  # seeds change nothing, and say nothing of what others would
        return Difference(average, 1.0 if average.value == 0 else None)
    from scipy.stats import t  # type: ignore[import-untyped]  # noqa: PLC0415  # a second, for those who compare

    return Difference(average, float(2 * t.sf(abs(average.value) / (spread / math.sqrt(len(both))), len(both) - 1)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p-value as if it were the only one: the least times as many as there are, the next times one fewer, none
    below one before it (Holm 1979).
    """
    order = sorted((p_value, number) for number, p_value in enumerate(p_values) if p_value is not None)
    corrected, last = list[float | None](p_values), 0.0
    for index, (p_value, number) in enumerate(order):
        last = max(last, min(1.0, (len(order) - index) * p_value))
        corrected[number] = last
    return corrected


def _quantile(freedom: int) -> float:
    from scipy.stats import t  # noqa: PLC0415

    return float(t.ppf(0.975, freedom))


def crossings(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> list[float]:
    """Where two curves over the same places, logarithmic, change which of them is above: between two of them."""
    there = dict(other)
    both = [(x, y - there[x]) for x, y in sorted(one) if x in there and y != there[x]]
    points = []
    for (left, before), (right, after) in pairwise(both):
        if before * after < 0:
            weight = before / (before - after)
            points.append(math.exp((1 - weight) * math.log(left) + weight * math.log(right)))
    return points
