"""What is left made to do what all of it did, as far as it can: by least squares, with no training.

On DINOv2's ViT-S/14 half of the neurons gone then cost 1 point instead of 12 (bench/README.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core.block import Block, Sublayer
from vitrail.data import Batch
from vitrail.families import Model
from vitrail.shrink.importance import every_token
from vitrail.weights import Weights

STREAM = 2**28  # bytes, about, that a stream may have, several of which are kept
RIDGE = 1e-3  # of the mean variance, added to every variance, so that what hardly varies stays as it is
Call = Callable[[Model, Batch], Any]
Given = tuple[Tensor, tuple[Any, ...], dict[str, Any]]  # a stream, and what else comes into a block


@dataclass(eq=False)
class Seen:
    """What came into a map: how much, and its first and second moments, from about its middle, so that they can be
    gathered in single precision.
    """

    count: int = 0
    middle: Tensor = field(default_factory=lambda: torch.zeros(()))
    total: Tensor = field(default_factory=lambda: torch.zeros(()))
    square: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, x: Tensor) -> Tensor:
        """Some more (... i); as numbers from the middle (n i)."""
        x = x.detach().flatten(0, -2)
        if not self.count:
            self.middle = x.mean(0)
        x = x - self.middle
        self.count += len(x)
        self.total = self.total + x.double().sum(0)
        self.square = self.square + (x.T @ x).double()
        return x

    @property
    def mean(self) -> Tensor:
        """(i)."""
        return self.middle.double() + self.total / self.count

    @property
    def covariance(self) -> Tensor:
        """(i i)."""
        return self.square / self.count - torch.outer(self.total, self.total) / self.count**2

    @property
    def moment(self) -> Tensor:
        """E[x x^T], (i i)."""
        return self.covariance + torch.outer(self.mean, self.mean)


@dataclass(eq=False)
class Regression:
    """Of some numbers on others, gathered bit by bit."""

    given: Seen = field(default_factory=Seen)
    wanted: Seen = field(default_factory=Seen)
    both: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, x: Tensor, y: Tensor) -> None:
        """Some more: (... i) and (... o)."""
        x, y = self.given.add(x), self.wanted.add(y)
        self.both = self.both + (y.T @ x).double()

    def fitted(self, near: Tensor) -> tuple[Tensor, Tensor]:
        """The slope (o i) and the offset (o) that tell the second from the first with the least squares, where what
        comes in does not say what the slope is near another.
        """
        given, wanted, count = self.given, self.wanted, self.given.count
        together, hold = self.both / count - torch.outer(wanted.total, given.total) / count**2, held(given.covariance)
        slope = torch.linalg.solve(given.covariance + hold, together.T + hold @ near.double().T).T
        return slope, wanted.mean - slope @ given.mean


def held(covariance: Tensor) -> Tensor:
    """What is added to a covariance (i i)."""
    return RIDGE * covariance.diagonal().mean().clamp(min=1e-12) * torch.eye(len(covariance), dtype=covariance.dtype)


@torch.no_grad()
def coming_in(model: Model, paths: Iterable[str], call: Call, batches: Iterable[Batch]) -> dict[str, Seen]:
    """What comes into some linear maps, by their paths, for every token."""
    model.eval()
    seen = {path: Seen() for path in paths}

    def keep(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: Any) -> None:
            seen[path].add(given[0])

        return hook

    with every_token(), hooked(model.get_submodule(path).register_forward_pre_hook(keep(path)) for path in seen):
        for batch in batches:
            call(model, batch)
    return {path: one for path, one in seen.items() if one.count}


@torch.no_grad()
def followed(
    weights: Weights,
    before: Weights,
    call: Call,
    batches: Iterable[Batch],
    *,
    stack: str = "encoder",
    stay: Sequence[int] | None = None,
) -> Weights:
    """Weights whose blocks write to the residual stream what those of others, which they were cut from, wrote there.

    Block by block, from what the blocks before it now give, each last map of attention and of a feed-forward is fitted
    by least squares to the stream that the others had at that place; one before layers that are gone, to the stream
    behind those. ``stay`` are the layers of the others that there still are: all of them, if none are named.
    """
    if getattr(weights.config, "merge", None) or getattr(before.config, "merge", None):
        return weights  # whose tokens are not the same ones
    model, guide = (one.model().float().eval() for one in (weights, before))
    blocks, guides = (list[Block](one.get_submodule(stack).children()) for one in (model, guide))  # type: ignore[arg-type]
    layers = list(range(len(guides)) if stay is None else stay)
    ends = [*layers[1:], len(guides)] if before.config.order == "pre" else [layer + 1 for layer in layers]
    given = _first(guide, guides[0], call, batches)
    mine, theirs, begun, state = given, given, 0, dict(weights.state)
    for number, (block, layer, end) in enumerate(zip(blocks, layers, ends, strict=True)):
        theirs = _through(guides[begun:layer], theirs)
        there, theirs = _sums(guides[layer], theirs)
        if end > layer + 1:
            theirs = _through(guides[layer + 1 : end], theirs)
            there[-1] = [x for x, *_ in theirs]
        begun = end
        wanted = dict(zip((name for name, _ in guides[layer].named_children()), there, strict=True))
        names = [name for name, _ in block.named_children()]
        for name in names:
            if name == names[-1]:  # also where the layer's last one is cut out
                wanted[name] = there[-1]
            path = f"{stack}.{number}.{name}.f.out"
            for part, tensor in _fitted(block, getattr(block, name), mine, wanted[name]).items():
                state[f"{path}.{part}"] = tensor.to(state[f"{path}.{part}"].dtype)
        mine = _through([block], mine)
    return replace(weights, state=state)


def _fitted(block: Block, sublayer: Sublayer, given: list[Given], wanted: list[Tensor]) -> Mapping[str, Tensor]:
    """The last map of a sublayer, fitted to what the sublayer is to write; nothing where it writes that."""
    out = getattr(sublayer.f, "out", None)
    if not isinstance(out, nn.Linear) or out.bias is None:
        return {}
    seen, regression, same = dict[str, Tensor](), Regression(), True
    scale = torch.ones(()) if sublayer.scale is None else sublayer.scale
    alive = scale != 0

    def comes(_: nn.Module, x: Any) -> None:
        seen["stream"] = x[0]

    def read(_: nn.Module, z: Any, y: Tensor) -> None:
        seen["read"], seen["said"] = z[0], y

    with hooked([sublayer.register_forward_pre_hook(comes), out.register_forward_hook(read)]):
        for (x, args, kwargs), target in zip(given, wanted, strict=True):
            block(x, *args, **kwargs)
            same = same and torch.equal(seen["stream"] + seen["said"] * scale, target)
            wants = torch.where(alive, (target - seen["stream"]) / scale, seen["said"])
            there = args[0].present if args and args[0].present is not None else slice(None)  # and no padding
            regression.add(seen["read"][there], wants[there])
    if same:
        return {}
    slope, offset = regression.fitted(out.weight)
    out.weight, out.bias = (nn.Parameter(one.to(out.weight.dtype)) for one in (slope, offset))  # not those of weights
    return {"weight": slope, "bias": offset}


def _first(model: Model, block: Block, call: Call, batches: Iterable[Batch]) -> list[Given]:
    """What comes into a model's first block."""
    given = list[Given]()

    def comes(_: nn.Module, args: Any, kwargs: Any) -> None:
        given.append((args[0], args[1:], kwargs))

    with every_token(), hooked([block.register_forward_pre_hook(comes, with_kwargs=True)]):
        for batch in batches:
            call(model, batch)
            if sum(x.nbytes for x, *_ in given) > STREAM:
                break
    return given


def _through(blocks: Sequence[Block], given: list[Given]) -> list[Given]:
    """What comes out of some blocks, as what comes into the next one."""
    for block in blocks:
        given = [(block(x, *args, **kwargs), args, kwargs) for x, args, kwargs in given]
    return given


def _sums(block: Block, given: list[Given]) -> tuple[list[list[Tensor]], list[Given]]:
    """The stream behind each sublayer of a block, before a norm that comes after, and what comes into the next one."""
    sublayers = list(block.sublayers())
    there: list[list[Tensor]] = [[] for _ in sublayers]

    def before(place: list[Tensor]) -> Callable[..., None]:
        return lambda _, x: place.append(x[0])

    def behind(place: list[Tensor]) -> Callable[..., None]:
        return lambda _, __, x: place.append(x)

    with hooked(
        one.register_forward_hook(behind(place))
        if one.order == "pre"
        else one.norm.register_forward_pre_hook(before(place))
        for one, place in zip(sublayers, there, strict=True)
    ):
        return there, _through([block], given)


@contextmanager
def hooked(handles: Iterable[Any]) -> Iterator[None]:
    """With some hooks in place."""
    there = list(handles)
    try:
        yield
    finally:
        for handle in there:
            handle.remove()
