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

from vitrail.data import Normalise, Unreadable, read_pixels, unit
from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.files import read_json
from vitrail.weights import load

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

    @classmethod
    def of(cls, run: Path) -> "Predictor":
        """The predictor of a run directory."""
        model, about = load(run), read_json(run / "config.json")
        normalise, labels = about.get("normalise"), read_json(run / "labels.json")
        if not isinstance(normalise, dict) or not {"mean", "std"} <= normalise.keys():
            raise InputError(
                f"{str(run / 'config.json')!r} does not say how pictures are normalised; train the run again."
            )
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise InputError(f"{str(run / 'labels.json')!r} is not a list of names; take it from the run again.")
        return cls(model, tuple(labels), Normalise(tuple(normalise["mean"]), tuple(normalise["std"])), model.config)

    def answers(self, sources: Iterable[Source], top: int = 5) -> Iterator[Answer]:
        """An answer for each picture, in order; some are decoded and answered together."""
        waiting = iter(sources)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while group := list(islice(waiting, BATCH)):
                read = list(pool.map(self._read, group))
                good = [pixels for pixels in read if isinstance(pixels, Tensor)]
                chances = iter(self.chances(torch.stack(good)) if good else ())
                for source, pixels in zip(group, read, strict=True):
                    if isinstance(pixels, str):
                        yield Answer(source.name, [], pixels)
                    else:
                        yield Answer(source.name, self._top(next(chances), top))

    @torch.inference_mode()
    def chances(self, images: Tensor) -> Tensor:
        """Bytes (b c H W) -> probabilities (b labels)."""
        logits = self.model(self.normalise(unit(images)), shortest=True)
        return logits[:, : len(self.labels)].double().softmax(1)

    def _read(self, source: Source) -> Tensor | str:
        try:
            return torch.from_numpy(read_pixels(source.content, self.config.size, self.config.channels).copy())
        except Unreadable as error:
            return str(error)

    def _top(self, chances: Tensor, top: int) -> list[tuple[str, float]]:
        values, places = chances.topk(min(top, len(self.labels)))
        return [(self.labels[place], value) for place, value in zip(places.tolist(), values.tolist(), strict=True)]
