"""What is left made to do what all of it did, as far as it can: by least squares, with no training.

What that is worth on DINOv2's ViT-S/14 is in bench/README.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail.core.block import Block, Sublayer
from vitrail.core.masks import Mask
from vitrail.data import Batch
from vitrail.families import Model
from vitrail.progress import Progress, silent
from vitrail.shrink.importance import every_token, hooked
from vitrail.weights import Weights

STREAM = 2**28  # bytes, about, that a stream may have, several of which are kept
RIDGE = 1e-3  # of the mean variance, added to every variance, so that what hardly varies stays as it is
Call = Callable[[Model, Batch], Any]
Given = tuple[Tensor, tuple[Any, ...], dict[str, Any]]  # a stream, and what else comes into a block


@dataclass(eq=False)
class Seen:
    """What came into a map: how much, and its first and second moments, from about its middle, so that they can be
    gathered in single precision; or in double, where that is not enough.
    """

    exact: bool = False
    count: int = 0
    middle: Tensor = field(default_factory=lambda: torch.zeros(()))
    total: Tensor = field(default_factory=lambda: torch.zeros(()))
    square: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, x: Tensor) -> Tensor:
        """Some more (... i); as numbers from the middle (n i)."""
        x = x.detach().flatten(0, -2)
        x = x.double() if self.exact else x
        if not self.count and len(x):
            self.middle = x.mean(0)
        x = x - self.middle
        self.count += len(x)
        self.total = self.total + x.double().sum(0)
        self.square = self.square + x.T @ x
        return x

    @property
    def mean(self) -> Tensor:
        """(i)."""
        return self.middle.double() + self.total / self.count

    @property
    def covariance(self) -> Tensor:
        """(i i)."""
        return self.square.double() / self.count - torch.outer(self.total, self.total) / self.count**2

    @property
    def moment(self) -> Tensor:
        """E[x x^T], (i i)."""
        return self.covariance + torch.outer(self.mean, self.mean)


@dataclass(eq=False)
class Regression:
    """Of some numbers on others, gathered bit by bit."""

    given: Seen = field(default_factory=Seen)
    total: Tensor = field(default_factory=lambda: torch.zeros(()))
    both: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, x: Tensor, y: Tensor) -> None:
        """Some more: (... i) and (... o)."""
        x, y = self.given.add(x), y.detach().flatten(0, -2)
        self.total = self.total + y.double().sum(0)
        self.both = self.both + (y.T @ x).double()  # in which x is about 0 on average, whatever y is

    def fitted(self, near: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (o i) and intercept (o) of y on x by least squares, near others where x does not say what they
        are.
        """
        given, count, mean = self.given, self.given.count, self.total / self.given.count
        covariance, near = given.covariance, near.double()
        together = self.both / count - torch.outer(mean, given.total / count)
        apart = torch.linalg.solve(held(covariance), (together - near @ covariance).T).T
        coefficients = near + apart
        return coefficients, mean - coefficients @ given.mean


def held(covariance: Tensor) -> Tensor:
    """A covariance (i i) with a little of every variance added."""
    return covariance + RIDGE * covariance.diagonal().mean().clamp(min=1e-12) * torch.eye(len(covariance)).double()


def coming_in(model: Model, paths: Iterable[str], call: Call, batches: Iterable[Batch]) -> dict[str, Seen]:
    """What comes into some linear maps, by their paths, for every token."""
    seen = {path: Seen(exact=True) for path in paths}
    each_input(model, seen, lambda path, x: seen[path].add(x), call, batches)
    return {path: one for path, one in seen.items() if one.count}


@torch.no_grad()
def each_input(
    model: Model, paths: Iterable[str], keep: Callable[[str, Tensor], Any], call: Call, batches: Iterable[Batch]
) -> None:
    """Have ``keep`` see all that comes into some maps, with their paths, of every token."""
    model.eval()

    def hook(path: str) -> Callable[..., None]:
        def see(_: nn.Module, given: Any) -> None:
            keep(path, given[0])

        return see

    with every_token(), hooked(model.get_submodule(path).register_forward_pre_hook(hook(path)) for path in paths):
        for batch in batches:
            call(model, batch)


def followed(
    weights: Weights,
    before: Weights,
    call: Call,
    batches: Iterable[Batch],
    *,
    stack: str = "encoder",
    stay: Sequence[int] | None = None,
    progress: Progress = silent,
) -> Weights:
    """Weights whose blocks write to the residual stream what those of others, which they were cut from, wrote there.

    Block by block, from what the blocks before it now give, each last map of attention and of a feed-forward is fitted
    by least squares to the stream that the others had at that place; one before layers that are gone, to the stream
    behind those, where norms come first; the last block's, for tokens that the answer is read off. Maps without a bias,
    and those that are products, stay as they are. ``stay`` are the layers of the others that there still are: all of
    them, if none are named. Where tokens are merged, they are fitted as if they were not.
    """
    model, guide = (_unmerged(one).model().float().eval() for one in (weights, before))
    blocks, guides = (list[Block](one.get_submodule(stack).children()) for one in (model, guide))  # type: ignore[arg-type]
    layers = list(range(len(guides)) if stay is None else stay)
    ends = [*layers[1:], len(guides)] if before.config.order == "pre" else [layer + 1 for layer in layers]
    mine, read = _first(guide, guides, call, batches)
    theirs, begun, state = mine, 0, dict(weights.state)
    with torch.no_grad():
        for number, block in enumerate(progress("layers fitted", blocks, len(blocks))):
            layer, end = layers[number], ends[number]
            theirs = _through(guides[begun:layer], theirs)
            sums, theirs = _sums(guides[layer], theirs)
            if end > layer + 1:
                theirs = _through(guides[layer + 1 : end], theirs)
                if sums:  # a layer may have nothing in it
                    sums[-1] = [x for x, *_ in theirs]
            begun, last = end, number == len(blocks) - 1
            for (name, sublayer), wanted in zip(block.named_children(), sums, strict=True):
                fitted = _fitted(block, cast("Sublayer", sublayer), mine, wanted, read if last else None)
                for part, tensor in fitted.items():
                    path = f"{stack}.{number}.{name}.f.out.{part}"
                    state[path] = tensor.to(state[path].dtype)
            mine = _through([block], mine)
    return replace(weights, state=state)


