"""A whole training: from a recipe to a run directory."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from vitrail.data import Batch, batches, sources
from vitrail.errors import InputError
from vitrail.families import Model, build
from vitrail.files import make_folder, write_json
from vitrail.recipe import Recipe
from vitrail.train.fit import Step, fit
from vitrail.train.objectives import classify
from vitrail.train.optim import adamw, warmup_cosine
from vitrail.weights import save


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    accuracy: float
    correct: int
    tested: int
    parameters: int
    epochs: int
    steps: int
    seconds: float
    run: str


class Job:
    """A training ready to start. ``steps`` trains, ``finish`` measures on the pictures set aside and writes the run."""

    def __init__(self, recipe: Recipe, out: Path) -> None:
        self.recipe, self.out = recipe, out
        torch.manual_seed(recipe.train.seed)
        self.generator = torch.Generator().manual_seed(recipe.train.seed)
        pictures = sources[recipe.data.source]()
        self.train, self.test = pictures.split(recipe.data.test, recipe.data.seed)
        self.mean, self.std = self.train.statistics()
        if "name" not in recipe.model:
            raise InputError("the recipe names no model; set model.name, such as --model vit-pico/2.")
        fields = {"classes": len(pictures.names), **recipe.model}
        self.model = build(fields.pop("name"), **fields)
        if fields["classes"] < len(pictures.names):
            raise InputError(
                f"model.classes={fields['classes']} is too few for {len(pictures.names)} classes; leave it out."
            )
        self.per_epoch = math.ceil(len(self.train) / recipe.train.batch)
        self.total = recipe.train.epochs * self.per_epoch
        self.started = time.monotonic()
        first = Batch(self.normalise(self.train.images[:1]), self.train.labels[:1])
        correct(self.model, first)  # a model that does not fit the pictures says so before anything is written
        make_folder(out)

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(p.numel() for p in self.model.parameters())

    def steps(self) -> Iterator[Step]:
        """Train, one update at a time; each goes into metrics.jsonl."""
        o = self.recipe.optim
        optimizer = adamw(self.model, o.lr, o.decay, (o.beta1, o.beta2))
        schedule = warmup_cosine(self.total, round(o.warmup * self.total))
        objective = classify(self.recipe.train.smoothing)
        with (self.out / "metrics.jsonl").open("w", encoding="utf-8") as metrics:
            for step in fit(self.model, objective, self.batches(), optimizer, schedule, clip=o.clip):
                print(json.dumps(asdict(step)), file=metrics)
                yield step

    def batches(self) -> Iterator[Batch]:
        """Every epoch's batches, normalised."""
        for _ in range(self.recipe.train.epochs):
            for batch in batches(self.train, self.recipe.train.batch, self.generator):
                yield Batch(self.normalise(batch.images), batch.labels)

    def normalise(self, images: Tensor) -> Tensor:
        """(x - mean) / std of the training pictures, channel by channel."""
        return (images - self.mean) / self.std

    def finish(self) -> Result:
        """Test, and write the run directory."""
        right = correct(self.model, Batch(self.normalise(self.test.images), self.test.labels))
        normalise = {"mean": self.mean.flatten().tolist(), "std": self.std.flatten().tolist()}
        result = Result(
            accuracy=right / len(self.test),
            correct=right,
            tested=len(self.test),
            parameters=self.parameters,
            epochs=self.recipe.train.epochs,
            steps=self.total,
            seconds=round(time.monotonic() - self.started, 1),
            run=str(self.out),
        )
        save(
            self.model, self.out, recipe=self.recipe.model_dump(mode="json"), normalise=normalise, result=asdict(result)
        )
        write_json(self.out / "labels.json", list(self.train.names))
        return result


def correct(model: Model, batch: Batch, size: int = 256) -> int:
    """How many pictures the model gives their label."""
    training = model.training
    model.eval()
    with torch.inference_mode():
        answers = torch.cat([model(images, shortest=True).argmax(-1) for images in batch.images.split(size)])
    model.train(training)
    return int((answers == batch.labels).sum())
