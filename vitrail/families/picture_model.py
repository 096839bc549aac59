"""Models that label pictures, whatever they are made of."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from vitrail.families.model import Model


class PictureModel(Model):
    """Pictures (b c H W) to logits (b classes)."""

    task = "pictures"

    @abstractmethod
    def answers_and_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """(b c H W) -> logits (b classes), and what they are made of, a vector for each picture (b w)."""

    def forward(self, image: Tensor, *, shortest: bool = False, apart: bool = False) -> Tensor:  # noqa: ARG002
        """(b c H W) -> logits (b classes)."""
        return self.answers_and_features(image)[0]

    def pooled(self, image: Tensor) -> Tensor:
        """(b c H W) -> (b w): what the head is given, a picture as one vector."""
        return self.answers_and_features(image)[1]

    @property
    def blocks(self) -> list[Any]:
        """None, in which tokens look at each other, unless a family has some."""
        return []

    def example(self) -> Tensor:
        like = next((one for one in self.state_dict().values() if one.is_floating_point()), torch.zeros(()))
        return torch.zeros(1, self.config.channels, *self.config.size, device=like.device, dtype=like.dtype)