def _fitted(
    block: Block, sublayer: Sublayer, given: list[Given], wanted: list[Tensor], read: list[Tensor] | None
) -> Mapping[str, Tensor]:
    """The last map of a sublayer, fitted to what the sublayer is to write, for tokens that are read alone where those
    are named; nothing where it writes that.
    """
    out = getattr(sublayer.f, "out", None)
    if not isinstance(out, nn.Linear) or out.bias is None:
        return {}
    seen, regression, same = dict[str, Tensor](), Regression(), True
    scale = torch.ones(()) if sublayer.scale is None else sublayer.scale
    alive = scale != 0

    def comes(_: nn.Module, x: Any) -> None:
        seen["stream"] = x[0]

    def gives(_: nn.Module, z: Any, y: Tensor) -> None:
        seen["read"], seen["written"] = z[0], y

    with hooked([sublayer.register_forward_pre_hook(comes), out.register_forward_hook(gives)]):
        for number, ((x, args, kwargs), target) in enumerate(zip(given, wanted, strict=True)):
            block(x, *args, **kwargs)
            same = same and torch.equal(seen["stream"] + seen["written"] * scale, target)
            wants = torch.where(alive, (target - seen["stream"]) / scale, seen["written"])
            rows = _present(args) if read is None else read[number]
            regression.add(seen["read"][rows], wants[rows])
    if same or not regression.given.count:
        return {}
    coefficients, intercept = regression.fitted(out.weight)
    new = (nn.Parameter(one.to(out.weight.dtype)) for one in (coefficients, intercept))
    out.weight, out.bias = new  # in place of those that the weights hold
    return {"weight": coefficients, "bias": intercept}


def _first(
    model: Model, blocks: Sequence[Block], call: Call, batches: Iterable[Batch]
) -> tuple[list[Given], list[Tensor]]:
    """What comes into a model's first block, and which tokens of what comes out of the last one the answer is read off,
    (b n) of each batch: those on which there is a gradient.
    """
    given, read, size = list[Given](), list[Tensor](), 0
    model.requires_grad_(requires_grad=False)

    def comes(_: nn.Module, args: Any, kwargs: Any) -> None:
        given.append((args[0], args[1:], kwargs))

    def goes(_: nn.Module, __: Any, x: Tensor) -> Tensor:
        ends.append(x.detach().requires_grad_())
        return ends[-1]

    first = blocks[0].register_forward_pre_hook(comes, with_kwargs=True)
    with torch.enable_grad(), every_token(), hooked([first, blocks[-1].register_forward_hook(goes)]):
        for batch in batches:
            ends = list[Tensor]()
            loss = call(model, batch).sum()
            gradients = torch.autograd.grad(loss, ends, allow_unused=True)
            read += [_rows(end, gradient) for end, gradient in zip(ends, gradients, strict=True)]
            size += sum(end.nbytes for end in ends)
            if size > STREAM:
                break
    return given, read


def _rows(x: Tensor, gradient: Tensor | None) -> Tensor:
    """The tokens of a stream (b n w) on which there is a gradient, (b n); all of them, where there is none at all."""
    there = torch.zeros(x.shape[:2], dtype=torch.bool) if gradient is None else gradient.abs().sum(-1) > 0
    return there if there.any() else torch.ones_like(there)


def _present(args: tuple[Any, ...]) -> Any:
    """The tokens that are no padding, as far as the mask that a block is given says so."""
    mask = args[0] if args else None
    return mask.present if isinstance(mask, Mask) and mask.present is not None else slice(None)


def _unmerged(weights: Weights) -> Weights:
    """Weights that merge no tokens."""
    if not getattr(weights.config, "merge", 0):
        return weights
    return replace(weights, config=type(weights.config)(**{**weights.config.model_dump(), "merge": 0}))


def _through(blocks: Sequence[Block], given: list[Given]) -> list[Given]:
    """What comes out of some blocks, as what comes into the next one."""
    for block in blocks:
        given = [(block(x, *args, **kwargs), args, kwargs) for x, args, kwargs in given]
    return given


def _sums(block: Block, given: list[Given]) -> tuple[list[list[Tensor]], list[Given]]:
    """The stream behind each sublayer of a block, before a norm that comes after, and what comes into the next one."""
    sublayers = list(block.sublayers())
    there: list[list[Tensor]] = [[] for _ in sublayers]

    def before(stream: list[Tensor]) -> Callable[..., None]:
        return lambda _, x: stream.append(x[0])

    def behind(stream: list[Tensor]) -> Callable[..., None]:
        return lambda _, __, x: stream.append(x)

    with hooked(
        one.register_forward_hook(behind(stream))
        if one.order == "pre"
        else one.norm.register_forward_pre_hook(before(stream))
        for one, stream in zip(sublayers, there, strict=True)
    ):
        return there, _through([block], given)
