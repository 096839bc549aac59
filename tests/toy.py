"""A task and a family from outside, through the public registries alone: short sequences of numbers put in order."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import nn

from vitrail.config import Config
from vitrail.core import Attention, Block, FeedForward, LayerNorm, Mask, Stack, Sublayer, positions
from vitrail.data import Examples
from vitrail.families import Model, configure, families
from vitrail.recipe import Recipe, recipes
from vitrail.tasks.task import ALONE, EvaluationSet, Measurement, Metric, Task, tasks


@families.add("sorter")
class Sorter(Model):
    """Numbers from 1, 0 for padding (b n) -> which number should stand there (b n numbers)."""

    class Config(Config):
        numbers: int = 9
        length: int = 7
        width: int = 24

    def __init__(self, config):
        super().__init__()
        self.config, w = config, config.width
        self.embed = nn.Embedding(config.numbers + 1, w)
        self.position = positions["learned"]((1, config.length), w, 3)
        parts = [(Attention(w, 3), FeedForward(w, 2 * w)) for _ in range(2)]
        self.encoder = Stack(Block(*(Sublayer(f, LayerNorm(w), w) for f in pair)) for pair in parts)
        self.head = nn.Linear(w, config.numbers)

    blocks = property(lambda self: list(self.encoder))

    def answer(self, stream):
        return self.head(stream)

    def stream(self, inputs):
        return self.encoder(self.position.sequence(self.embed(inputs)), Mask(present=inputs > 0))

    def example(self):
        return torch.ones(1, self.config.length, dtype=torch.long, device=self.embed.weight.device)


@recipes.add("sort")
class SortRecipe(Recipe):
    sections = ("data", *Recipe.sections)
    data: dict = {"count": 600}  # noqa: RUF012


@dataclass(eq=False)
class Sequences(Examples, EvaluationSet):
    """Sequences of several lengths, whose loss is an average over their numbers."""

    rows: torch.Tensor

    def __len__(self):
        return len(self.rows)

    def count(self, rows):
        return int((self.rows[rows] > 0).sum())

    def batch(self, rows, device):
        inputs = self.rows[rows].to(device)
        targets = torch.where(inputs > 0, inputs, 99).sort(1).values.where(inputs > 0, 0) - 1
        return inputs, targets, self.count(rows)

    def measure(self, model, world=ALONE):
        inputs, targets, count = self.batch(slice(None), world.device)
        right = int((model.eval()(inputs).argmax(-1) == targets)[inputs > 0].sum()) / count
        return Measurement({"accuracy": right}, {"accuracy": right, "tested": count})


@tasks.add("sort")
class SortTask(Task):
    metric, unit = Metric("accuracy", percent=True), "numbers"

    @classmethod
    def prepare(cls, recipe, *_):
        return cls(recipe=recipe, config=configure("sorter", **recipe.model))

    examples = cached_property(lambda self: drawn(self.recipe.data["count"], self.config, seed=0))
    held_out = cached_property(lambda self: drawn(97, self.config, seed=1))

    def objective(self, model, batch):
        return F.cross_entropy(model(batch.inputs).mT, batch.targets, ignore_index=-1)

    def fingerprint(self):
        return str(self.examples.rows.tolist())


def drawn(count, config, seed):
    random, n = torch.Generator().manual_seed(seed), config.length
    numbers = torch.randint(1, config.numbers + 1, (count, n), generator=random)
    return Sequences(numbers.where(torch.arange(n) < torch.randint(1, n + 1, (count, 1), generator=random), 0))
