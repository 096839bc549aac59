"""Lottery tickets (Frankle and Carbin 2019): which few numbers of a fresh model learn as well as all of them.

A trained model's smallest numbers are made 0, the others get back the values that they had before they learned
anything, and learn again; and so in some rounds, each taking the same fraction of what is left. Beside the ticket a
random one: the same numbers 0, the others of another fresh model. If the first values matter, it comes to less.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import families
from vitrail.runs import Run
from vitrail.weights import Weights

ROUNDS = 3


def ticketed(name: str, tensor: Tensor) -> bool:
    """Whether a tensor is one of those whose numbers go: a matrix of a block."""
    parts = name.split(".")
    return tensor.ndim > 1 and len(parts) > 1 and parts[1].isdigit()


def fractions(sparsity: float, rounds: int = ROUNDS) -> list[float]:
    """The fraction of numbers that are 0 after each round, if each takes the same fraction of what is left."""
    return [1 - (1 - sparsity) ** (number / rounds) for number in range(1, rounds + 1)]


def largest(state: Mapping[str, Tensor], sparsity: float) -> dict[str, Tensor]:
    """Where the numbers of the blocks' matrices are that stay: all but so large a fraction, the smallest of all."""
    some = {name: tensor for name, tensor in state.items() if ticketed(name, tensor)}
    sizes = torch.cat([tensor.abs().flatten() for tensor in some.values()])
    gone = round(sparsity * len(sizes))
    stays = torch.ones(len(sizes), dtype=torch.bool)
    stays[sizes.argsort()[:gone]] = False
    parts = stays.split([tensor.numel() for tensor in some.values()])
    return {name: part.view(some[name].shape) for name, part in zip(some, parts, strict=True)}


def ticket(first: Mapping[str, Tensor], stays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """First values, with zeros where numbers are gone."""
    return {name: tensor * stays[name] if name in stays else tensor for name, tensor in first.items()}


def first_values(run: Run, weights: Weights, seed: int | None = None) -> dict[str, Tensor]:
    """What a model was before it learned anything: as the run kept it (train.keep), or as its seed makes it again.

    Another seed gives another fresh model.
    """
    kept = run.origin.history.get(0)
    if kept is not None and kept.weights().config == weights.config:
        if seed is None:
            return kept.weights().state
    elif run.recipe is None or run.origin.begun.get("weights") is not None or run.origin.begun.get("derived"):
        raise InputError(
            f"{run.name!r} was not trained from scratch in this shape, or does not say how, so that nobody knows what "
            f"it was before; train it with --set train.keep=2, which keeps that, and take tickets first."
        )
    torch.manual_seed(run.recipe.train.seed if seed is None and run.recipe is not None else seed or 0)
    return families[weights.family](weights.config).state_dict()
