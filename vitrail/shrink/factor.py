"""Weights as products of two, by the singular values of what really comes through them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core import TokenEmbedding
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.families import Model, empty
from vitrail.shrink.importance import hooked
from vitrail.shrink.refit import coming_in
from vitrail.weights import Weights

SHRINK = 1e-4  # of the mean variance, added to every variance of the inputs, so that all directions count for something


def maps(model: Model) -> dict[str, nn.Linear]:
    """The linear maps of the blocks that are whole, by their paths."""
    blocks = {id(block) for block in model.blocks}
    return {
        f"{path}.{name}": one
        for path, block in model.named_modules()
        if id(block) in blocks
        for name, one in block.named_modules()
        if isinstance(one, nn.Linear) and not name.endswith((".down", ".up"))
    }


@torch.no_grad()
def inputs(model: Model, call: Callable[[Model, Batch], Any], batches: Iterable[Batch]) -> dict[str, Tensor]:
    """E[x x^T] of what comes into each linear map, (i i)."""
    seen = coming_in(model, maps(model), call, batches)
    return {path: one.moment for path, one in seen.items()}


def product(weight: Tensor, rank: int, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """W (o i) as U (o r) and D (r i): of all products of this rank the one whose outputs are nearest on average.

    With C = S S^T the inputs' second moment, that is the SVD of W S cut off, times S^-1 (as in data-aware low-rank
    compression, Chen et al. 2021); with none, the SVD of W itself (Eckart and Young 1936).
    """
    w = weight.double()
    if inputs is None:
        u, s, v = torch.linalg.svd(w, full_matrices=False)
        return _own(u[:, :rank] * s[:rank], weight), _own(v[:rank], weight)
    root = _root(inputs)
    u, s, v = torch.linalg.svd(w @ root, full_matrices=False)
    down = torch.linalg.solve_triangular(root, v[:rank], upper=False, left=False)
    return _own(u[:, :rank] * s[:rank], weight), _own(down, weight)


def _root(moment: Tensor) -> Tensor:
    """S of S S^T = C, the inputs' second moment and a little of every direction."""
    c = moment.double()
    return torch.linalg.cholesky(c + SHRINK * c.diagonal().mean().clamp(min=1e-12) * torch.eye(len(c), dtype=c.dtype))


def _own(x: Tensor, like: Tensor) -> Tensor:
    """In memory of its own, so that what is saved and loaded gives the same to the bit."""
    return x.to(like).clone(memory_format=torch.contiguous_format)


