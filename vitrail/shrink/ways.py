"""The ways to make a model smaller, by their names: each takes weights, and an amount, and gives others."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vitrail.config import checked as checked_fields
from vitrail.config import override
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.families import Model, empty, families, speed
from vitrail.progress import Progress, silent
from vitrail.registry import Registry
from vitrail.shrink.cut import Kept, checked, cut, layered, without_layers
from vitrail.shrink.factor import counts, factored, factored_tables, inputs, maps, ranks, spectra, tables
from vitrail.shrink.importance import by_gradient, heads_left_out, layers_left_out
from vitrail.shrink.tickets import ticketed
from vitrail.tasks.task import Task
from vitrail.weights import Weights

LOOK = 20.0  # seconds, about, in which importance is found
FEWEST, MOST = 16, 1024  # examples that it is found on
EVEN = 8  # what numbers of neurons and ranks are multiples of, as processors like them


@dataclass(frozen=True, eq=False)
class Workshop:
    """What a way has at hand: examples to learn from, where data is given."""

    task: Task | None = None
    progress: Progress = silent

    def batches(self, model: Model, passes: int = 1) -> list[Batch]:
        """Some of the examples to learn from, as many as a model looks at in a short while in so many passes."""
        task, count = self.needed(), self.room(model, passes)
        examples, taken, found = task.examples, 0, list[Batch]()
        for rows in examples.updates(task.recipe.train.batch, np.random.default_rng(0)):
            some = rows[: max(1, count - taken)] if len(rows) > count - taken else rows
            torch.manual_seed(taken)
            given, targets, counted = examples.batch(some, torch.device("cpu"))
            found.append(Batch(given, targets, counted))
            taken += len(some)
            if taken >= count:
                break
        return found

    def room(self, model: Model, passes: int) -> int:
        """How many of them that are."""
        return int(max(FEWEST, min(MOST, LOOK * speed(model) / passes)))

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
    fresh: bool = False  # whether the weights are nothing yet, and are learned as from scratch
    bits: int | None = None  # of each number on disk
    int8: bool = False  # whether it is run as eight bits


class Way(ABC):
    """A way to make a model smaller by some amount."""

    about: ClassVar[str]
    usual: ClassVar[float | str]  # the amount, where none is named
    trains: ClassVar[bool] = True  # whether what is left learns again
    bare: ClassVar[bool] = False  # whether it needs no data
    alone: ClassVar[bool] = False  # whether it trains in its own way

    def __init__(self, amount: float | str | None = None) -> None:
        self.amount = self.checked(self.usual if amount is None else amount)

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        """The amount, if it is one: the share that goes, unless a way says otherwise."""
        number = as_number(amount)
        if number is None or not 0 < number < 1:
            raise InputError(
                f"{amount!r} is no amount for {cls.name()}; give the share that goes, such as {cls.usual}."
            )
        return number

    @classmethod
    def name(cls) -> str:
        """Under which it is known."""
        return next(name for name, way in ways.items() if way is cls)

    def __str__(self) -> str:
        return (
            f"{self.name()}={self.amount:g}" if isinstance(self.amount, int | float) else f"{self.name()}={self.amount}"
        )

    @property
    def share(self) -> float:
        """The amount as a number."""
        return float(self.amount)

    def milder(self, weights: Weights) -> "Way | None":  # noqa: ARG002
        """The same by half, for where it cost too much; None where there is no half of it for these weights."""
        return type(self)(round(self.share / 2, 4))

    @abstractmethod
    def check(self, weights: Weights) -> None:
        """Refuse weights that it does not fit."""

    @abstractmethod
    def make(self, weights: Weights, shop: Workshop) -> Made:
        """Do it."""


ways: Registry[type[Way]] = Registry("way")


def as_number(text: float | str) -> float | None:
    """A number that someone typed, if it is one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


