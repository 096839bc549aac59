"""How good a model is, on pictures it has not seen."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torch import Tensor, nn

from vitrail.data import Normalise, Pictures, unit
from vitrail.train.distributed import World

ALONE = World(0, 1, torch.device("cpu"))
BINS = 15


@dataclass(frozen=True)
class Class:
    """One class: how many pictures, how often it was right to say it, and how many of its pictures were found."""

    name: str
    pictures: int
    precision: float
    recall: float


@dataclass(frozen=True)
class Bin:
    """The answers that were about equally sure: how many, how sure in the mean, and how many were right."""

    pictures: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Scores:
    """What answers are worth: shares of the pictures, the mean loss, and the error of calibration."""

    accuracy: float
    correct: int
    tested: int
    top5: float
    loss: float
    calibration: float  # sum over bins of (share of the pictures) |accuracy - confidence| (Guo et al. 2017, eq. 3)
    classes: list[Class]
    bins: list[Bin]
    confusion: list[list[int]]  # rows: the class of the picture; columns: the answer


@torch.no_grad()
def answers(
    model: nn.Module, pictures: Pictures, normalise: Normalise, world: World = ALONE, size: int = 256
) -> Tensor:
    """The logits (m classes) for every picture once; each process computes a part, and all get the whole."""
    model.eval()
    mine = pictures.rows[world.rank :: world.size]
    parts = []
    for rows in mine.split(size) if len(mine) else ():
        images = normalise(unit(pictures.store[rows].to(world.device)))
        parts.append(model(images, shortest=True).float().cpu())
    whole = world.gathered(torch.cat(parts) if parts else torch.zeros(0), len(pictures))
    return whole[:, : len(pictures.names)]  # a model may have room for more classes


def scores(logits: Tensor, labels: Tensor, names: tuple[str, ...]) -> Scores:
    """What logits (m classes) are worth, given the labels (m)."""
    chances = logits.double().softmax(1)
    confidence, answer = chances.max(1)
    right = answer == labels
    top = chances.topk(min(5, chances.shape[1]), dim=1).indices
    number = list(range(len(names)))
    precision, recall, _, support = precision_recall_fscore_support(
        labels.numpy(), answer.numpy(), labels=number, zero_division=0.0
    )
    bins = _bins(confidence, right)
    return Scores(
        accuracy=right.double().mean().item(),
        correct=int(right.sum()),
        tested=len(labels),
        top5=(top == labels[:, None]).any(1).double().mean().item(),
        loss=F.cross_entropy(logits.double(), labels).item(),
        calibration=sum(b.pictures * abs(b.accuracy - b.confidence) for b in bins) / len(labels),
        classes=[
            Class(name, int(count), float(p), float(r))
            for name, count, p, r in zip(names, support, precision, recall, strict=True)
        ],
        bins=bins,
        confusion=confusion_matrix(labels.numpy(), answer.numpy(), labels=number).tolist(),
    )


def _bins(confidence: Tensor, right: Tensor) -> list[Bin]:
    place = (confidence * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
    bins = []
    for number in range(BINS):
        chosen = place == number
        if chosen.any():
            parts = (confidence[chosen].mean().item(), right[chosen].double().mean().item())
            bins.append(Bin(int(chosen.sum()), *parts))
    return bins
