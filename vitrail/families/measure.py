"""What a model costs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from vitrail.families.registry import families, family_of


@dataclass(frozen=True)
class Cost:
    """Numbers learned, and multiply-adds to classify one image of the model's own size."""

    parameters: int
    multiply_adds: int


def cost(config: Any, **call: Any) -> Cost:
    """Counted on a model without memory: PyTorch's own counter sees every matrix product and convolution."""
    with torch.device("meta"):
        model = families[family_of(config)](config).eval()
        image = torch.zeros(1, config.channels, *config.size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image, **call)
    return Cost(sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2)