@ways.add("patches")
class Patches(Way):
    """Larger patches of the same pictures: with sides twice as long there are a quarter of the tokens."""

    about = "larger patches, so that there are fewer tokens"
    usual = 2

    @classmethod
    def checked(cls, amount: float | str) -> float:
        number = as_number(amount)
        if number is None or number != int(number) or number < 2:  # noqa: PLR2004
            raise InputError(f"{amount!r} is no amount for patches; give how many times as long their sides get: 2.")
        return int(number)

    def milder(self, weights: Weights) -> None:  # noqa: ARG002
        return None

    def check(self, weights: Weights) -> None:
        config = weights.config
        if weights.family != "vit" or config.stem != "patch":
            raise InputError(f"{weights.path!r} is no ViT of plain patches, so that they cannot be larger.")
        patch = int(self.amount) * config.patch
        if any(side % patch for side in config.size) or min(config.size) // patch < 2:  # noqa: PLR2004
            sides = " x ".join(map(str, config.size))
            raise InputError(f"patches of {patch} pixels do not fit pictures of {sides}.")

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        config, patch = weights.config, int(self.amount) * weights.config.patch
        other = weights.adapted(patch=patch)
        return Made(other, f"patches of {config.patch} -> {patch} pixels, {config.patches} -> {other.config.patches}")


@ways.add("layers")
class Layers(Way):
    """Layers left out: those without which the loss grows least."""

    about = "whole layers left out, those without which the loss grows least"
    usual = 0.25

    @classmethod
    def checked(cls, amount: float | str) -> float:
        number = as_number(amount)
        if number is None or number <= 0 or (number >= 1 and number != int(number)):
            raise InputError(f"{amount!r} is no amount for layers; give how many go, or which share, such as 0.25.")
        return number

    def count(self, depth: int) -> int:
        """How many go."""
        many = int(self.share) if self.share >= 1 else max(1, round(self.share * depth))
        if many >= depth:
            raise InputError(f"{many} layers cannot go, since there are {depth}; one stays.")
        return many

    def milder(self, weights: Weights) -> "Layers | None":
        _, depth = layered(weights)
        half = self.count(depth) // 2
        return Layers(half) if half else None

    def check(self, weights: Weights) -> None:
        self.count(layered(weights)[1])

    def make(self, weights: Weights, shop: Workshop) -> Made:
        stack, depth = layered(weights)
        many = self.count(depth)
        model = weights.model().float()
        grown = layers_left_out(model, shop.loss, shop.batches(model, passes=len(model.blocks)), shop.progress)
        gone = sorted(grown[-depth:].argsort()[:many].tolist())  # the decoder's come last
        named = ", ".join(str(one + 1) for one in gone)
        return Made(without_layers(weights, gone), f"{depth} -> {depth - many} layers of the {stack}, without {named}")


