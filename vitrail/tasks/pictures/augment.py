"""Pictures changed at random, a whole batch at a time (most of it kornia's), so that a small set teaches more."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.tasks.pictures.recipe import Augment

Augmented = tuple[Tensor, Tensor]
Mixed = tuple[Tensor, Tensor, Tensor, Tensor]  # pictures, their classes, the other classes, and the others' weights
Mix = Callable[[Tensor, Tensor], Mixed]


def augmenter(
    recipe: Augment, size: tuple[int, int], channels: int, classes: int
) -> Callable[[Tensor, Tensor], Augmented]:
    """Pictures (b c H W) from 0 to 1 and labels (b) -> changed pictures, and labels, or probabilities of classes.

    All that is random comes from torch's own generator, so that a seed fixes it.
    """
    changes = nn.Sequential(*_changes(recipe, size, channels))
    mixes = _mixes(recipe)

    @torch.no_grad()
    def augment(images: Tensor, labels: Tensor) -> Augmented:
        images = changes(images)
        if not mixes or len(images) < 2:  # noqa: PLR2004
            return images, labels
        images, one, other, weight = mixes[int(torch.randint(len(mixes), ()))](images, labels)
        one, other = (F.one_hot(labels.long(), classes).float() for labels in (one, other))
        return images, torch.lerp(one, other, weight[:, None])

    return augment


def _changes(recipe: Augment, size: tuple[int, int], channels: int) -> list[nn.Module]:
    changes: list[nn.Module] = []
    if recipe.rotate or recipe.zoom or recipe.shift:
        changes.append(Warp(size, recipe.rotate, recipe.zoom, recipe.shift))
    if not (recipe.crop or recipe.flip or recipe.colour or recipe.erase):
        return changes
    from kornia import augmentation as k  # noqa: PLC0415  # half a second, for those who use it

    if recipe.crop:
        changes.insert(0, k.RandomResizedCrop(size, scale=(1 - recipe.crop, 1.0), ratio=(3 / 4, 4 / 3)))
    if recipe.flip:
        changes.append(k.RandomHorizontalFlip(recipe.flip))
    if recipe.colour:
        changes.append(k.RandomBrightness((1 - recipe.colour, 1 + recipe.colour), clip_output=True))
        changes.append(k.RandomContrast((1 - recipe.colour, 1 + recipe.colour), clip_output=True))
        if channels == 3:  # noqa: PLR2004
            changes.append(k.RandomSaturation((1 - recipe.colour, 1 + recipe.colour)))
    if recipe.erase:
        changes.append(k.RandomErasing(p=recipe.erase, scale=(0.02, 0.25)))
    return changes


class Warp(nn.Module):
    """Each picture turned, scaled and shifted by whole pixels, read off once; what comes into view repeats the edge.

    kornia has the same as two changes, which together take about nine times as long on a batch of 8 x 8 pixels, three
    times at 28 x 28, and not twice as long at 64 x 64 (bench/warp.py).
    """

    def __init__(self, size: tuple[int, int], rotate: float, zoom: float, shift: float) -> None:
        super().__init__()
        self.rotate, self.zoom = math.radians(rotate), zoom
        self.room = tuple(max(1, round(shift * side)) if shift else 0 for side in size)

    def forward(self, images: Tensor) -> Tensor:
        """(b c H W) -> (b c H W)."""
        turn, zoom, *shifts = 2 * torch.rand(4, len(images), device=images.device) - 1
        down, across = (
            (shift * (room + 0.5)).round().clamp(-room, room) for shift, room in zip(shifts, self.room, strict=True)
        )
        return warp(images, turn * self.rotate, 1 + zoom * self.zoom, down, across)


def warp(images: Tensor, turn: Tensor, scale: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Pictures (b c H W) turned by radians (counter-clockwise), scaled about their middle, then shifted by pixels."""
    height, width = images.shape[-2:]
    cos, sin = turn.cos() / scale, turn.sin() / scale
    rows = [
        torch.stack([cos, -sin * height / width, -2 * (cos * across - sin * down) / width], dim=-1),
        torch.stack([sin * width / height, cos, -2 * (sin * across + cos * down) / height], dim=-1),
    ]  # from a point of the new picture to one of the old, both from -1 to 1
    points = F.affine_grid(torch.stack(rows, dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images, points, padding_mode="border", align_corners=False)


def _mixes(recipe: Augment) -> list[Mix]:
    mixes: list[Mix] = []
    if recipe.mixup:
        from kornia.augmentation import RandomMixUpV2  # noqa: PLC0415

        mixup = RandomMixUpV2(p=recipe.mixup, data_keys=["input", "class"])

        def mixed(images: Tensor, labels: Tensor) -> Mixed:
            images, mixture = mixup(images, labels)
            return images, mixture[:, 0], mixture[:, 1], mixture[:, 2]

        mixes.append(mixed)
    if recipe.cutmix:
        from kornia.augmentation import RandomCutMixV2  # noqa: PLC0415

        cutmix = RandomCutMixV2(p=recipe.cutmix, data_keys=["input", "class"], use_correct_lambda=True)

        def cut(images: Tensor, labels: Tensor) -> Mixed:
            images, mixture = cutmix(images, labels)
            return images, mixture[0, :, 0], mixture[0, :, 1], 1 - mixture[0, :, 2]  # which is its own weight here

        mixes.append(cut)
    return mixes
