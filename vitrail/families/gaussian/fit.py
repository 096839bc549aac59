"""Gaussians fitted in closed form: the fraction of each class, its mean, and a covariance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.gaussian.config import GaussianConfig
from vitrail.families.model import State

SMOOTHED = 1e-9  # of the largest variance, which is added to all, as naive Bayes has it in scikit-learn
SINGULAR = 1e-10  # of the largest variance of any direction, below which a covariance is no longer inverted as it is
FLOOR = 1e-3  # of the mean variance, which any class has at least
Some = Iterator[tuple[Tensor, Tensor]]  # pictures as numbers (b d), and their classes (b)


@dataclass(frozen=True)
class Gaussians:
    """What was fitted, and what had to be done for it."""

    state: State
    shrinkage: tuple[float, ...]  # of each covariance, towards as much variance in all directions; 0: none


def fit(config: GaussianConfig, pictures: Callable[[], Some], shrinkage: float | None = None) -> Gaussians:
    """Fit by two looks at the pictures, in double precision. Covariances that are singular are shrunk (Ledoit and Wolf
    2004), or all by what is given.

    Covariances are over as many pictures as there are, those most likely to give them, as scikit-learn 1.9 has them.
    """
    k, d = config.classes, config.numbers
    counts, sums = torch.zeros(k, dtype=torch.float64), torch.zeros(k, d, dtype=torch.float64)
    for x, labels in pictures():
        counts += labels.bincount(minlength=k)
        sums.index_add_(0, labels, x.double())
    mean = sums / counts.clamp(min=1)[:, None]
    prior = counts / counts.sum()
    if config.covariance == "diagonal":
        root, shrunk = _variances(pictures, mean, counts)
    else:
        root, shrunk = _covariances(config, pictures, mean, counts, shrinkage)
    return Gaussians({"prior": prior, "mean": mean, "root": root}, shrunk)


def _variances(pictures: Callable[[], Some], mean: Tensor, counts: Tensor) -> tuple[Tensor, tuple[float, ...]]:
    squares, total, whole = torch.zeros_like(mean), torch.zeros_like(mean[0]), 0.0
    overall = (mean * counts[:, None]).sum(0) / counts.sum()
    for x, labels in pictures():
        squares.index_add_(0, labels, (x.double() - mean[labels]).square())
        total += (x.double() - overall).square().sum(0)
        whole += len(x)
    added = SMOOTHED * (total / whole).max()
    variance = squares / counts.clamp(min=1)[:, None] + added
    return variance.clamp(min=torch.finfo(torch.float64).tiny).rsqrt(), ()


def _covariances(
    config: GaussianConfig, pictures: Callable[[], Some], mean: Tensor, counts: Tensor, shrinkage: float | None
) -> tuple[Tensor, tuple[float, ...]]:
    """The triangular root of each inverse covariance."""
    k, d = mean.shape
    shared = config.covariance == "shared"
    scatter = torch.zeros(1 if shared else k, d, d, dtype=torch.float64)
    fourth = torch.zeros(len(scatter), dtype=torch.float64)  # sum of |x|^4, by which shrinkage is found
    for x, labels in pictures():
        apart = x.double() - mean[labels]
        for number in range(len(scatter)):
            some = apart if shared else apart[labels == number]
            scatter[number] += some.T @ some
            fourth[number] += some.square().sum(1).square().sum()
    many = counts.sum()[None] if shared else counts
    roots, shrunk = [], []
    least = FLOOR * (scatter.sum(0).diagonal().mean() / counts.sum()).clamp(min=torch.finfo(torch.float64).eps)
    for one, m, four in zip(scatter, many, fourth, strict=True):
        covariance, amount = one / m.clamp(min=1), shrinkage
        if amount is None:
            amount = 0.0 if _regular(covariance, int(m), d) else ledoit_wolf(covariance, float(four), int(m))
        even = covariance.diagonal().mean().clamp(min=least)  # of a class of one picture there is no variance
        covariance = (1 - amount) * covariance + amount * even * torch.eye(d, dtype=torch.float64)
        roots.append(_root(covariance))
        shrunk.append(float(amount))
    return roots[0] if shared else torch.stack(roots), tuple(shrunk)


def _regular(covariance: Tensor, count: int, d: int) -> bool:
    """Whether it can be inverted as it is."""
    if count <= d:
        return False
    values = torch.linalg.eigvalsh(covariance)
    return bool(values[0] > SINGULAR * values[-1])


def ledoit_wolf(covariance: Tensor, fourth: float, count: int) -> float:
    """The fraction of mu I, mu the mean variance, that brings a covariance S (over m) of m pictures nearest to the true
    one on average: min(b, d) / d, d = |S - mu I|^2 / n, b = sum |x x^T - S|^2 / (n m^2) (Ledoit and Wolf 2004).
    """
    n = len(covariance)
    squared = covariance.square().sum()
    even = covariance.diagonal().mean()
    far = float(squared - n * even.square()) / n
    if far <= 0:
        return 1.0
    spread = (fourth / count - float(squared)) / (count * n)
    return float(min(max(spread, 0.0), far) / far) or 1e-6


def _root(covariance: Tensor) -> Tensor:
    """Upper triangular R with R R^T the inverse: of S = L L^T it is L^-T."""
    lower, wrong = torch.linalg.cholesky_ex(covariance)
    if int(wrong):
        raise InputError("a covariance is singular, and cannot be taken as it is; leave model.shrinkage out.")
    eye = torch.eye(len(lower), dtype=lower.dtype)
    return torch.linalg.solve_triangular(lower, eye, upper=False).T.contiguous()
