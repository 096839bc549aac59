"""A head for weights that stay as they are: features computed once, then a linear classifier of them, in seconds.

What it reads is chosen by cross-validation on the pictures to train on alone: the class token, the mean of the patches,
both, or the class tokens of the last layers with them (as DINOv2 is evaluated, Oquab et al. 2023). So is how it is
fitted: linear discriminants, whose covariance is shrunk so far that others are predicted best, or logistic regression.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vitrail.data import Normalise, Pictures, unit
from vitrail.families import ViT, ViTConfig, at_once
from vitrail.progress import Progress, silent
from vitrail.weights import Weights

Array = NDArray[np.float64]
Heads = list[tuple[Array, Array]]  # W (classes w) and b of each

BATCH = 32  # pictures seen together: enough for a computer, and a sign of life from time to time
LAST = 4  # layers
SHRINKAGES = (0.01, 0.03, 0.1, 0.3, 0.6)
STRENGTHS = (1e-3, 1e-2, 1e-1)  # of C, the inverse of the regularisation, on features of one scale
FOLDS, FEWER, MANY = 5, 3, 1_000  # folds; and fewer, with so many pictures


@dataclass(frozen=True)
class Reading:
    """What a head is given: fields of the model, and which numbers of the features these are."""

    pool: str
    last: int
    numbers: slice

    @property
    def name(self) -> str:
        """In words."""
        tokens = {"class": "the class token", "mean": "the mean of the patches", "both": "class token and mean"}
        layers = f" of the last {self.last} layers" if self.last > 1 else ""
        return f"{tokens[self.pool]}{layers}"


@dataclass(frozen=True, eq=False)
class Fitted:
    """A head, what it reads, how it was found, and what it said in cross-validation of pictures it had not seen."""

    reading: Reading | None  # as the model has it, if None
    weight: Tensor
    bias: Tensor
    how: str
    loss: float = 0.0
    accuracy: float | None = None
    predicted: Tensor | None = None  # logits (m classes)

    @property
    def reads(self) -> dict[str, Any]:
        """What it reads, as fields of the model."""
        return {} if self.reading is None else {"pool": self.reading.pool, "last": self.reading.last}


def readings(config: ViTConfig) -> list[Reading]:
    """What the head of a model could read, all of which ``widest`` gives; none, where there is no choice."""
    if config.pool not in ("class", "both") or config.norm_last:
        return []
    w, last = config.width, min(LAST, config.depth)
    token = (last - 1) * w
    return [
        Reading("class", 1, slice(token, token + w)),
        Reading("mean", 1, slice(token + w, None)),
        Reading("both", 1, slice(token, None)),
        *([Reading("both", last, slice(0, None))] if last > 1 else []),
    ]


def widest(config: ViTConfig) -> dict[str, Any]:
    """The fields of a model that gives everything a head could read."""
    return {"pool": "both", "last": min(LAST, config.depth)} if readings(config) else {}


@torch.inference_mode()
def features(model: ViT, pictures: Pictures, normalise: Normalise, progress: Progress = silent) -> Tensor:
    """What the head would be given for each picture, (m w)."""
    model.eval()
    device, given = next(model.parameters()).device, list[Tensor]()

    def seen() -> Iterator[int]:
        for rows in pictures.rows.split(at_once(model.config, BATCH)):
            given.append(model.pooled(normalise(unit(pictures.store[rows].to(device)))).float().cpu())
            yield from range(len(rows))

    for _ in progress("pictures seen by the model", seen(), len(pictures)):
        pass
    return torch.cat(given)


def headed(weights: Weights, head: Fitted) -> Weights:
    """Weights with a head that was fitted to what they give."""
    adapted = weights.adapted(head="fresh", classes=len(head.bias), **head.reads)
    places = ("logits", "distilled") if adapted.config.pool == "distilled" else ("logits",)
    state = {f"head.{index}.{kind}": getattr(head, kind) for index in places for kind in ("weight", "bias")}
    return replace(adapted, state={**adapted.state, **state}, notes=weights.notes)


def fit_head(seen: Tensor, labels: Tensor, classes: int, choices: list[Reading], balance: float = 0.0) -> Fitted:
    """The head that predicts best the pictures of each fold from the others, fitted to all of them. A picture counts
    by the size of its class to the power -balance.

    On one thread: matrices as small as these, on two cores of which one was busy, took twenty times as long on two.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # which comes with scikit-learn

    with threadpool_limits(1):
        return _fit_head(seen, labels, classes, choices, balance)


def _fit_head(seen: Tensor, labels: Tensor, classes: int, choices: list[Reading], balance: float) -> Fitted:
    x, y = seen.double().numpy(), labels.numpy()
    counts = np.bincount(y, minlength=classes)
    folds = min(FOLDS if len(y) < MANY else FEWER, int(counts.min()))
    options: list[Reading | None] = [*choices] or [None]
    if folds < 2:  # noqa: PLR2004  # a class has one picture: nothing to choose by
        one = x if options[0] is None else x[:, options[0].numbers]
        weight, bias = discriminants(one, y, classes, [SHRINKAGES[-2]], balance)[0]
        scale = 1 / max(1.0, float(np.abs(one @ weight.T + bias).max()) / 10)  # with nothing to say how sure it may be
        return Fitted(options[0], _tensor(scale * weight), _tensor(scale * bias), "linear discriminants")
    from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415

    split = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y))
    tried = [_Tried(one, "linear discriminants", discriminants, SHRINKAGES, balance) for one in options]
    best = min((head for one in tried for head in one.tried(x, y, classes, split)), key=lambda head: head.loss)
    other = _Tried(best.tried.reading, "logistic regression", _logistic, STRENGTHS, balance)
    best = min((best, *other.tried(x, y, classes, split)), key=lambda head: head.loss)
    chosen = best.tried
    weight, bias = chosen.fit(chosen.of(x), y, classes, [best.strength], balance)[0]
    return Fitted(
        chosen.reading,
        _tensor(best.scale * weight),
        _tensor(best.scale * bias),
        chosen.how,
        best.loss,
        float((best.logits.argmax(1) == y).mean()),
        _tensor(best.scale * best.logits),
    )