@ways.add("distil")
class Distil(Way):
    """A student with fewer layers of the model, evenly taken; or a fresh one of another shape."""

    about = "a smaller student, which the model teaches"
    usual = 0.5

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        number = as_number(amount)
        if number is None and "=" in str(amount):
            return str(amount)
        if number is None or not 0 < number < 1:
            raise InputError(
                f"{amount!r} is no amount for distil; give the share of the layers that go, such as 0.5, or the fields "
                f"of a fresh student, such as width=96,depth=4."
            )
        return number

    def milder(self, weights: Weights) -> "Distil | None":
        if isinstance(self.amount, str):
            return None
        half, (_, depth) = Distil(self.share / 2), layered(weights)
        fewer = round((1 - half.share) * depth)
        return half if len(self._evenly(weights)) < fewer < depth else None

    def check(self, weights: Weights) -> None:
        if isinstance(self.amount, str):
            self._student(weights)
        else:
            self._evenly(weights)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        shop.needed()
        if isinstance(self.amount, str):
            config = self._student(weights)
            torch.manual_seed(0)
            state = families[weights.family](config).state_dict()
            return Made(replace(weights, config=config, state=state), f"a fresh student, {self.amount}", fresh=True)
        (stack, depth), stay = layered(weights), self._evenly(weights)
        gone = [layer for layer in range(depth) if layer not in stay]
        inside = {"hidden": 1.0, "relations": 1.0} if weights.family == "vit" else {}
        return Made(without_layers(weights, gone), f"{depth} -> {len(stay)} layers of the {stack}", lessons=inside)

    def _evenly(self, weights: Weights) -> list[int]:
        """The layers that stay."""
        _, depth = layered(weights)
        count = max(1, round((1 - self.share) * depth))
        if count == depth:
            raise InputError(f"{self} leaves all {depth} layers of {weights.path!r}; give a larger share.")
        return [round((number + 1) * depth / count) - 1 for number in range(count)]

    def _student(self, weights: Weights) -> Any:
        """The shape of a fresh student: the model's own, but for some fields."""
        given = override({}, str(self.amount).split(","))
        own = {**weights.config.model_dump(), "factors": {}}
        if "width" in given:  # and with it what is in proportion to it
            wide, narrow = own["width"], given["width"]
            for name in ("heads", "hidden"):
                if isinstance(own.get(name), int) and isinstance(narrow, int):
                    own[name] = max(1, own[name] * narrow // wide)
            own["head"] = None
        return type(weights.config)(**{**own, **checked_fields(type(weights.config), given, "distil")})


@ways.add("tickets")
class Tickets(Way):
    """Iterative magnitude pruning with rewinding: see ``shrink.tickets``."""

    about = "a lottery ticket: small numbers made 0, the others learned anew from their first values"
    usual = 0.8
    alone = True

    def check(self, weights: Weights) -> None:
        if not any(ticketed(name, tensor) for name, tensor in weights.state.items()):
            raise InputError(f"{weights.path!r} has no blocks, whose numbers a ticket is of.")

    def make(self, weights: Weights, shop: Workshop) -> Made:
        raise NotImplementedError  # a ticket is trained several times: Maker does that


@ways.add("heads")
class Heads(Way):
    """Heads cut out, another number in each layer: those that matter least."""

    about = "heads cut out, those that matter least, another number in each layer"
    usual = 0.25

    def check(self, weights: Weights) -> None:
        checked(weights)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        config = checked(weights)
        model = weights.model().float()
        count = sum(heads for heads, _ in config.layers)
        if shop.room(model, count) > FEWEST:  # few enough heads to leave each out by itself
            batches = shop.batches(model, passes=count)
            matter, how = heads_left_out(model, shop.loss, batches, shop.progress), "left out one by one"
        else:
            found, _ = by_gradient(model, shop.loss, shop.batches(model, passes=3))
            matter, how = [one / one.norm().clamp(min=1e-30) for one in found], "by the gradient"  # as Michel et al. do
        stay = _stay(matter, round(self.share * count), even=1)
        other = cut(weights, Kept(heads=stay))
        left = [len(one) for one in stay]
        return Made(other, f"{count} -> {sum(left)} heads ({' '.join(map(str, left))}), {how}")


@ways.add("neurons")
class Neurons(Way):
    """Neurons of the feed-forward cut out, another number in each layer: those that matter least."""

    about = "neurons of the feed-forward cut out, those that matter least"
    usual = 0.5

    def check(self, weights: Weights) -> None:
        checked(weights, heads=False)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        config = checked(weights, heads=False)
        model = weights.model().float()
        _, matter = by_gradient(model, shop.loss, shop.batches(model, passes=3))
        count = sum(hidden for _, hidden in config.layers)
        stay = _stay(matter, round(self.share * count), even=EVEN)
        other = cut(weights, Kept(neurons=stay))
        left = [len(one) for one in stay]
        return Made(other, f"{count:,} -> {sum(left):,} neurons ({' '.join(map(str, left))})")


@ways.add("factor")
class Factor(Way):
    """Linear maps as products of two, the rank of each chosen by what comes through it."""

    about = "linear maps as products of two, ranks chosen by what comes through"
    usual = 0.4
    bare = True

    def check(self, weights: Weights) -> None:
        if not maps(empty(weights.config)):
            raise InputError(f"{weights.path!r} has no linear maps that are whole, so that none is factored.")

    def make(self, weights: Weights, shop: Workshop) -> Made:
        self.check(weights)
        model = weights.model().float()
        whole = {path: one.weight.detach() for path, one in maps(model).items()}
        seen = None
        if shop.task is not None:
            seen = inputs(model, shop.loss, shop.batches(model, passes=2))
            whole = {path: weight for path, weight in whole.items() if path in seen}
        chosen = ranks(whole, spectra(whole, seen), 1 - self.share)
        chosen = {path: max(EVEN, rank // EVEN * EVEN) for path, rank in chosen.items()}
        chosen = {path: rank for path, rank in chosen.items() if rank * sum(whole[path].shape) < whole[path].numel()}
        if not chosen:
            raise InputError(f"no map of {weights.path!r} would be smaller as a product; leave factor out.")
        low, high = min(chosen.values()), max(chosen.values())
        how = "" if seen is None else ", by what comes in"
        note = f"{len(chosen)} of {len(maps(model))} maps as products of ranks {low} to {high}{how}"
        made = factored(weights, chosen, seen)
        size = max((table.weight.shape for table in tables(model).values()), default=None)
        if size is None:
            return Made(made, note)
        inner = int((1 - self.share) * size.numel() / sum(size)) // EVEN * EVEN
        if inner < EVEN:
            return Made(made, note)
        often = None if shop.task is None else counts(model, shop.loss, shop.batches(model, passes=2))
        return Made(factored_tables(made, inner, often), f"{note}; tables of tokens through {inner} numbers")


@ways.add("merge")
class Merge(Way):
    """Similar tokens merged on the way (ToMe), a number in each layer."""

    about = "similar tokens merged on the way (ToMe), so many in each layer"
    usual = 0.5
    trains = False
    bare = True

    @classmethod
    def checked(cls, amount: float | str) -> float:
        number = as_number(amount)
        if number is None or number <= 0 or (number >= 1 and number != int(number)):
            raise InputError(
                f"{amount!r} is no amount for merge; give how many tokens go in each layer, or which share in all."
            )
        return number

    def milder(self, weights: Weights) -> "Merge | None":  # noqa: ARG002
        half = self.share / 2 if self.share < 1 else self.share // 2
        return Merge(half) if half else None

    def check(self, weights: Weights) -> None:
        if weights.family != "vit":
            raise InputError(f"{weights.path!r} is a {weights.family}; tokens are merged in a ViT, of patches.")
        self._merging(weights.config)

    def _merging(self, config: Any) -> Any:
        many = int(self.share) if self.share >= 1 else max(1, round(self.share * config.patches / config.depth))
        return type(config)(**{**config.model_dump(), "merge": many})

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        config, other = weights.config, self._merging(weights.config)
        many = other.merge
        gone = min(config.patches - 1, many * config.depth)
        return Made(replace(weights, config=other), f"{many} tokens merged in each layer, {gone} of {config.patches}")


@ways.add("quantize")
class Quantize(Way):
    """Few bits for each number: int8 runs as such, by ONNX Runtime; 1 to 8 are of the file alone."""

    about = "few bits: int8 runs as such, by ONNX Runtime; 1 to 8 are of the file alone"
    usual = "int8"
    trains = False
    bare = True

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        number = as_number(amount)
        if amount == "int8" or (number is not None and number == int(number) and 1 <= number <= 8):  # noqa: PLR2004
            return "int8" if number is None else int(number)
        raise InputError(f"{amount!r} is no amount for quantize; give int8, or how many bits: 4, or 8.")

    def milder(self, weights: Weights) -> "Quantize | None":  # noqa: ARG002
        return Quantize(min(8, int(self.amount) + 2)) if self.amount not in ("int8", 8) else None

    def check(self, weights: Weights) -> None:
        if self.amount == "int8" and weights.family != "vit":
            raise InputError(
                f"{weights.path!r} is a {weights.family}; int8 is of models that label pictures: choose quantize=8."
            )

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        if self.amount != "int8":
            return Made(weights, f"{self.amount} bits for each number of a matrix", bits=int(self.amount))
        return Made(weights, "weights and activations of eight bits", bits=8, int8=True)


def _stay(matter: list[Tensor], gone: int, even: int) -> list[list[int]]:
    """What stays of each layer, so many going over all layers: those that matter least, some of each layer staying.

    Numbers of what stays are rounded to multiples of ``even``, where there are as many.
    """
    every = torch.cat(matter)
    order = every.argsort()
    layer = torch.cat([torch.full((len(one),), number) for number, one in enumerate(matter)])
    place = torch.cat([torch.arange(len(one)) for one in matter])
    left = [len(one) for one in matter]
    least = [min(even, len(one)) for one in matter]
    out: list[set[int]] = [set() for _ in matter]
    for one in order.tolist():
        if gone <= 0:
            break
        number = int(layer[one])
        if left[number] > least[number]:
            out[number].add(int(place[one]))
            left[number] -= 1
            gone -= 1
    stay = []
    for number, one in enumerate(matter):
        count = max(least[number], round(left[number] / even) * even) if even > 1 else left[number]
        stay.append(sorted(one.argsort(descending=True)[: min(len(one), count)].tolist()))
    return stay
