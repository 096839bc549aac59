"""Whether two models that answered the same examples differ by more than chance."""

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


def bootstrap(before: Any, after: Any, samples: int = 2_000, seed: int = 0) -> float:
    """How likely chance alone makes two fractions differ as much, of examples that come as wholes, such as sentences:
    of each what counts and what it is counted of, (m 2), before and after.

    The examples are drawn anew, with replacement, the same for both (Koehn 2004); the share of draws in which the other
    one is better, twice.
    """
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    draw = np.random.default_rng(seed).multinomial(len(before), np.full(len(before), 1 / len(before)), size=samples)
    first, second = draw @ before, draw @ after
    apart = second[:, 0] / np.maximum(second[:, 1], 1e-30) - first[:, 0] / np.maximum(first[:, 1], 1e-30)
    return float(min(1.0, 2 * min((apart <= 0).mean(), (apart >= 0).mean())))