def discriminants(
    x: Array, y: NDArray[np.int64], classes: int, shrinkages: Sequence[float], balance: float = 0.0
) -> Heads:
    """Linear discriminants for each shrinkage s: W = M C^-1, C = (1 - s) S + s tr(S) / w I, S the covariance within
    the classes and M their means, of features of one scale; b by the classes' sizes (Friedman 1989), or less so.
    """
    mean, scale = x.mean(0), x.std(0) + 1e-6
    x = (x - mean) / scale
    means = np.stack([x[y == one].mean(0) for one in range(classes)])
    within = x - means[y]
    m, w = within.shape
    if m < w:  # then S has no more than m directions, and the other ones are all alike
        sizes, inner = np.linalg.eigh(within @ within.T)
        kept = sizes > 1e-10 * max(sizes.max(), 1e-30)
        sizes, directions = sizes[kept], within.T @ inner[:, kept] / np.sqrt(sizes[kept])
    else:
        sizes, directions = np.linalg.eigh(within.T @ within)
    sizes = np.maximum(sizes, 0) / m
    level = sizes.sum() / w or 1.0  # of pictures that are all their class's mean
    along = means @ directions
    across = means - along @ directions.T
    prior = (1 - balance) * np.log(np.bincount(y, minlength=classes) / m)
    heads = []
    for s in shrinkages:
        weight = along / ((1 - s) * sizes + s * level) @ directions.T + across / (s * level)
        bias = prior - (weight * means).sum(1) / 2
        weight = weight / scale
        heads.append((weight, bias - weight @ mean))
    return heads


def logistic(
    x: Array, y: NDArray[np.int64], classes: int, strength: float, balance: float = 0.0
) -> tuple[Array, Array]:
    """Multinomial logistic regression of features of one scale."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  # a second, for those who use it

    mean, scale = x.mean(0), x.std(0) + 1e-6
    fitted = LogisticRegression(C=strength, max_iter=300).fit((x - mean) / scale, y, counting(y, balance))
    weight, bias = fitted.coef_, fitted.intercept_
    if classes == 2:  # noqa: PLR2004  # which it answers with one number
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    weight = weight / scale
    return weight, bias - weight @ mean


def _logistic(x: Array, y: NDArray[np.int64], classes: int, strengths: Sequence[float], balance: float) -> Heads:
    return [logistic(x, y, classes, one, balance) for one in strengths]


def counting(y: NDArray[np.int64], balance: float) -> Array | None:
    """What each example counts, 1 on average: its class's size to the power -balance."""
    if not balance:
        return None
    weight = np.bincount(y)[y] ** -balance
    return np.asarray(weight / weight.mean())


@dataclass(frozen=True)
class _Found:
    """What a way of fitting a head is worth, at one strength."""

    tried: "_Tried"
    strength: float
    loss: float
    scale: float  # of the logits, by which they are as sure as they are right
    logits: Array


@dataclass(frozen=True)
class _Tried:
    """A way of fitting a head: what it reads, and how, at several strengths."""

    reading: Reading | None
    how: str
    fit: Callable[[Array, NDArray[np.int64], int, Sequence[float], float], Heads]
    strengths: tuple[float, ...]
    balance: float

    def of(self, x: Array) -> Array:
        """What it reads of the features."""
        return x if self.reading is None else x[:, self.reading.numbers]

    def tried(self, x: Array, y: NDArray[np.int64], classes: int, split: list[Any]) -> Iterator[_Found]:
        """What it says of each fold, fitted to the others."""
        x = self.of(x)
        logits = np.zeros((len(self.strengths), len(y), classes))
        for rest, fold in split:
            heads = self.fit(x[rest], y[rest], classes, self.strengths, self.balance)
            for number, (weight, bias) in enumerate(heads):
                logits[number, fold] = x[fold] @ weight.T + bias
        for strength, fold_logits in zip(self.strengths, logits, strict=True):
            scale, loss = _tempered(fold_logits, y, counting(y, self.balance))
            yield _Found(self, strength, loss, scale, fold_logits)


def _tempered(logits: Array, y: NDArray[np.int64], counts: Array | None) -> tuple[float, float]:
    """The scale of logits with which their loss is least (Guo et al. 2017), and that loss."""
    scores, labels = torch.from_numpy(logits), torch.from_numpy(y)
    scales = [2 ** (power / 8) for power in range(-64, 33)]
    each = torch.ones(len(labels)) if counts is None else torch.from_numpy(counts)
    losses = [(each * F.cross_entropy(scale * scores, labels, reduction="none")).mean().item() for scale in scales]
    best = min(range(len(scales)), key=losses.__getitem__)
    return scales[best], losses[best]


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(array).float()
