"""How an answer would change with what the heads read."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from vitrail.families import Model
from vitrail.lens.record import Trace, record
from vitrail.lens.tokens import attention_sites


def slopes(model: Model, images: Tensor, of: Callable[[Tensor], Tensor]) -> tuple[Trace, dict[str, Tensor]]:
    """A recorded pass, and by site the slope of a number made of its logits by z, (b h i r), as it was read.

    The slope by a pattern follows from it, dy/dA = dy/dz v^T, so that no pattern has to be stored on the way.
    """
    with with_slopes(), record(model) as trace:
        found = of(model(images.detach().clone().requires_grad_()))
        names = attention_sites(trace.names())
        return trace, dict(
            zip(names, torch.autograd.grad(found, [trace.visit(name).read for name in names]), strict=True)
        )


def with_slopes() -> ExitStack:
    """Where slopes can be had, whatever the user has switched off."""
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(mode=False))
    stack.enter_context(torch.enable_grad())
    return stack
