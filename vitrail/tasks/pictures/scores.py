"""What answers to labelled pictures are worth."""

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from vitrail.tasks.paired import wilson

BINS = 15
TOP = 5


@dataclass(frozen=True)
class Class:
    """One class: how many pictures, the fraction of its answers that are right (precision), and of its
    pictures that are answered so (recall); None where there is no such answer, or no such picture.
    """

    name: str
    pictures: int
    precision: float | None
    recall: float | None


@dataclass(frozen=True)
class Bin:
    """The answers that were about equally confident: how many, how confident on average, and how many were right."""

    pictures: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Scores:
    """What answers are worth: fractions of the pictures, the mean loss, and the error of calibration."""

    part: str  # of the data: test, validation, or all
    accuracy: float
    correct: int
    tested: int
    interval: tuple[float, float]  # of the accuracy, with 95 % confidence
    top5: float | None  # None where there are no more than five classes
    loss: float
    calibration: float  # sum over bins of (fraction of the pictures) |accuracy - confidence| (Guo et al. 2017, eq. 3)
    classes: list[Class]
    bins: list[Bin]
    confusion: list[list[int]]  # rows: the class of the picture; columns: the answer


def scores(logits: Tensor, labels: Tensor, names: tuple[str, ...], part: str = "test") -> Scores:
    """What logits (m classes) are worth, given the labels (m)."""
    from sklearn.metrics import (  # noqa: PLC0415  # a second, for those who measure
        confusion_matrix,
        precision_recall_fscore_support,
    )

    probabilities = logits.double().softmax(1)
    confidence, answer = probabilities.max(1)
    right = answer == labels
    top = probabilities.topk(TOP, dim=1).indices if len(names) > TOP else None
    number = list(range(len(names)))
    precision, recall, _, support = precision_recall_fscore_support(
        labels.numpy(), answer.numpy(), labels=number, zero_division=np.nan
    )
    bins = _bins(confidence, right)
    return Scores(
        part=part,
        accuracy=right.double().mean().item(),
        correct=int(right.sum()),
        tested=len(labels),
        interval=wilson(int(right.sum()), len(labels)),
        top5=None if top is None else (top == labels[:, None]).any(1).double().mean().item(),
        loss=F.cross_entropy(logits.double(), labels).item(),
        calibration=sum(b.pictures * abs(b.accuracy - b.confidence) for b in bins) / len(labels),
        classes=[
            Class(name, int(count), None if np.isnan(p) else float(p), None if np.isnan(r) else float(r))
            for name, count, p, r in zip(names, support, precision, recall, strict=True)
        ],
        bins=bins,
        confusion=confusion_matrix(labels.numpy(), answer.numpy(), labels=number).tolist(),
    )


def _bins(confidence: Tensor, right: Tensor) -> list[Bin]:
    number = (confidence * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
    bins = []
    for wanted in range(BINS):
        chosen = number == wanted
        if chosen.any():
            parts = (confidence[chosen].mean().item(), right[chosen].double().mean().item())
            bins.append(Bin(int(chosen.sum()), *parts))
    return bins
