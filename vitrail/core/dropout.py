"""Dropout, as fast as a processor draws."""

import torch
from torch import Tensor, nn

STEPS = 2**16  # values that the bits of one draw have


class Dropout(nn.Dropout):
    """x * keep / (1 - p), keep ~ Bernoulli(1 - p) for each number (Srivastava et al. 2014).

    PyTorch draws 32 bits or more for each number. Here 64 bits serve four, which on a processor is four times as fast,
    where dropout took a third of the time of a small Transformer's training; p is then met to 1/65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...)."""
        drawn = self.training and 0 < self.p < 1 and x.device.type == "cpu" and not torch.compiler.is_compiling()
        if not drawn:
            return super().forward(x)
        count = x.numel()
        bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        dropped = min(round(self.p * STEPS), STEPS - 1)
        keep = (bits[:count].view(x.shape) >= dropped - STEPS // 2).to(x.dtype)
        return x * keep.mul_(STEPS / (STEPS - dropped))
