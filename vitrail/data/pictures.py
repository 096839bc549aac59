"""Labelled pictures that fit in memory."""

from dataclasses import dataclass

import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from vitrail.errors import InputError


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures (m c H W) with values in 0..1, their labels (m), and the names the labels stand for."""

    images: Tensor
    labels: Tensor
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "Pictures":
        return Pictures(self.images[index], self.labels[index], self.names)

    def split(self, share: float, seed: int) -> tuple["Pictures", "Pictures"]:
        """The pictures without a share of each class, and that share; the same ones for the same seed."""
        counts = torch.bincount(self.labels, minlength=len(self.names))
        if counts.min() < 2:  # noqa: PLR2004
            name = self.names[int(counts.argmin())]
            raise InputError(
                f"class {name!r} has {int(counts.min())} pictures, and needs one to train and one to test on."
            )
        if not len(self.names) <= round(share * len(self)) <= len(self) - len(self.names):
            raise InputError(
                f"a share of {share} of {len(self)} pictures cannot hold one of each of {len(self.names)} classes and "
                f"leave one; choose another data.test."
            )
        kept, held = train_test_split(
            range(len(self)), test_size=share, random_state=seed, stratify=self.labels.numpy(), shuffle=True
        )
        return self[torch.tensor(kept)], self[torch.tensor(held)]

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, (c 1 1)."""
        mean, std = (f((0, 2, 3), keepdim=True)[0] for f in (self.images.mean, self.images.std))
        return mean, std.clamp(min=1e-3)
