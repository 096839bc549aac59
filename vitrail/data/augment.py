"""Pictures changed at random, a whole batch at a time (kornia), so that a small set teaches more than itself."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.recipe import Augment

Augmented = tuple[Tensor, Tensor]
Mixed = tuple[Tensor, Tensor, Tensor, Tensor]  # pictures, their classes, the other classes, and the others' shares
Mix = Callable[[Tensor, Tensor], Mixed]


def augmenter(
    recipe: Augment, size: tuple[int, int], channels: int, classes: int
) -> Callable[[Tensor, Tensor], Augmented]:
    """Pictures (b c H W) from 0 to 1 and labels (b) -> changed pictures, and labels, or shares of classes (b classes).

    All that is random comes from torch's own generator, so that a seed fixes it.
    """
    changes = nn.Sequential(*_changes(recipe, size, channels))
    mixes = _mixes(recipe)

    @torch.no_grad()
    def augment(images: Tensor, labels: Tensor) -> Augmented:
        images = changes(images)
        if not mixes or len(images) < 2:  # noqa: PLR2004
            return images, labels
        images, one, other, share = mixes[int(torch.randint(len(mixes), ()))](images, labels)
        one, other = (F.one_hot(labels.long(), classes).float() for labels in (one, other))
        return images, torch.lerp(one, other, share[:, None])

    return augment


def _changes(recipe: Augment, size: tuple[int, int], channels: int) -> list[nn.Module]:
    changes: list[nn.Module] = []
    if not any(recipe.model_dump(exclude={"mixup", "cutmix"}).values()):
        return changes
    from kornia import augmentation as k  # noqa: PLC0415  # half a second, for those who use it

    if recipe.crop:
        changes.append(k.RandomResizedCrop(size, scale=(1 - recipe.crop, 1.0), ratio=(3 / 4, 4 / 3)))
    if recipe.rotate or recipe.zoom:
        changes.append(
            k.RandomAffine(recipe.rotate, scale=(1 - recipe.zoom, 1 + recipe.zoom), padding_mode="border", p=1.0)
        )
    if recipe.shift:
        room = (max(1, round(recipe.shift * size[1])), max(1, round(recipe.shift * size[0])))  # across, down
        changes.append(k.RandomCrop(size, padding=room, padding_mode="replicate"))
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
            return images, mixture[0, :, 0], mixture[0, :, 1], 1 - mixture[0, :, 2]  # which is its own share here

        mixes.append(cut)
    return mixes
