"""What a model costs."""

from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitrail.families.catalogue import Cost
from vitrail.families.model import families, family_of


def count_parameters(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in model.parameters())


def cost(config: Any, **call: Any) -> Cost:
    """Counted on a model without memory: PyTorch's own counter sees every matrix product and convolution."""
    with torch.device("meta"):
        model = families[family_of(config)](config).eval().requires_grad_(False)  # the counter's own hooks want none
        inputs = model.example()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs, **call)
    return Cost(count_parameters(model), counter.get_total_flops() // 2)
