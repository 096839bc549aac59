"""Pictures as sequences of a few colours."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.files import read_json, whole

SOME = 200_000  # pixels that colours are found from
TOGETHER = 2**20  # pixels that are compared with all colours at a time


@dataclass(frozen=True, eq=False)
class Palette:
    """Colours (k c), from dark to bright, by which every pixel is named: that of the nearest."""

    colours: Tensor

    @classmethod
    def of(cls, images: Tensor, count: int, seed: int = 0) -> "Palette":
        """Of pictures (m c H W), bytes: all colours that there are, or so many centres of them (k-means)."""
        pixels = images.permute(0, 2, 3, 1).reshape(-1, images.shape[1])
        unique = pixels.unique(dim=0) if len(pixels) <= 50 * SOME else pixels[: 50 * SOME].unique(dim=0)
        if len(unique) > count:
            from sklearn.cluster import KMeans  # noqa: PLC0415  # a second, for those who need it

            rows = np.random.default_rng(seed).permutation(len(pixels))[:SOME]
            clusters = KMeans(count, n_init=1, random_state=seed).fit(pixels[rows].float().numpy())
            unique = torch.from_numpy(clusters.cluster_centers_).round().clamp(0, 255).byte().unique(dim=0)
        colours = unique.float()
        return cls(colours[colours.mean(1).argsort(stable=True)])

    def __len__(self) -> int:
        return len(self.colours)

    def encode(self, images: Tensor) -> Tensor:
        """(m c H W) -> (m HW), the numbers of colours, row by row; int16."""
        pixels = images.permute(0, 2, 3, 1).reshape(-1, images.shape[1])
        some = pixels.split(max(1, TOGETHER // len(self)))
        numbers = [torch.cdist(part.float(), self.colours).argmin(1).to(torch.int16) for part in some]
        return torch.cat(numbers).view(len(images), -1)

    def decode(self, numbers: Tensor, size: tuple[int, int]) -> Tensor:
        """(m HW) -> (m c H W), bytes."""
        pixels = self.colours[numbers.long().clamp(max=len(self) - 1)].byte()
        return pixels.view(len(numbers), *size, -1).permute(0, 3, 1, 2)

    def write(self, path: Path) -> None:
        with whole(path) as aside:
            aside.write_text(json.dumps(self.colours.byte().tolist()), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Palette":
        """What ``write`` wrote."""
        if not path.is_file():
            raise InputError(f"{str(path)!r} is not there, without which no picture can be made; take the whole run.")
        table = read_json(path)
        try:
            return cls(torch.tensor(table, dtype=torch.float32).reshape(len(table), -1))
        except (TypeError, ValueError):
            raise InputError(f"{str(path)!r} is no list of colours; take it from the run again.") from None
