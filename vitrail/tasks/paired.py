"""Whether two models that answered the same examples differ by more than chance."""

import math
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.tasks.task import Changed, Comparison


def compared(before: Tensor, after: Tensor, changed: list[Changed]) -> Comparison:
    """Two models by which of their answers are right, (m) each."""
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    return Comparison(mcnemar(gained, lost), "McNemar's exact test", gained, lost, changed)


def mcnemar(gained: int, lost: int) -> float:
    """How likely so uneven numbers of answers that became right and that became wrong are, if both are as likely: two
    tails of a binomial distribution (McNemar 1947, exact).
    """
    from scipy.stats import binomtest  # type: ignore[import-untyped]  # noqa: PLC0415  # a second, for those who compare

    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def wilson(right: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """The fractions that so many right answers of a count may well come from (Wilson 1927): 95 % for this z."""
    p, n = right / count, count
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(before: Any, after: Any) -> float:
    """The p-value of the difference of two fractions, of examples that come as wholes, such as sentences:
    of each what counts and what it is counted of, (m 2), before and after.

    The examples are drawn anew, with replacement, the same for both (Koehn 2004); the fraction of draws in which the
    other one is better, twice.
    """
    apart = _drawn(after) - _drawn(before)
    other = min(int((apart <= 0).sum()), int((apart >= 0).sum()))
    return float(min(1.0, 2 * (other + 1) / (len(apart) + 1)))


def between(parts: Any) -> tuple[float, float]:
    """Between what such a fraction lies in 95 of 100 draws of the examples."""
    low, high = np.quantile(_drawn(parts), [0.025, 0.975])
    return float(low), float(high)


def _drawn(parts: Any, samples: int = 2_000, seed: int = 0) -> Any:
    """The fraction in each of some draws of the examples (m 2), the same ones for the same seed."""
    parts = np.asarray(parts, dtype=float)
    draw, fractions = np.random.default_rng(seed), []
    for _ in range(samples):
        total = parts[draw.integers(len(parts), size=len(parts))].sum(0)
        fractions.append(total[0] / max(total[1], 1e-30))
    return np.array(fractions)
