"""One warp of ours against kornia's affine map and crop, which together do the same: milliseconds a batch, medians.

.venv/bin/python bench/warp.py
"""

import statistics
import time
from collections.abc import Callable

import torch
from kornia import augmentation as k
from torch import Tensor

from vitrail.tasks.pictures.augment import Warp

ROUNDS = 200


def main() -> None:
    """Print a row for each size of picture, with the ratio."""
    print("pixels  batch  vitrail  kornia  ratio")
    for side, batch in ((8, 64), (28, 128), (64, 64)):
        affine = k.RandomAffine(10, scale=(0.9, 1.1), padding_mode="border", p=1.0)
        crop = k.RandomCrop((side, side), padding=(max(1, side // 10),) * 2, padding_mode="replicate")
        ways: list[Callable[[Tensor], Tensor]] = [Warp((side, side), 10, 0.1, 0.1), lambda x, a=affine, c=crop: c(a(x))]
        images, times = torch.rand(batch, 1, side, side), ([], [])
        for _ in range(ROUNDS):
            for way, took in zip(ways, times, strict=True):
                began = time.perf_counter()
                with torch.no_grad():
                    way(images)
                took.append(1e3 * (time.perf_counter() - began))
        ours, theirs = map(statistics.median, times)
        print(f"{side:6} {batch:6} {ours:8.2f} {theirs:7.2f} {theirs / ours:6.1f}")


if __name__ == "__main__":
    main()
