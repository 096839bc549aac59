"""What the tokens of a ViT are: which of them answer, and where in the picture they look from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from einops import einsum, rearrange
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.lens.record import Trace, inner, sites

P = ParamSpec("P")
R = TypeVar("R")
GROUPING = "embed.group"
MEMORY = 500_000_000  # bytes that a recorded passage through all layers may take


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of pictures: those before the patches by name, then the patches, or visual tokens, row by row."""

    prefix: tuple[str, ...]
    grid: tuple[int, int]  # patches down and across
    patch: int  # pixels
    answer: Tensor  # (n), how much each token is in what the head is given; sums to 1
    groups: Tensor | None = None  # (b t p): the share of each patch in each visual token

    @classmethod
    def of(cls, model: Model, trace: Trace, images: Tensor) -> "Tokens":
        """Those of pictures that were recorded."""
        config: Any = model.config
        grid = (images.shape[-2] // config.patch, images.shape[-1] // config.patch)
        prefix = ("class", "distillation")[: config.prefix]
        registers = tuple(f"register {number + 1}" for number in range(config.registers))
        groups = trace.pattern(GROUPING)[:, 0].detach() if config.tokens else None
        count = len(prefix) + len(registers) + (config.tokens or grid[0] * grid[1])
        answer = torch.zeros(count)
        answer[slice(0, len(prefix)) if prefix else slice(len(registers), None)] = 1
        return cls((*prefix, *registers), grid, config.patch, answer / answer.sum(), groups)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.answer)

    def names(self) -> tuple[str, ...]:
        """What each is called; places are counted from 1, down and across."""
        places = range(self.count - len(self.prefix))
        if self.groups is not None:
            return (*self.prefix, *(f"visual {place + 1}" for place in places))
        across = self.grid[1]
        return (*self.prefix, *(f"patch {place // across + 1}, {place % across + 1}" for place in places))

    def on_patches(self, values: Tensor) -> Tensor:
        """Of every token, (b ... n) -> of every patch, (b ... y x); the tokens before the patches are left out."""
        rest = values[..., len(self.prefix) :]
        if self.groups is not None:
            rest = einsum(rest, self.groups.to(rest), "b ... t, b t p -> b ... p")
        return rearrange(rest, "... (y x) -> ... y x", y=self.grid[0])

    def centres(self) -> Tensor:
        """Where the middle of each patch is, (p 2) in pixels down and across."""
        return places(self.grid, self.patch)


def places(grid: tuple[int, int], patch: int) -> Tensor:
    """The middle of each patch of a grid, (p 2) in pixels down and across."""
    y, x = (torch.arange(side) for side in grid)
    return patch * (torch.cartesian_prod(y, x) + 0.5)


def looking(function: Callable[Concatenate[Model, P], R]) -> Callable[Concatenate[Model, P], R]:
    """For what looks into a model: it should be one that can be looked into, and answers as it does when it is used.

    In training mode it would drop something out, and learn from what it is shown; meanwhile it is in evaluation mode.
    """

    @wraps(function)
    def looked(model: Model, /, *args: P.args, **kwargs: P.kwargs) -> R:
        _check(model)
        learning = [module for module in model.modules() if module.training]
        model.eval()
        try:
            return function(model, *args, **kwargs)
        finally:
            for module in learning:
                module.training = True

    return looked


def _check(model: Model) -> None:
    """A ViT of this library, which has attention; other modules can be recorded, but their tokens are not known."""
    kind = type(inner(model)).__name__
    if not sites(model):
        raise InputError(f"{kind} has no attention to look at.")
    if not isinstance(inner(model), Model):
        raise InputError(f"{kind} is not of vt.build or vt.load, so its tokens have no known place; record it instead.")


def some(model: Model, *tensors: Tensor, slopes: bool = False) -> Iterator[tuple[Tensor, ...]]:
    """Pictures (b c H W), and what goes with each, as many at a time as can be recorded in little memory.

    Measured on ViT-B/16: about 8 numbers for each number of the stream in each layer, and 18 with slopes.
    """
    config: Any = model.config
    down, across = (side // config.patch for side in tensors[0].shape[-2:])
    each = 4 * (18 if slopes else 8) * down * across * config.width * config.depth
    return zip(*(tensor.split(max(1, MEMORY // each)) for tensor in tensors), strict=True)


def attention_sites(names: Iterable[str]) -> list[str]:
    """Of all sites the attentions between the tokens, first layer first."""
    return [name for name in names if name != GROUPING]


def check_head(model: Model) -> None:
    """A model that has logits."""
    config: Any = model.config
    if not config.classes:
        raise InputError(
            "the model has no head, and so no logits to look at; train one with `vitrail train --weights`."
        )
