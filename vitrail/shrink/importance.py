"""How much would be lost without a head, a neuron, a layer: by the gradient, and by leaving it out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core.block import Block, FeedForward, every_row
from vitrail.data import Batch
from vitrail.families import Model
from vitrail.lens import edit
from vitrail.lens.recording import layer_sites
from vitrail.progress import Progress, silent

Loss = Callable[[nn.Module, Batch], Tensor]


def by_gradient(model: Model, loss: Loss, batches: Iterable[Batch]) -> tuple[list[Tensor], list[Tensor]]:
    """E |z . dL/dz| of every head, and of every neuron, by layer (Michel et al. 2019, eq. 2; Molchanov et al. 2017).

    What a layer does not have is an empty tensor.
    """
    blocks = list(model.blocks)
    heads = [torch.zeros(_heads(block)) for block in blocks]
    neurons = [torch.zeros(_neurons(block)) for block in blocks]
    model.eval()
    count = 0
    for batch in batches:
        count += batch.count
        with every_token(), _watched(blocks) as seen:
            (loss(model, batch) * batch.count).backward()
        for (kind, layer), given in seen.items():
            for one in given:
                moved = (one * one.grad).detach() if one.grad is not None else torch.zeros_like(one)
                if kind == "heads":
                    heads[layer] += moved.sum((2, 3)).abs().sum(0)
                else:
                    neurons[layer] += moved.flatten(1, -2).sum(1).abs().sum(0)
        model.zero_grad()
    return [one / max(1, count) for one in heads], [one / max(1, count) for one in neurons]


@torch.no_grad()
def heads_left_out(model: Model, loss: Loss, batches: Sequence[Batch], progress: Progress = silent) -> list[Tensor]:
    """How much the loss grows without each head, by layer (Michel et al. 2019, section 3): a pass for each."""
    model.eval()
    whole = _mean(model, loss, batches)
    grown = [torch.zeros(_heads(block)) for block in model.blocks]
    sites = layer_sites(model)
    every = [(layer, head) for layer, heads in enumerate(grown) for head in range(len(heads))]
    for layer, head in progress("heads left out, one by one", every, len(every)):
        with edit(model) as edits:
            edits.silence(sites[layer], head)
            grown[layer][head] = _mean(model, loss, batches) - whole
    return grown


@torch.no_grad()
def layers_left_out(model: Model, loss: Loss, batches: Sequence[Batch], progress: Progress = silent) -> Tensor:
    """How much the loss grows without each layer, (l)."""
    model.eval()
    whole, grown = _mean(model, loss, batches), list[float]()
    for block in progress("layers left out, one by one", list(model.blocks), len(model.blocks)):
        parts = block.attention, block.feed_forward, block.cross
        block.attention, block.feed_forward, block.cross = None, None, None
        try:
            grown.append(_mean(model, loss, batches) - whole)
        finally:
            block.attention, block.feed_forward, block.cross = parts
    return torch.tensor(grown)


@contextmanager
def every_token() -> Iterator[None]:
    """With every row of every kernel computed, and by that kernel."""
    before = every_row.set(True)
    try:
        yield
    finally:
        every_row.reset(before)


@contextmanager
def hooked(handles: Iterable[Any]) -> Iterator[None]:
    """With some hooks in place."""
    there = list(handles)
    try:
        yield
    finally:
        for handle in there:
            handle.remove()


def _mean(model: Model, loss: Loss, batches: Sequence[Batch]) -> float:
    total = sum(float(loss(model, batch)) * batch.count for batch in batches)
    return total / sum(batch.count for batch in batches)


@contextmanager
def _watched(blocks: Sequence[Block]) -> Iterator[dict[tuple[str, int], list[Tensor]]]:
    """What heads read and neurons say, with their gradients kept."""
    seen: dict[tuple[str, int], list[Tensor]] = {}

    def watch(module: Any, name: tuple[str, int]) -> Any:
        def keep(_: nn.Module, __: Any, z: Tensor) -> None:
            z.retain_grad()
            seen.setdefault(name, []).append(z)

        return module.register_forward_hook(keep)

    read = (watch(one.attention.f.kernel, ("heads", layer)) for layer, one in enumerate(blocks) if one.attention)
    neurons = (
        watch(one.feed_forward.f.activation, ("neurons", layer)) for layer, one in enumerate(blocks) if one.feed_forward
    )
    with hooked([*read, *neurons]):
        yield seen


def _heads(block: Block) -> int:
    return 0 if block.attention is None else block.attention.f.heads  # type: ignore[return-value]


def _neurons(block: Block) -> int:
    feed = None if block.feed_forward is None else block.feed_forward.f
    return feed.out.in_features if isinstance(feed, FeedForward) else 0
