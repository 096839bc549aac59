"""How the values of pictures are moved and scaled before a model sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import unknown


@dataclass(frozen=True)
class Normalise:
    """(x - mean) / std, channel by channel: from pictures with values from 0 to 1 to what a model takes."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """(b c H W) -> (b c H W)."""
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self.mean, self.std))
        return (images - mean) / std

    def undone(self, images: Tensor) -> Tensor:
        """Back again."""
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self.mean, self.std))
        return images * std + mean

    def __str__(self) -> str:
        mean, std = (" ".join(f"{value:.3f}" for value in values) for values in (self.mean, self.std))
        return f"mean {mean}, std {std}"

    @classmethod
    def of(cls, given: Any) -> "Normalise | None":
        """From a name, a pair, or a table of mean and std; None where that is not what is given."""
        if isinstance(given, Normalise):
            return given
        if isinstance(given, str):
            if given not in NORMALISATIONS:
                raise unknown("normalise", given, NORMALISATIONS)
            return NORMALISATIONS[given]
        pair = (given.get("mean"), given.get("std")) if isinstance(given, dict) else given
        if not isinstance(pair, Sequence) or len(pair) != 2:  # noqa: PLR2004
            return None
        mean, std = (tuple(values) if isinstance(values, list | tuple) else () for values in pair)
        if not mean or not all(isinstance(value, int | float) for value in (*mean, *std)):
            return None
        return cls(mean, std) if len(mean) == len(std) and all(std) else None

    def even(self, channels: int) -> "Normalise":
        """One for all channels: the mean of theirs."""
        mean, std = (sum(values) / len(values) for values in (self.mean, self.std))
        return Normalise((mean,) * channels, (std,) * channels)

    def table(self) -> dict[str, list[float]]:
        """As JSON keeps it."""
        return {"mean": list(self.mean), "std": list(self.std)}


NORMALISATIONS = {
    "half": Normalise((0.5,) * 3, (0.5,) * 3),  # Google's, and most of timm's
    "imagenet": Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # torchvision's, DeiT's, DINOv2's
    "clip": Normalise((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "none": Normalise((0.0,) * 3, (1.0,) * 3),
}
