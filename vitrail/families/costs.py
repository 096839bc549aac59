"""What a model costs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from vitrail.families.catalogue import Cost, Shape
from vitrail.families.model import Model, empty

PROBE = 5e9  # multiply-adds that are tried, to know how fast they are


def count_parameters(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in model.parameters())


def cost(config: Any, **call: Any) -> Cost:
    """Counted on a model without memory: PyTorch's own counter sees every matrix product and convolution."""
    model = empty(config).eval().requires_grad_(False)  # the counter's own hooks want none
    inputs = model.example()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs, **call)
    return Cost(count_parameters(model), counter.get_total_flops() // 2)


def cost_of(config: Any) -> Cost:
    """By its formula, or counted where it has none."""
    known = config.cost() if isinstance(config, Shape) else None
    return known or cost(config)


@dataclass(frozen=True)
class Kept:
    """Bytes in memory for one example of the model's own size."""

    training: int  # all that a forward pass keeps for the gradients
    recomputing: int  # what it keeps where blocks are computed a second time, with what one of them needs then


_KEPT: dict[str, Kept] = {}


def kept(config: Any) -> Kept:
    """Counted on a forward pass of tensors that have shapes and no numbers, so that it takes no memory itself."""
    name = f"{type(config).__name__} {config.model_dump_json()}"
    if name not in _KEPT:
        _KEPT[name] = _count_kept(config)
    return _KEPT[name]


def speed(
    model: Model,
    *,
    training: bool = False,
    most: int = 64,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> float:
    """About how many examples a second a model answers, or learns from, so many at a time at most: tried on a few.

    ``within`` is what its forward pass runs in, as in another precision.
    """
    work = cost_of(model.config).multiply_adds * (3 if training else 1)
    count = max(1, min(most, int(PROBE / max(1, work))))
    inputs = tree_map(lambda one: one.expand(count, *one.shape[1:]).contiguous(), model.example())
    was, times = model.training, list[float]()
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]  # which statistics may be gathered in
    model.train(training)
    for _ in range(3):
        began = perf_counter()
        with torch.enable_grad() if training else torch.inference_mode():
            with within():
                answers = model(inputs, shortest=True)
            if training:
                answers.float().sum().backward()
        times.append(perf_counter() - began)
        if len(times) > 1 and sum(times) > 1:  # a large model, that has shown enough: the first pass is the slowest
            break
    model.train(was)
    model.zero_grad()
    for buffer, before in buffers:
        buffer.copy_(before)
    return count / min(times)


def _count_kept(config: Any) -> Kept:
    model = empty(config).train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        everything = _saved(model)
        blocks = list(model.blocks)
        between: list[int] = []
        for block in blocks:
            block.register_forward_pre_hook(lambda _, inputs: between.append(_bytes(inputs[0])))
        with torch.no_grad():
            model(model.example())
    each = everything // max(1, len(blocks))
    return Kept(everything, min(everything, sum(between) + 2 * each))


def _saved(model: Model) -> int:
    """Bytes of what one example leaves for the gradients, beside the parameters themselves."""
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}  # noqa: SLF001
    seen: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()._cdata  # noqa: SLF001
        if storage not in own:
            seen[storage] = tensor  # kept alive, so that no other gets its number
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(model.example(), shortest=True)
    return sum(tensor.untyped_storage().nbytes() for tensor in seen.values())


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
