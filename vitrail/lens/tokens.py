"""What the tokens of a ViT are: which of them answer, and where in the picture they look from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from einops import einsum, rearrange
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import Model, ViT, family_of
from vitrail.lens.recording import Trace, inner, sites

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Model)
GROUPING = "embed.group"
MEMORY = 500_000_000  # bytes that a recorded passage through all layers may take


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of pictures: those before the patches by name, then the patches, or visual tokens, row by row."""

    prefix: tuple[str, ...]
    grid: tuple[int, int]  # patches down and across
    patch: int  # pixels
    answer: Tensor  # (n), how much each token is in what the head is given; sums to 1
    groups: Tensor | None = None  # (b t p): the fraction of each visual token that is of each patch

    @classmethod
    def of(cls, model: ViT, trace: Trace, images: Tensor) -> "Tokens":
        """Those of pictures that were recorded."""
        config = model.config
        grid = (images.shape[-2] // config.patch, images.shape[-1] // config.patch)
        prefix = ("class", "distillation")[: config.prefix]
        registers = tuple(f"register {number + 1}" for number in range(config.registers))
        groups = trace.pattern(GROUPING)[:, 0].detach() if config.tokens else None
        count = len(prefix) + len(registers) + (config.tokens or grid[0] * grid[1])
        parts = [slice(0, len(prefix))] if prefix else []  # each of which is as much of what the head is given
        parts += [slice(len(prefix) + len(registers), None)] if config.pool in ("mean", "both") else []
        answer = torch.zeros(count)
        for part in parts:
            answer[part] += 1 / (len(parts) * len(answer[part]))
        return cls((*prefix, *registers), grid, config.patch, answer, groups)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.answer)

    def names(self) -> tuple[str, ...]:
        """What each is called; patches are counted from 1, down and across."""
        numbers = range(self.count - len(self.prefix))
        if self.groups is not None:
            return (*self.prefix, *(f"visual {number + 1}" for number in numbers))
        across = self.grid[1]
        return (*self.prefix, *(f"patch {number // across + 1}, {number % across + 1}" for number in numbers))

    def on_patches(self, values: Tensor) -> Tensor:
        """Of every token, (b ... n) -> of every patch, (b ... y x); the tokens before the patches are left out."""
        rest = values[..., len(self.prefix) :]
        if self.groups is not None:
            rest = einsum(rest, self.groups.to(rest), "b ... t, b t p -> b ... p")
        return rearrange(rest, "... (y x) -> ... y x", y=self.grid[0])

    def centres(self) -> Tensor:
        """Where the middle of each patch is, (p 2) in pixels down and across."""
        return patch_centres(self.grid, self.patch)


def patch_centres(grid: tuple[int, int], patch: int) -> Tensor:
    """The middle of each patch of a grid, (p 2) in pixels down and across."""
    y, x = (torch.arange(side) for side in grid)
    return patch * (torch.cartesian_prod(y, x) + 0.5)


def looking(kind: type[M]) -> Callable[[Callable[Concatenate[M, P], R]], Callable[Concatenate[M, P], R]]:
    """For what looks into models of a kind: it should be one, and answers as it does when it is used.

    In training mode it would drop something out, and learn from what it is shown; meanwhile it is in evaluation mode.
    """

    def decorated(function: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
        @wraps(function)
        def looked(model: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
            _check(model, kind)
            learning = [module for module in model.modules() if module.training]
            model.eval()
            try:
                return function(model, *args, **kwargs)
            finally:
                for module in learning:
                    module.training = True

        return looked

    return decorated


def _check(model: Model, kind: type[Model]) -> None:
    """A model of this library, which has attention; others can be recorded, but their tokens are not known."""
    name = type(inner(model)).__name__
    if not sites(model):
        raise InputError(f"{name} has no attention to look at.")
    if not isinstance(inner(model), Model):
        raise InputError(f"{name} is not of vt.build or vt.load, so its tokens have no known place; record it instead.")
    if not isinstance(inner(model), kind):
        raise InputError(f"{name} is a {family_of(model.config)}, whose tokens are no patches; record it instead.")


def some(model: ViT, *tensors: Tensor, gradients: bool = False) -> Iterator[tuple[Tensor, ...]]:
    """Pictures (b c H W), and what goes with each, as many at a time as can be recorded in little memory.

    Measured on ViT-B/16: about 8 numbers for each number of the stream in each layer, and 18 with gradients.
    """
    config = model.config
    down, across = (side // config.patch for side in tensors[0].shape[-2:])
    each = 4 * (18 if gradients else 8) * down * across * config.width * config.depth
    return zip(*(tensor.split(max(1, MEMORY // each)) for tensor in tensors), strict=True)


def check_head(model: ViT) -> None:
    """A model that has logits."""
    if not model.config.classes:
        raise InputError(
            "the model has no head, and so no logits to look at; train one with `vitrail train --weights`."
        )
