"""From picture files to answers: a model with everything around it."""

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from vitrail.core.embeddings import check_size
from vitrail.data import Normalise, Unreadable, files_in, listed_in, read_pixels, unit
from vitrail.errors import InputError
from vitrail.families import ViT, at_once
from vitrail.families.picture_model import PictureModel
from vitrail.weights import Weights
from vitrail.weights.onnx import OnnxModel
from vitrail.weights.weights import normalisation

BATCH = 32


@dataclass(frozen=True)
class Input:
    """A picture and the name it goes by: a file, or its bytes."""

    name: str
    content: Path | bytes


def inputs_of(names: Iterable[str]) -> Iterator[Input]:
    """The pictures that names stand for: files, those in folders or in a table, or - for one on standard input."""
    names = list(names)
    for name in names:  # before any picture is looked at
        if name != "-" and Path(name).is_dir() and next(files_in(Path(name)), None) is None:
            raise InputError(f"{name!r} is a folder with no file in it; give pictures, or a folder that holds some.")
    for name in names:
        path = Path(name)
        if name == "-":
            yield Input("-", sys.stdin.buffer.read())
        elif path.is_dir():
            yield from (Input(str(file), file) for file in files_in(path))
        elif path.suffix.lower() in (".csv", ".tsv") and path.is_file():
            yield from (Input(str(file), file) for file in listed_in(path))
        else:
            yield Input(name, path)


@dataclass(frozen=True)
class Answer:
    """What a picture is taken for: the likeliest labels with their probabilities; or why it cannot be read."""

    name: str
    labels: list[tuple[str, float]]
    error: str = ""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model, the names of its classes, and how pictures are made into what it takes."""

    model: PictureModel  # or what is called like it
    labels: tuple[str, ...]
    normalise: Normalise
    weights: Weights  # that the model was made of
    size: tuple[int, int]  # of pictures, down and across
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, weights: Weights, *, head: bool = True, size: tuple[int, int] | None = None, inside: bool = False
    ) -> "Predictor":
        """The predictor of a run's weights, or of others; with a head, unless it is not needed.

        Pictures are made as large as those that the model was made for, or of another size. Whoever will look inside
        says so.
        """
        path, config, notes = weights.path, weights.config, weights.remarks
        model: Any = weights.model().float()
        if not isinstance(model, PictureModel | OnnxModel):
            raise InputError(f"{path!r} is a {weights.family}, and takes no pictures.")
        if inside and isinstance(model, OnnxModel):
            raise InputError(f"{path!r} is an ONNX file, which is run as a whole; look into the run it was made of.")
        if config.channels not in (1, 3):
            raise InputError(f"{path!r} takes {config.channels} channels, where pictures have 1 or 3.")
        if head and not config.classes:
            raise InputError(f"{path!r} has no head; train one with `vitrail train PICTURES --weights {path}`.")
        if weights.labels is None and head:
            notes.append("the classes have no names here, and go by their numbers")
        if weights.normalise is None:
            notes.append("nothing says how pictures are normalised; mean 0.5 and std 0.5 are assumed")
        size = size or config.size
        check_size("size", size, config.step)
        if size != config.size and weights.family in ("gaussian", "linear"):
            raise InputError(f"{path!r} is a {weights.family}, of pictures of its own size alone; leave --size out.")
        return cls(
            cast("PictureModel", model), class_names(weights), normalisation(weights), weights, size, tuple(notes)
        )

    @property
    def attending(self) -> ViT:
        """The model, for who looks at its attention."""
        if not isinstance(self.model, ViT):
            raise InputError(f"{self.weights.path!r} is a {self.weights.family}, without attention to look at.")
        return self.model

    @torch.inference_mode()
    def features(self, inputs: Iterable[Input]) -> Iterator[tuple[Input, Tensor | str]]:
        """A vector for each picture, in order, or why it cannot be read."""
        for group, decoded, good in self._groups(inputs):
            vectors = iter(self.model.pooled(self.normalise(unit(torch.stack(good)))) if good else ())
            for one, pixels in zip(group, decoded, strict=True):
                yield one, pixels if isinstance(pixels, str) else next(vectors).float()

    def decoded(self, inputs: Iterable[Input]) -> Iterator[tuple[Input, Tensor | str]]:
        """The bytes (c H W) of each picture at the model's size, in order, or why it cannot be read."""
        for group, decoded, _ in self._groups(inputs):
            yield from zip(group, decoded, strict=True)

    def image(self, pixels: Tensor) -> Tensor:
        """Bytes (c H W) -> what the model takes, (1 c H W)."""
        return self.normalise(unit(pixels[None]))

    def answers(self, inputs: Iterable[Input], top: int = 5) -> Iterator[Answer]:
        """An answer for each picture, in order; some are decoded and answered together."""
        for group, decoded, good in self._groups(inputs):
            probabilities = iter(self.probabilities(torch.stack(good)) if good else ())
            for one, pixels in zip(group, decoded, strict=True):
                if isinstance(pixels, str):
                    yield Answer(one.name, [], pixels)
                else:
                    yield Answer(one.name, self._top(next(probabilities), top))

    def _groups(self, inputs: Iterable[Input]) -> Iterator[tuple[list[Input], list[Tensor | str], list[Tensor]]]:
        """Some inputs at a time, what each is decoded to, and those of them that could be."""
        waiting = iter(inputs)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while group := list(islice(waiting, at_once(self.model.config, BATCH))):
                decoded = list(pool.map(self._read, group))
                yield group, decoded, [pixels for pixels in decoded if isinstance(pixels, Tensor)]

    @torch.inference_mode()
    def probabilities(self, images: Tensor) -> Tensor:
        """Bytes (b c H W) -> probabilities (b labels)."""
        logits = self.model(self.normalise(unit(images)), shortest=True)
        return logits[:, : len(self.labels)].double().softmax(1)

    def _read(self, one: Input) -> Tensor | str:
        try:
            return torch.from_numpy(
                read_pixels(one.content, self.size, self.model.config.channels, self.weights.fit).copy()
            )
        except Unreadable as error:
            return str(error)

    def _top(self, probabilities: Tensor, top: int) -> list[tuple[str, float]]:
        values, numbers = probabilities.topk(min(top, len(self.labels)))
        return [(self.labels[number], value) for number, value in zip(numbers.tolist(), values.tolist(), strict=True)]


def class_names(weights: Weights) -> tuple[str, ...]:
    """What the classes are called; their numbers, where nothing says."""
    return weights.labels or tuple(map(str, range(weights.config.classes)))
