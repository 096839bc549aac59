"""Whether two models that answered the same examples differ by more than chance."""

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
