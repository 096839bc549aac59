"""Learning pictures as sequences of colours (iGPT, Chen et al. 2020), as a task."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data import Batch, Parts, View, collect, find, sources, survey
from vitrail.data.palette import Palette
from vitrail.decode import Drawing
from vitrail.errors import InputError
from vitrail.families import Model, configure, known_as
from vitrail.families.bert.config import BERTConfig
from vitrail.families.gpt.config import GPTConfig
from vitrail.families.token_shape import TokenShape
from vitrail.machine import multiplies_bf16
from vitrail.progress import Progress, silent
from vitrail.tasks.pixels.examples import PixelRows, TestPixels, paint
from vitrail.tasks.pixels.painter import Painter, probe
from vitrail.tasks.pixels.recipe import PixelRecipe, Pixels
from vitrail.tasks.sections import Card, Figure, Gallery, Section, Table
from vitrail.tasks.task import Choice, Measurement, Metric, Task, Trained, filled, tasks

SIDE = 16  # pixels of a side, at most, where none is given
MEMORY = 2.0  # gigabytes of pictures
SHOWN, LABELLED = 12, 500  # pictures in a report; and those that a probe learns from, at most
SEEN = 2_200_000  # pixels in all: of 1,437 digits 24 epochs, after which others are guessed worse (bench/README.md)


@tasks.add("pixels")
@dataclass(eq=False, kw_only=True)
class PixelTask(Task):
    """What the next pixel of a picture is (GPT), or a hidden one (BERT)."""

    unit = "pixels"
    batched = "pictures"
    sampled = True
    metric = Metric("bits", higher=False)

    recipe: PixelRecipe
    config: TokenShape
    parts: Parts
    palette: Palette
    train: Tensor
    held: Tensor

    @classmethod
    def prepare(
        cls, recipe: PixelRecipe, progress: Progress = silent, *, palette: Palette | None = None
    ) -> "PixelTask":
        """Read the pictures, find their colours unless they are known, and choose what the recipe leaves out."""
        if recipe.weights.path is not None:
            raise InputError("models of pixels are trained from scratch here; leave weights.path out.")
        parts, size = read_pictures(recipe.data, progress)
        palette = palette or Palette.of(parts.train.images, recipe.data.colours, recipe.data.seed)
        train, held = (palette.encode(part.images) for part in (parts.train, parts.test))
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"size": size})})
        complete, choices = filled(recipe, _choices(recipe, train.numel(), train.shape[1]))
        name = complete.model["name"]
        given = {field: value for field, value in complete.model.items() if field != "name"}
        sizes: dict[str, Any] = {"tokens": len(palette) + 2, "length": train.shape[1]}
        sizes |= {"pad": None} if known_as(name)[0] is BERTConfig else {}
        config = configure(name, **{**sizes, **given})
        if not isinstance(config, GPTConfig | BERTConfig):
            raise InputError(f"a {name} learns no sequences of pixels; choose gpt or bert.")
        return cls(
            recipe=complete,
            config=config,
            choices=choices,
            parts=parts,
            palette=palette,
            train=train,
            held=held,
        )

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.train), len(self.held)

    @property
    def per_update(self) -> int:
        return max(1, self.recipe.train.batch * self.config.length // self.config.shown)

    @property
    def stored(self) -> int:
        return self.train.nbytes + self.held.nbytes

    def _rows(self, pixels: Tensor, *, shift: int = 0) -> PixelRows:
        hidden = self.recipe.data.hidden if isinstance(self.config, BERTConfig) else 0.0
        return PixelRows(pixels, self.size, len(self.palette), hidden, shift)

    @property
    def size(self) -> tuple[int, int]:
        """Pixels down and across."""
        return self.recipe.data.size or (0, 0)

    @cached_property
    def examples(self) -> PixelRows:
        return self._rows(self.train, shift=self.recipe.data.shift)

    @cached_property
    def held_out(self) -> TestPixels:
        return TestPixels(self._rows(self.held), self.train, self.parts.held, self.parts.aside)

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        return paint(model, batch)

    @classmethod
    def evaluation_set(
        cls,
        trained: Trained,
        data: Sequence[str] = (),
        progress: Progress = silent,
        options: Mapping[str, Any] | None = None,
    ) -> TestPixels:
        cls.no_options(options)
        if trained.recipe is None:
            raise InputError(f"{trained.weights.path!r} does not say what it was trained on.")
        if data:
            raise InputError(f"a model of pixels is measured on what its run held out; leave {data[0]!r} out.")
        palette = Palette.read(trained.folder / "palette.json")
        return cls.prepare(trained.recipe, progress, palette=palette).held_out

    def keep(self, folder: Path) -> None:
        self.palette.write(folder / "palette.json")

    def fingerprint(self) -> str:
        digest = blake2b(digest_size=16)
        for pixels in (self.train, self.held):
            digest.update(pixels.numpy().tobytes())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        return {
            **super().record(),
            "colours": len(self.palette),
            "set aside": [asdict(one) for one in self.parts.aside],
        }

    def plan(self) -> list[tuple[str, str]]:
        down, across = self.size
        train, held = self.counts
        return [
            ("data", f"{self.parts.layout}: {train:,} pictures to train on, {held:,} to measure on"),
            ("", f"{down} x {across} pixels in {len(self.palette)} colours: sequences of {down * across:,}"),
        ]

    def cards(self, measurement: Measurement) -> list[Card]:
        scores = measurement.scores
        return [
            Card(f"{scores.bits:.3f}", f"{scores.part} bits a pixel"),
            Card(f"{scores.histogram:.3f}", "by a histogram of each place"),
            Card(f"{scores.png:.3f}", "as PNG"),
        ]

    def headline(self, measurement: Measurement) -> str:
        scores = measurement.scores
        which = "hidden pixel" if isinstance(self.config, BERTConfig) else "pixel"
        return (
            f"{scores.part} {scores.bits:.3f} bits a {which} (by a histogram of each place {scores.histogram:.3f}, "
            f"as PNG {scores.png:.3f}; {scores.tested:,} pictures)"
        )

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        scores = measurement.scores
        return [
            f"bits         {scores.bits:.4f} a pixel",
            f"histogram    {scores.histogram:.4f}: each place as it was in training",
            f"PNG          {scores.png:.4f}: the same colours as files",
            f"accuracy     {scores.accuracy:.2%} of the likeliest colours are right",
            f"             {scores.pixels:,} pixels of {scores.tested:,} pictures ({scores.part})",
        ]

    def samples(self, model: Model) -> list[Section]:
        painter = Painter(model, self.palette, self.size)  # type: ignore[arg-type]
        shown: list[Section] = []
        if isinstance(self.config, GPTConfig):
            shown += [_drawn(painter), _completed(painter, self.held)]
        return [*shown, *_probed(painter, self.parts, self.train, self.held)]


def _drawn(painter: Painter) -> Gallery:
    drawn = painter.pictures(painter.draw(torch.zeros(SHOWN, 0, dtype=torch.long), _seeded()))
    figures = [Figure(one, "", "", "drawn") for one in drawn]
    return Gallery(title="Drawn", note="Pictures that the model made, pixel by pixel.", figures=figures)


def _completed(painter: Painter, held: Tensor) -> Gallery:
    halves = held[:SHOWN].long()
    whole = painter.draw(halves[:, : halves.shape[1] // 2], _seeded())
    figures = []
    for number, (one, other) in enumerate(zip(painter.pictures(whole), painter.pictures(halves), strict=True)):
        figures += [Figure(one, "completed", "", str(number)), Figure(other, "as it is", "", str(number))]
    note = "The upper half of a picture that was not trained on, gone on with; and the picture itself."
    return Gallery(title="Completed", note=note, figures=figures, wide=True)


def _probed(painter: Painter, parts: Parts, train: Tensor, held: Tensor) -> list[Section]:
    """What a linear classifier finds in each layer, of pictures that have labels."""
    labels, truth = parts.train.labels, parts.test.labels
    if len(parts.train.names) < 2 or int(labels.bincount().min()) < 2:  # noqa: PLR2004
        return []
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:LABELLED]
    if len(labels[rows].unique()) < len(parts.train.names) or int(labels[rows].bincount().min()) < 2:  # noqa: PLR2004
        return []
    some = slice(0, 2 * LABELLED)
    accuracies = probe(painter.features(train[rows]), labels[rows], painter.features(held[some]), truth[some])
    named = ["the embedding", *(f"layer {number}" for number in range(1, len(accuracies)))]
    note = f"A linear classifier on the means of 4 x 4 cells, from {len(rows):,} labels; the model was told none."
    cells = [(name, f"{value:.1%}") for name, value in zip(named, accuracies, strict=True)]
    return [Table(title="What each layer knows", note=note, columns=("after", ">accuracy"), rows=cells)]


def _seeded() -> Drawing:
    return Drawing(generator=torch.Generator().manual_seed(0))


def read_pictures(data: Pixels, progress: Progress) -> tuple[Parts, tuple[int, int]]:
    """The pictures in their parts, at the size that they are learned at."""
    if data.source in sources:
        path = None if data.path is None else Path(data.path)
        parts = sources[data.source](path, data.test, data.seed)
        own = int(parts.train.store.shape[2]), int(parts.train.store.shape[3])
        size = data.size or (min(SIDE, own[0]), min(SIDE, own[1]))
        channels = int(parts.train.store.shape[1])
        train, test = (part.fitted(size, channels) for part in (parts.train, parts.test))
        return Parts(train, test, parts.layout, parts.total, parts.aside, parts.held), size
    if data.path is None:
        raise InputError("the recipe names no pictures; give a folder with --data, or set data.source.")
    files = survey(find(Path(data.path)), progress, data.bad)
    size = data.size or (SIDE, SIDE)
    view = View(size, 1 if files.grey else 3, "crop")
    how: dict[str, Any] = {"test": data.test, "seed": data.seed, "limit": data.bad, "memory": MEMORY}
    return collect(files, view, **how, progress=progress), size


def _choices(recipe: PixelRecipe, pixels: int, length: int) -> list[Choice]:
    why = f"{pixels:,} pixels"
    epochs = max(2, min(60, round(SEEN / max(1, pixels))))
    whole = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else epochs
    name = recipe.model.get("name", "gpt")
    shape = [
        Choice("model.width", 128, why),
        Choice("model.depth", 6, why),
        Choice("model.heads", 4, "width 128"),
        Choice("model.dropout", 0.2, why),
        *([Choice("model.order", "pre", "learns faster from scratch")] if name == "bert" else []),
    ]
    return [
        Choice("model.name", "gpt", "what comes next"),
        *(shape if name in ("gpt", "bert") else []),
        Choice("optim.name", "muon", "learns in fewer steps"),
        Choice("optim.lr", 3e-3, why),
        Choice("optim.muon", 1e-2, "of the matrices"),
        Choice("optim.beta2", 0.98, "of a gradient that changes fast"),
        *([] if recipe.train.steps else [Choice("train.epochs", epochs, why)]),
        Choice("train.batch", max(1, 4096 // length), f"pictures of {length:,} pixels"),
        *([Choice("train.precision", "bf16", "the processor multiplies in it, faster")] if multiplies_bf16() else []),
        Choice("train.ema", 0.999, "the mean of the last models is better than any of them"),
        Choice("train.evaluate", max(1, round(whole / 20)), f"{whole} epochs"),
    ]