def spectra(weights: Mapping[str, Tensor], seen: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The singular values of each map on what comes in, squared: what is lost when those from a rank on are left out.

    As fractions of the map's own whole, so that maps are compared by what they lose.
    """
    spectrum = {}
    for path, weight in weights.items():
        w = weight.double()
        if seen is not None:
            w = w @ _root(seen[path])
        squares = torch.linalg.svdvals(w) ** 2
        spectrum[path] = squares / squares.sum()
    return spectrum


def ranks(weights: Mapping[str, Tensor], spectrum: Mapping[str, Tensor], fraction: float) -> dict[str, int]:
    """The rank of each map, chosen so that all together have at most this fraction of their numbers, if that can be.

    All maps lose the same fraction of what comes through them, the least that is enough. A map that would not be
    smaller as a product stays whole, and is not named.
    """
    whole = sum(weight.numel() for weight in weights.values())
    lost = {path: one.flip(0).cumsum(0).flip(0) for path, one in spectrum.items()}  # without those from a rank on
    every = torch.cat(list(lost.values())).unique()
    low, high = 0, len(every) - 1
    while low < high:
        middle = (low + high) // 2
        if _size(weights, _losing(weights, lost, float(every[middle]))) <= fraction * whole:
            high = middle
        else:
            low = middle + 1
    return _losing(weights, lost, float(every[low]))


def _losing(weights: Mapping[str, Tensor], lost: Mapping[str, Tensor], most: float) -> dict[str, int]:
    """The smallest ranks at which maps lose no more than a fraction, of those that are then smaller."""
    smallest = {path: max(1, int((one > most).sum())) for path, one in lost.items()}
    return {path: rank for path, rank in smallest.items() if rank * sum(weights[path].shape) < weights[path].numel()}


def _size(weights: Mapping[str, Tensor], chosen: Mapping[str, int]) -> int:
    """Numbers of all maps, some of them as products."""
    return sum(
        chosen[path] * sum(weight.shape) if path in chosen else weight.numel() for path, weight in weights.items()
    )


def factored(weights: Weights, chosen: Mapping[str, int], seen: Mapping[str, Tensor] | None = None) -> Weights:
    """Weights with some maps as products."""
    state = dict(weights.state)
    for path, rank in chosen.items():
        if f"{path}.weight" not in state:
            raise InputError(f"{weights.path!r} has no map {path!r} to factor.")
        weight = state.pop(f"{path}.weight")
        if rank > min(weight.shape):
            raise InputError(f"{path!r} has a rank of {min(weight.shape)} at most, and {rank} is asked for.")
        up, down = product(weight, rank, None if seen is None else seen[path])
        state |= {f"{path}.up.weight": up, f"{path}.down.weight": down}
        if f"{path}.bias" in state:
            state[f"{path}.up.bias"] = state.pop(f"{path}.bias")
    fields = {**weights.config.model_dump(), "factors": {**weights.config.factors, **chosen}}
    return replace(weights, config=type(weights.config)(**fields), state=state)


def tables(model: Model) -> dict[str, nn.Embedding]:
    """The tables of tokens that are whole, by their paths, one of those that are the same."""
    by_weight: dict[int, tuple[str, nn.Embedding]] = {}
    for path, part in model.named_modules():
        table = part.table if isinstance(part, TokenEmbedding) else None
        if isinstance(table, nn.Embedding):
            by_weight.setdefault(id(table.weight), (f"{path}.table", table))
    return dict(by_weight.values())


@torch.no_grad()
def counts(model: Model, call: Callable[[Model, Batch], Any], batches: Iterable[Batch]) -> dict[str, Tensor]:
    """How often each token comes into each table, (v)."""
    often = {path: torch.zeros(table.num_embeddings) for path, table in tables(model).items()}
    paths = {id(table.weight): path for path, table in tables(model).items()}

    def count(module: Any, given: Any, _: Any) -> None:
        often[paths[id(module.weight)]] += given[0].flatten().bincount(minlength=module.num_embeddings)

    tokens = (part.table for part in model.modules() if isinstance(part, TokenEmbedding))
    whole = [table for table in dict.fromkeys(tokens) if isinstance(table, nn.Embedding)]
    model.eval()
    with hooked(table.register_forward_hook(count) for table in whole):
        for batch in batches:
            call(model, batch)
    return often


def factored_tables(weights: Weights, inner: int, seen: Mapping[str, Tensor] | None = None) -> Weights:
    """Weights with their tables of tokens as products of narrow rows and one map (ALBERT, Lan et al. 2020): of all of
    this width the nearest, tokens counting by how often they come.
    """
    state = dict(weights.state)
    for path in tables(empty(weights.config)):
        e = state.pop(f"{path}.weight").double()
        often = torch.ones(len(e)) if seen is None else seen[path] + 1  # one that was not seen may come
        *_, directions = torch.linalg.svd(often.double().sqrt()[:, None] * e, full_matrices=False)
        up = directions[:inner].T
        state |= {f"{path}.rows.weight": _own(e @ up, weights.state[f"{path}.weight"])}
        state |= {f"{path}.up.weight": _own(up, weights.state[f"{path}.weight"])}
    config = type(weights.config)(**{**weights.config.model_dump(), "embedding": inner})
    kept = {name: tensor for name, tensor in state.items() if name in empty(config).state_dict()}
    return replace(weights, config=config, state=kept)
