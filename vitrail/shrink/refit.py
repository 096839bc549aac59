"""What is left made to do what all of it did, as far as it can: by least squares, with no training.

On DINOv2's ViT-S/14 half of the neurons gone then cost 0.4 points instead of 12 (bench/README.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core.block import Block, FeedForward
from vitrail.data import Batch
from vitrail.families import Model
from vitrail.shrink.importance import every_token
from vitrail.weights import Weights

STRONG = 1e-3  # likewise, of a map that learns something new
RIDGE = 1e-4  # of the mean variance, added to every variance, so that what hardly varies counts for little


@dataclass(eq=False)
class Seen:
    """What came into a map: how much, the sum, and the sum of squares."""

    count: int = 0
    total: Tensor = field(default_factory=lambda: torch.zeros(()))
    square: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, x: Tensor) -> None:
        """Some more (... i)."""
        x = x.detach().flatten(0, -2).double()
        self.count += len(x)
        self.total = self.total + x.sum(0)
        self.square = self.square + x.T @ x

    @property
    def mean(self) -> Tensor:
        """(i)."""
        return self.total / self.count

    @property
    def covariance(self) -> Tensor:
        """(i i)."""
        return self.square / self.count - torch.outer(self.mean, self.mean)


@torch.no_grad()
def coming_in(
    model: Model, paths: Iterable[str], call: Callable[[Model, Batch], Any], batches: Iterable[Batch]
) -> dict[str, Seen]:
    """What comes into some linear maps, by their paths, for every token."""
    model.eval()
    with every_token(), _watched(model, paths) as seen:
        for batch in batches:
            call(model, batch)
    return {path: one for path, one in seen.items() if one.count}


def refitted(
    weights: Weights, before: Mapping[str, Tensor], kept: Mapping[str, Tensor], seen: Mapping[str, Seen]
) -> Weights:
    """Weights whose maps, of which some inputs alone are kept, give what they gave with all of them, as nearly as can
    be on average: W' = W C_:k C_kk^-1 and b' = b + W m - W' m_k, C the inputs' covariance and m their mean.
    """
    state = dict(weights.state)
    for path, columns in kept.items():
        name = f"{path}.weight"
        if path not in seen or name not in state or len(columns) == before[name].shape[1]:
            continue
        weight, covariance, mean = before[name].double(), seen[path].covariance, seen[path].mean
        own = covariance[columns][:, columns]
        held = _held(own)
        fitted = torch.linalg.solve(own + held, (weight @ covariance[:, columns]).T + held @ weight[:, columns].T).T
        state[name] = fitted.to(before[name].dtype)
        bias = f"{path}.bias"
        if bias in state:
            state[bias] = (before[bias].double() + weight @ mean - fitted @ mean[columns]).to(before[bias].dtype)
    return replace(weights, state=state)


@torch.no_grad()
def absorbed(
    weights: Weights, gone: Sequence[int], stack: str, call: Callable[[Model, Batch], Any], batches: Iterable[Batch]
) -> Weights:
    """Weights in which the feed-forward before layers that are to go adds what they would have added, as nearly as can
    be told from its neurons; of layers whose norms come before them.
    """
    if weights.config.order != "pre":
        return weights
    model = weights.model().float().eval()
    blocks = [block for name, block in model.named_modules() if isinstance(block, Block) and _in(name, stack)]
    depth = len(blocks)
    stay = [layer for layer in range(depth) if layer not in set(gone)]
    following = dict(zip(stay, [*stay[1:], depth], strict=True))
    takers = {
        layer: Regression() for layer in stay if following[layer] > layer + 1 and _map_of(blocks[layer]) is not None
    }
    with every_token(), _followed(blocks) as (streams, neurons):
        for batch in batches:
            call(model, batch)
            for layer, one in takers.items():
                one.add(neurons[layer], streams[following[layer] - 1] - streams[layer])
    state = dict(weights.state)
    for layer, one in takers.items():
        path = f"{stack}.{layer}.feed_forward"
        slope, offset = one.fitted()
        if f"{path}.scale" in state:
            scale = state[f"{path}.scale"].double()
            slope, offset = slope / scale[:, None], offset / scale
        for name, more in ((f"{path}.f.out.weight", slope), (f"{path}.f.out.bias", offset)):
            state[name] = (state[name].double() + more).to(state[name].dtype)
    return replace(weights, state=state)


@dataclass(eq=False)
class Regression:
    """Of some numbers on others, gathered bit by bit."""

    seen: Seen = field(default_factory=Seen)
    target: Tensor = field(default_factory=lambda: torch.zeros(()))
    both: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, x: Tensor, y: Tensor) -> None:
        """Some more: (... i) and (... o)."""
        self.seen.add(x)
        x, y = (one.detach().flatten(0, -2).double() for one in (x, y))
        self.target, self.both = self.target + y.sum(0), self.both + y.T @ x

    def fitted(self) -> tuple[Tensor, Tensor]:
        """The slope (o i) and the offset (o) that tell the second from the first with the least squares."""
        mean, covariance, count = self.seen.mean, self.seen.covariance, self.seen.count
        middle = self.target / count
        together = self.both / count - torch.outer(middle, mean)
        slope = torch.linalg.solve(covariance + STRONG / RIDGE * _held(covariance), together.T).T
        return slope, middle - slope @ mean


def _in(name: str, stack: str) -> bool:
    """Whether a module is one of a stack."""
    return name.rpartition(".")[0] == stack


def _held(covariance: Tensor) -> Tensor:
    return RIDGE * covariance.diagonal().mean().clamp(min=1e-12) * torch.eye(len(covariance), dtype=covariance.dtype)


def _map_of(block: Block) -> nn.Linear | None:
    """The map that a layer's neurons go through, if it is whole, and has a bias."""
    feed = None if block.feed_forward is None else block.feed_forward.f
    out = feed.out if isinstance(feed, FeedForward) else None
    return out if isinstance(out, nn.Linear) and out.bias is not None else None


@contextmanager
def _followed(blocks: Sequence[Block]) -> Iterator[tuple[dict[int, Tensor], dict[int, Tensor]]]:
    """The stream after each block, and its neurons, of the last call."""
    streams, neurons, handles = dict[int, Tensor](), dict[int, Tensor](), []

    def follow(layer: int, block: Block) -> None:
        def after(_: nn.Module, __: Any, x: Tensor) -> None:
            streams[layer] = x

        def within(_: nn.Module, given: Any) -> None:
            neurons[layer] = given[0]

        handles.append(block.register_forward_hook(after))
        out = _map_of(block)
        if out is not None:
            handles.append(out.register_forward_pre_hook(within))

    for layer, block in enumerate(blocks):
        follow(layer, block)
    try:
        yield streams, neurons
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _watched(model: Model, paths: Iterable[str]) -> Iterator[dict[str, Seen]]:
    seen = {path: Seen() for path in paths}
    handles = []

    def watch(path: str) -> None:
        def keep(_: nn.Module, given: Any) -> None:
            seen[path].add(given[0])

        handles.append(model.get_submodule(path).register_forward_pre_hook(keep))

    for path in seen:
        watch(path)
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
