"""Pictures as they are learned from and measured on."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Aside, Batch, Examples, Normalise, Pictures, Rows, unit
from vitrail.distributed import ALONE, World
from vitrail.families import Model, at_once
from vitrail.tasks.paired import compared
from vitrail.tasks.pictures.scores import scores
from vitrail.tasks.task import Changed, Comparison, EvaluationSet, Measurement
from vitrail.weights import Weights
from vitrail.weights.weights import normalisation

Augmentation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of pictures (b c H W), and of labels


@dataclass(eq=False)
class TrainingPictures(Examples):
    """Pictures (b c H W) changed at random, and labels (b), or probabilities of classes (b classes)."""

    pictures: Pictures
    augment: Augmentation
    normalise: Normalise

    def __len__(self) -> int:
        return len(self.pictures)

    def batch(self, rows: Rows, device: torch.device) -> tuple[Tensor, Tensor, int]:
        index = torch.from_numpy(rows)
        images = unit(self.pictures.store[self.pictures.rows[index]].to(device))
        images, labels = self.augment(images, self.pictures.labels[index].to(device))
        return self.normalise(images), labels, len(rows)


@dataclass(eq=False)
class TestPictures(EvaluationSet):
    """Pictures with labels, as they are."""

    __test__ = False  # no tests for pytest to collect

    pictures: Pictures
    normalise: Normalise
    aside: list[Aside] = field(default_factory=list)
    part: str = "test"
    seen: int = 0

    def __len__(self) -> int:
        return len(self.pictures)

    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        logits = answers(model, self.pictures, self.normalise, world)
        result = scores(logits, self.pictures.labels, self.pictures.names, self.part)
        summary = {name: getattr(result, name) for name in ("part", "accuracy", "correct", "tested")}
        return Measurement({"accuracy": result.accuracy, "loss": result.loss}, summary, result, logits)

    def seen_by(self, weights: Weights) -> "TestPictures":
        return replace(self, normalise=normalisation(weights))

    def interval(self, measurement: Measurement) -> tuple[float, float]:
        return measurement.scores.interval

    def compare(self, before: Measurement, after: Measurement) -> Comparison:
        labels, names, files = self.pictures.labels, self.pictures.names, self.pictures.files
        first, second = (one.outputs.argmax(1) for one in (before, after))
        changed = [
            Changed(files[row], names[int(labels[row])], names[int(first[row])], names[int(second[row])])
            for row in (first != second).nonzero()[:, 0].tolist()
        ]
        return compared(first == labels, second == labels, changed)


@torch.no_grad()
def answers(model: Model, pictures: Pictures, normalise: Normalise, world: World = ALONE, most: int = 256) -> Tensor:
    """The logits (m classes) for every picture once; each process computes a part, and all get the whole."""
    model.eval()
    mine = pictures.rows[world.rank :: world.size]
    parts = []
    for rows in mine.split(at_once(model.config, most)) if len(mine) else ():
        images = normalise(unit(pictures.store[rows].to(world.device)))
        parts.append(model(images, shortest=True).float().cpu())
    whole = world.gathered(torch.cat(parts) if parts else torch.zeros(0), len(pictures))
    return whole[:, : len(pictures.names)]  # a model may have room for more classes


def classify(model: nn.Module, batch: Batch, smoothing: float = 0.0, weight: Tensor | None = None) -> Tensor:
    """-sum_c w_c t_c log softmax(model(x))_c, t = 1 - s at the class plus s / C everywhere (Szegedy et al. 2016)."""
    return label_loss(model(batch.inputs, shortest=True), batch.targets, smoothing, weight)


def label_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.0, weight: Tensor | None = None) -> Tensor:
    """The same of logits (b classes)."""
    if weight is None:
        return F.cross_entropy(logits, targets, label_smoothing=smoothing)
    weight = F.pad(weight, (0, logits.shape[1] - len(weight))).to(logits)  # a model may have room for more classes
    total = F.cross_entropy(logits, targets, weight=weight, label_smoothing=smoothing, reduction="sum")
    return total / len(logits)  # and not by the weights of this batch, which differ from batch to batch


def class_weights(labels: Tensor, classes: int, balance: float) -> Tensor | None:
    """What a picture of each class counts: its class's size to the power -balance, 1 on average over the pictures."""
    if not balance:
        return None
    counts = labels.bincount(minlength=classes).clamp(min=1).float()
    weight = counts**-balance
    return weight * counts.sum() / (weight * counts).sum()
