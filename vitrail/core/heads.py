"""From tokens to answers."""

import torch
from torch import Tensor, nn

from vitrail.core.linear import linear


class ClassPool(nn.Module):
    """z^0: the class token (ViT, eq. 4)."""

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b w)."""
        return x[:, 0]


class DistilledPool(nn.Module):
    """z^0 and z^1: the class token and the distillation token (Touvron et al. 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b 2 w)."""
        return x[:, :2]


class MeanPool(nn.Module):
    """The mean over the patches, without the prefix tokens (ViT, appendix D.3)."""

    def __init__(self, prefix: int = 0) -> None:
        super().__init__()
        self.prefix = prefix

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b w)."""
        return x[:, self.prefix :].mean(1)


class ClassMeanPool(nn.Module):
    """z^0 and the mean over the patches, side by side: what DINOv2's linear classifiers read (Oquab et al. 2023)."""

    def __init__(self, prefix: int) -> None:
        super().__init__()
        self.mean = MeanPool(prefix)

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b 2w)."""
        return torch.cat([x[:, 0], self.mean(x)], dim=-1)


class Head(nn.Sequential):
    """x W + b, behind tanh(x W' + b') of width ``prelogits`` if that is not 0 (ViT, section 3.1).

    Without classes the last map is left out.
    """

    def __init__(self, width: int, classes: int, prelogits: int = 0) -> None:
        super().__init__()
        if prelogits:
            self.prelogits = linear(width, prelogits)
            self.tanh = nn.Tanh()
        if classes:
            self.logits = linear(prelogits or width, classes)
            nn.init.trunc_normal_(self.logits.weight, std=0.02)


class DistilledHead(nn.Module):
    """(z^0 W + b + z^1 W' + b') / 2: the mean of what both tokens say (Touvron et al. 2021, section 4)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.logits = linear(width, classes) if classes else None
        self.distilled = linear(width, classes) if classes else None
        for layer in filter(None, (self.logits, self.distilled)):
            nn.init.trunc_normal_(layer.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """(b 2 w) -> (b classes), or (b w) without classes."""
        one, other = self.apart(x).unbind(1)
        return (one + other) / 2

    def apart(self, x: Tensor) -> Tensor:
        """(b 2 w) -> (b 2 classes): what each of the two says, which are taught by different teachers."""
        if self.logits is None or self.distilled is None:
            return x
        return torch.stack([self.logits(x[:, 0]), self.distilled(x[:, 1])], dim=1)
