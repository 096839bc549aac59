"""Pictures as sequences of colours, as they are learned from and measured on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Aside, Batch, Examples, Rows
from vitrail.data.batches import BITS, UNASKED
from vitrail.distributed import ALONE, World
from vitrail.families import Model, at_once
from vitrail.tasks.task import EvaluationSet, Measurement

TOGETHER, SOME = 256, 4_096  # pictures at most that a model, and that a histogram, is given at a time


@dataclass(eq=False)
class PixelRows(Examples):
    """Pictures as numbers of colours (m n), of so many; the numbers after them stand for the beginning, and the mask.

    Of a GPT inputs are the beginning and all pixels but the last (b n), and targets all pixels. Of a BERT inputs are
    pixels with some of them masked, and targets those, UNASKED elsewhere.
    """

    pixels: Tensor
    size: tuple[int, int]
    colours: int
    hidden: float = 0.0  # the fraction that is masked; 0: of a GPT
    shift: int = 0

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def asked(self) -> int:
        """Pixels of a picture that the loss is an average over."""
        count = self.pixels.shape[1]
        return max(1, round(self.hidden * count)) if self.hidden else count

    def count(self, rows: Rows) -> int:
        return len(rows) * self.asked

    def batch(self, rows: Rows, device: torch.device) -> tuple[Tensor, Tensor, int]:
        pixels = self.pixels[torch.from_numpy(np.asarray(rows))].long()
        pixels = shifted(pixels, self.size, self.shift) if self.shift else pixels
        given, asked = begun(pixels, self.colours), pixels
        if self.hidden:
            given, asked = masked(pixels, self.asked, self.colours + 1)
        return given.to(device), asked.to(device), self.count(rows)


def begun(pixels: Tensor, begin: int) -> Tensor:
    """The beginning, and all pixels but the last (b n)."""
    return torch.cat([pixels.new_full((len(pixels), 1), begin), pixels[:, :-1]], 1)


def masked(pixels: Tensor, count: int, mask: int) -> tuple[Tensor, Tensor]:
    """Pixels with so many of each picture masked, and those alone."""
    chosen = torch.rand(pixels.shape).argsort(1).argsort(1) < count
    return pixels.masked_fill(chosen, mask), pixels.masked_fill(~chosen, UNASKED)


def shifted(pixels: Tensor, size: tuple[int, int], most: int) -> Tensor:
    """Pictures (b n) moved by some pixels, as many as are drawn for each, with their edges going on."""
    down, across = (torch.randint(-most, most + 1, (len(pixels), 1)) for _ in range(2))
    y, x = torch.arange(size[0]).repeat_interleave(size[1]), torch.arange(size[1]).repeat(size[0])
    rows, columns = (y + down).clamp(0, size[0] - 1), (x + across).clamp(0, size[1] - 1)
    return pixels.gather(1, rows * size[1] + columns)


def paint(model: nn.Module, batch: Batch) -> Tensor:
    """-sum log p(pixel) / count: of each after those before it, or of those that are hidden."""
    if batch.targets.min() >= 0:
        return F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
    asked = batch.targets >= 0
    return F.cross_entropy(model(batch.inputs, rows=asked), batch.targets[asked])


@dataclass(frozen=True)
class PixelScores:
    """All numbers of a measurement, in bits a pixel that was asked for."""

    part: str
    tested: int  # pictures
    pixels: int  # that were asked for
    bits: float
    accuracy: float  # how often the likeliest colour was right
    histogram: float  # bits, by how often each place had each colour in training
    png: float  # bits, of the same colours as PNG files


@dataclass(eq=False)
class TestPixels(EvaluationSet):
    """Pictures of which each pixel, or each hidden one, is asked for."""

    __test__ = False  # no tests for pytest to collect

    rows: PixelRows
    learned: Tensor  # pixels that were trained on, of which a histogram is made
    part: str = "test"
    aside: Sequence[Aside] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def baselines(self) -> tuple[float, float]:
        """Bits a pixel by a histogram of each place, and as PNG files."""
        histogram = histogram_bits(self.learned, self.rows.pixels, self.rows.colours)
        return histogram, png_bits(self.rows.pixels, self.rows.size)

    @torch.no_grad()
    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        model.eval()
        nats, right, count = 0.0, 0.0, 0.0
        together = at_once(model.config, TOGETHER)
        still = PixelRows(self.rows.pixels, self.rows.size, self.rows.colours, self.rows.hidden)
        with torch.random.fork_rng(devices=[]):
            for number, first in enumerate(range(0, len(self), together)):
                torch.manual_seed(number)
                if number % world.size != world.rank:
                    continue
                rows = np.arange(first, min(len(self), first + together))
                inputs, targets, _ = still.batch(rows, next(model.parameters()).device)
                asked = targets >= 0
                logits = model(inputs)[asked].float()
                nats += float(F.cross_entropy(logits, targets[asked], reduction="sum"))
                right += float((logits.argmax(-1) == targets[asked]).sum())
                count += float(asked.sum())
        nats, right, count = world.sums(nats, right, count)
        bits = BITS * nats / max(1.0, count)
        scores = PixelScores(
            part=self.part,
            tested=len(self),
            pixels=int(count),
            bits=bits,
            accuracy=right / max(1.0, count),
            histogram=self.baselines[0],
            png=self.baselines[1],
        )
        values = {"bits": bits, "loss": bits / BITS, "accuracy": scores.accuracy}
        return Measurement(values, {"part": self.part, **values, "tested": scores.tested}, scores)


def histogram_bits(learned: Tensor, pixels: Tensor, colours: int) -> float:
    """Bits a pixel, where each place has the colours that it had in training, and each one time more."""
    places = learned.shape[1]
    counts = torch.zeros(places * colours, dtype=torch.float64)
    for some in learned.split(SOME):
        counts += (torch.arange(places) * colours + some).flatten().bincount(minlength=len(counts))
    table = counts.view(places, colours) + 1
    nats = -(table / table.sum(1, keepdim=True)).log()
    return BITS * float(nats.T.gather(0, pixels.long()).mean())


def png_bits(pixels: Tensor, size: tuple[int, int]) -> float:
    """Bits a pixel of the numbers of colours as PNG files of grey pictures, their heads left out."""
    from io import BytesIO  # noqa: PLC0415

    from PIL import Image  # noqa: PLC0415

    def length(array: Any) -> int:
        file = BytesIO()
        Image.fromarray(array).save(file, "PNG", optimize=True)
        return len(file.getvalue())

    some = pixels[:: max(1, len(pixels) // 500)].view(-1, *size).numpy()
    some = some.astype(np.uint8 if some.max() < 256 else np.uint16)  # noqa: PLR2004
    head = length(np.zeros((1, 1), np.uint8)) - 1 - 9  # what a picture of one pixel takes beside it
    return float(np.mean([8 * (length(one) - head) / one.size for one in some]))
