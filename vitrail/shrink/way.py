"""What a way to make a model smaller is: it takes weights, and an amount, and gives others."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.families import Model, speed
from vitrail.progress import Progress, silent
from vitrail.registry import Registry
from vitrail.shrink.cut import layered
from vitrail.shrink.refit import followed
from vitrail.tasks.task import Task
from vitrail.weights import Weights

LOOK = 20.0  # seconds, about, in which importance is found
FIT = 400.0  # and in which what is left is fitted to what there was
PASSES = 6  # of a model, in which that is done
FEWEST, MOST = 16, 1024  # examples that it is found on
EVEN = 8  # what numbers of neurons and ranks are multiples of, as processors like them


@dataclass(frozen=True, eq=False)
class Workshop:
    """What a way has at hand: examples to learn from, where data is given."""

    task: Task | None = None
    progress: Progress = silent
    looked: Callable[[Weights], Task] | None = None  # the task as other weights look at it
    fit: float = FIT  # seconds; 0: what is left stays as it is

    def seen_by(self, weights: Weights) -> "Workshop":
        """The same for weights that may look at pictures of another size."""
        return self if self.looked is None else replace(self, task=self.looked(weights))

    def batches(self, model: Model, passes: int = 1, seconds: float = LOOK) -> list[Batch]:
        """Some of the examples to learn from, as many as a model looks at in a short while in so many passes."""
        task, count = self.needed(), self.room(model, passes, seconds)
        examples, taken, batches = task.examples, 0, list[Batch]()
        for rows in examples.updates(task.recipe.train.batch, np.random.default_rng(0)):
            some = rows[: max(1, count - taken)] if len(rows) > count - taken else rows
            torch.manual_seed(taken)
            given, targets, counted = examples.batch(some, torch.device("cpu"))
            batches.append(Batch(given, targets, counted))
            taken += len(some)
            if taken >= count:
                break
        return batches

    def room(self, model: Model, passes: int, seconds: float = LOOK) -> int:
        """How many of them that are."""
        return int(max(FEWEST, min(MOST, seconds * speed(model) / passes)))

    def followed(self, weights: Weights, before: Weights, stay: Sequence[int] | None = None) -> Weights:
        """Weights fitted to those that they were cut from, of which some layers stay."""
        if not self.fit:
            return weights
        batches, (stack, _) = self.batches(before.model().float(), PASSES, self.fit), layered(before)
        return followed(weights, before, self.loss, batches, stack=stack, stay=stay, progress=self.progress)

    def loss(self, model: Any, batch: Batch) -> Tensor:
        """What is lost on a batch."""
        return self.needed().objective(model, batch)

    def needed(self) -> Task:
        """The task; without data there is none."""
        if self.task is None:
            raise InputError("what matters in a model is found on data, and there is none; name some: RUN DATA.")
        return self.task


@dataclass(frozen=True, eq=False)
class Made:
    """What a way made: other weights, what was done in a line, and how they are written and trained."""

    weights: Weights
    note: str
    lessons: Mapping[str, float] = field(default_factory=dict)  # of the teacher, beside its answers
    stay: Sequence[int] | None = None  # the layers that are left; None: all
    fresh: bool = False  # whether the weights are nothing yet, and are learned as from scratch
    bits: int | None = None  # of each number on disk
    int8: bool = False  # whether it is run as eight bits


class Way(ABC):
    """A way to make a model smaller by some amount."""

    about: ClassVar[str]
    usual: ClassVar[float | str]  # the amount, where none is named
    trains: ClassVar[bool] = True  # whether what is left learns again
    bare: ClassVar[bool] = False  # whether it needs no data

    def __init__(self, amount: float | str | None = None) -> None:
        self.amount = self.checked(self.usual if amount is None else amount)

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        """The amount, if it is one: the fraction that goes, unless a way says otherwise."""
        number = as_number(amount)
        if number is None or not 0 < number < 1:
            raise InputError(
                f"{amount!r} is no amount for {cls.name()}; give the fraction that goes, such as {cls.usual}."
            )
        return number

    @classmethod
    def name(cls) -> str:
        """Under which it is known."""
        return next(name for name, way in ways.items() if way is cls)

    def __str__(self) -> str:
        return f"{self.name()}={self.amount if isinstance(self.amount, str) else f'{self.amount:g}'}"

    @property
    def fraction(self) -> float:
        """The amount as a number."""
        return float(self.amount)

    def milder(self, weights: Weights) -> "Way | None":  # noqa: ARG002
        """The same by half, for where it cost too much; None where there is no half of it for these weights."""
        return type(self)(round(self.fraction / 2, 4))

    @abstractmethod
    def check(self, weights: Weights) -> None:
        """Refuse weights that it does not fit."""


class Change(Way):
    """A way that changes weights, once; what is left may learn again."""

    cuts: ClassVar[bool] = False  # whether it takes parts out, and fits what is left to what there was

    @abstractmethod
    def make(self, weights: Weights, shop: Workshop) -> Made:
        """Do it."""


class Together(Change):
    """Several ways in one step, after which what is left learns once."""

    about = "several ways in one step"
    usual = ""

    def __init__(self, several: Sequence[Way]) -> None:
        wrong = next((way for way in several if not isinstance(way, Change)), None)
        if wrong is not None:
            raise InputError(f"{wrong.name()} is a step of its own; give it with a --way of its own.")
        self.several = [way for way in several if isinstance(way, Change)]
        self.trains = any(way.trains for way in several)  # type: ignore[misc]
        self.bare = all(way.bare for way in several)  # type: ignore[misc]
        self.amount = ""

    def name(self) -> str:  # type: ignore[override]
        return "+".join(way.name() for way in self.several)

    def __str__(self) -> str:
        return "+".join(map(str, self.several))

    def milder(self, weights: Weights) -> "Together | None":
        milder = [way.milder(weights) for way in self.several]
        there = [way for way in milder if way is not None]
        return Together(there) if there else None

    def check(self, weights: Weights) -> None:
        for way in self.several:
            way.check(weights)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        made = Made(weights, "")
        for cuts, several in groupby(self.several, lambda way: way.cuts):
            group, before, made = list(several), made.weights, replace(made, stay=None)
            again = cuts and len(group) > 1
            for way in group:
                own = shop.seen_by(made.weights)
                made = _then(made, way.make(made.weights, replace(own, fit=min(own.fit, LOOK)) if again else own))
            if again:  # each was fitted a little to what came before it: now all to what came before them
                made = replace(made, weights=shop.seen_by(before).followed(made.weights, before, made.stay))
        return made


def _then(first: Made, second: Made) -> Made:
    """What two ways made, one after the other."""
    stay = first.stay if second.stay is None else second.stay
    if first.stay is not None and second.stay is not None:
        stay = [first.stay[layer] for layer in second.stay]
    return Made(
        weights=second.weights,
        note=f"{first.note}; {second.note}" if first.note else second.note,
        lessons={**first.lessons, **second.lessons},
        stay=stay,
        fresh=first.fresh or second.fresh,
        bits=second.bits or first.bits,
        int8=first.int8 or second.int8,
    )


ways: Registry[type[Way]] = Registry(
    "way", homes=("vitrail.shrink.cutting", "vitrail.shrink.students", "vitrail.shrink.lighter")
)


def as_number(text: float | str) -> float | None:
    """A number that someone typed, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def count_or_share(way: type[Way], amount: float | str, of: str) -> float:
    """An amount that is a number of things, or a fraction of them."""
    number = as_number(amount)
    if number is None or number <= 0 or (number >= 1 and number != int(number)):
        raise InputError(f"{amount!r} is no amount for {way.name()}; give {of}.")
    return number
