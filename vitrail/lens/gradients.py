"""How an answer would change with what the heads read."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from vitrail.families import Model
from vitrail.lens.recording import Trace, layer_sites, record


def gradients(model: Model, images: Tensor, of: Callable[[Tensor], Tensor]) -> tuple[Trace, dict[str, Tensor]]:
    """A recorded pass, and by site the gradient of a number made of its logits by z, (b h i r), as it was read.

    The gradient by a pattern follows from it, dy/dA = dy/dz v^T, so that no pattern has to be stored on the way.
    """
    with with_gradients(), record(model) as trace:
        number = of(model(images.detach().clone().requires_grad_()))
        names = [site for site in layer_sites(model) if site is not None]
        by_z = torch.autograd.grad(number, [trace.visit(name).read for name in names], materialize_grads=True)
        return trace, dict(zip(names, by_z, strict=True))


def with_gradients() -> ExitStack:
    """Where gradients can be had, whatever the user has switched off."""
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(mode=False))
    stack.enter_context(torch.enable_grad())
    return stack
