"""Optimizers and schedules."""

from collections.abc import Callable
from math import cos, pi
from typing import Any

from torch import nn, optim


def adamw(model: nn.Module, lr: float, decay: float, betas: tuple[float, float] = (0.9, 0.999)) -> optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) with decay on the matrices of linear maps and convolutions alone.

    Norms, biases, positions, class and register tokens are not decayed. Fused: one pass over the parameters.
    """
    matrices = {module.weight for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    decayed = [p for p in model.parameters() if p in matrices]
    others = [p for p in model.parameters() if p not in matrices]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    return optim.AdamW(groups, lr=lr, betas=betas, weight_decay=decay, fused=True)


def warmup_cosine(steps: int, warmup: int) -> Callable[[int], float]:
    """The share of the learning rate: (t + 1) / warmup at first, then (1 + cos(pi u)) / 2 with u from 0 to 1."""

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return (1 + cos(pi * (step - warmup) / max(1, steps - warmup))) / 2

    return share
