"""From picture files to answers: a run's model with everything around it."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.core.embeddings import check_size
from vitrail.data import Normalise, Unreadable, read_pixels, unit
from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.weights import read
from vitrail.weights.adapt import even

BATCH = 64


@dataclass(frozen=True)
class Source:
    """A picture and the name it goes by: a file, or its bytes."""

    name: str
    content: Path | bytes


@dataclass(frozen=True)
class Answer:
    """What a picture is taken for: the likeliest labels with their probabilities; or why it cannot be read."""

    name: str
    labels: list[tuple[str, float]]
    error: str = ""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model, the names of its classes, and how pictures are made into what it takes."""

    model: Model
    labels: tuple[str, ...]
    normalise: Normalise
    config: Any
    size: tuple[int, int]  # of pictures, down and across
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, path: str | Path, *, head: bool = True, normalise: str | None = None, size: tuple[int, int] | None = None
    ) -> "Predictor":
        """The predictor of a run directory, or of weights from elsewhere; with a head, unless it is not needed.

        Pictures are made as large as those that the model was made for, or of another size.
        """
        weights = read(path, normalise=normalise)
        config, notes = weights.config, weights.remarks
        if config.channels not in (1, 3):
            raise InputError(f"{str(path)!r} takes {config.channels} channels, where pictures have 1 or 3.")
        if head and not config.classes:
            raise InputError(f"{str(path)!r} has no head; train one with `vitrail train PICTURES --weights {path}`.")
        labels = weights.labels
        if labels is None:
            labels = tuple(map(str, range(config.classes)))
            notes += ["the classes have no names here, and go by their numbers"] * head
        means = weights.normalise
        if means is None:
            means = ((0.5,) * config.channels,) * 2
            notes.append("nothing says how pictures are normalised; 0.5 in the mean and of deviation is assumed")
        elif len(means[0]) != config.channels:  # as it was said for colours, of a model of grey pictures
            means = even(means, config.channels)
        size = size or config.size
        check_size("size", size, config.patch)
        return cls(weights.model().float(), labels, Normalise(*means), config, size, tuple(notes))

    @torch.inference_mode()
    def features(self, sources: Iterable[Source]) -> Iterator[tuple[Source, Tensor | str]]:
        """A vector for each picture, in order, or why it cannot be read."""
        for group, decoded, good in self._groups(sources):
            made = iter(self.model.pooled(self.normalise(unit(torch.stack(good)))) if good else ())  # type: ignore[operator]
            for source, pixels in zip(group, decoded, strict=True):
                yield source, pixels if isinstance(pixels, str) else next(made).float()

    def decoded(self, sources: Iterable[Source]) -> Iterator[tuple[Source, Tensor | str]]:
        """The bytes (c H W) of each picture at the model's size, in order, or why it cannot be read."""
        for group, decoded, _ in self._groups(sources):
            yield from zip(group, decoded, strict=True)

    def image(self, pixels: Tensor) -> Tensor:
        """Bytes (c H W) -> what the model takes, (1 c H W)."""
        return self.normalise(unit(pixels[None]))

    def answers(self, sources: Iterable[Source], top: int = 5) -> Iterator[Answer]:
        """An answer for each picture, in order; some are decoded and answered together."""
        for group, decoded, good in self._groups(sources):
            chances = iter(self.chances(torch.stack(good)) if good else ())
            for source, pixels in zip(group, decoded, strict=True):
                if isinstance(pixels, str):
                    yield Answer(source.name, [], pixels)
                else:
                    yield Answer(source.name, self._top(next(chances), top))

    def _groups(self, sources: Iterable[Source]) -> Iterator[tuple[list[Source], list[Tensor | str], list[Tensor]]]:
        """Some sources at a time, what each is decoded to, and those of them that could be."""
        waiting = iter(sources)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while group := list(islice(waiting, BATCH)):
                decoded = list(pool.map(self._read, group))
                yield group, decoded, [pixels for pixels in decoded if isinstance(pixels, Tensor)]

    @torch.inference_mode()
    def chances(self, images: Tensor) -> Tensor:
        """Bytes (b c H W) -> probabilities (b labels)."""
        logits = self.model(self.normalise(unit(images)), shortest=True)
        return logits[:, : len(self.labels)].double().softmax(1)

    def _read(self, source: Source) -> Tensor | str:
        try:
            return torch.from_numpy(read_pixels(source.content, self.size, self.config.channels).copy())
        except Unreadable as error:
            return str(error)

    def _top(self, chances: Tensor, top: int) -> list[tuple[str, float]]:
        values, places = chances.topk(min(top, len(self.labels)))
        return [(self.labels[place], value) for place, value in zip(places.tolist(), values.tolist(), strict=True)]
