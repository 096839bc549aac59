"""Convolutions before the patches are cut: the weight-standardised ResNets of ViT's hybrids (ViT, section 3.1)."""

from collections.abc import Sequence
from math import ceil
from typing import ClassVar

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitrail.core.embeddings import Stem, stems
from vitrail.errors import InputError

GROUPS = 32


class ResNetStem(Stem):
    """A ResNet without its last layers, then each p x p of its pixels projected to the width.

    As in Kolesnikov et al. 2020 (BiT): group norm, standardised weights; the activation after each norm, and after the
    sum of a unit.
    """

    units: ClassVar[Sequence[int]]  # of each stage; all but the first halve the picture
    widths: ClassVar[Sequence[int]] = (256, 512, 1024, 2048)
    root_width: ClassVar[int] = 64
    name: ClassVar[str]

    def __init__(self, patch: int, channels: int, width: int) -> None:
        super().__init__(patch, channels, width)
        stride = self.stride()
        if patch % stride:
            raise InputError(
                f"patch={patch} is not a multiple of {stride}, by which stem={self.name!r} shrinks a picture; "
                f"choose patch={max(1, round(patch / stride)) * stride}."
            )
        self.root = self.make_root(channels)
        before, stages = self.root_width, []
        for stage, (count, after) in enumerate(zip(self.units, self.widths, strict=False)):
            units = [Unit(before if unit == 0 else after, after, self.step(stage, unit)) for unit in range(count)]
            stages.append(nn.Sequential(*units))
            before = after
        self.stages = nn.Sequential(*stages)
        self.projection = nn.Conv2d(before, width, patch // stride, stride=patch // stride)

    def stride(self) -> int:
        """How many pixels across become one."""
        return 4 * 2 ** max(0, len(self.units) - 1)

    def step(self, stage: int, unit: int) -> int:
        """The stride of a unit."""
        return 2 if stage and not unit else 1

    def make_root(self, channels: int) -> nn.Sequential:
        """What comes before the stages."""
        return nn.Sequential(
            StandardConv(channels, self.root_width, 7, 2), norm(self.root_width), nn.ReLU(), SamePool(3, 2)
        )

    def forward(self, image: Tensor) -> Tensor:
        return rearrange(self.projection(self.stages(self.root(image))), "b w y x -> b (y x) w")


@stems.add("resnet50")
class ResNet50(ResNetStem):
    """R50 with its last stage left out: a pixel for each 16 (ViT, section 4.1)."""

    name, units = "resnet50", (3, 4, 9)


@stems.add("resnet50-all")
class WholeResNet50(ResNetStem):
    """R50 with all four stages: a pixel for each 32 (ViT, table 6)."""

    name, units = "resnet50-all", (3, 4, 6, 3)


@stems.add("resnet26")
class ResNet26(ResNetStem):
    """R26, all four stages: a pixel for each 32 (Steiner et al. 2021, section 3.2)."""

    name, units = "resnet26", (2, 2, 2, 2)


@stems.add("resnet-root")
class ResNetRoot(ResNetStem):
    """A ResNet's first convolution and pooling alone: a pixel for each 4 (Steiner et al. 2021, section 3.2)."""

    name, units = "resnet-root", ()


@stems.add("resnet-small")
class SmallResNet(ResNetStem):
    """For small pictures: nothing is lost before two narrow stages, each of which halves the picture."""

    name, units, widths, root_width = "resnet-small", (1, 1), (64, 128), 32

    def stride(self) -> int:
        return 4

    def step(self, stage: int, unit: int) -> int:  # noqa: ARG002
        return 1 if unit else 2

    def make_root(self, channels: int) -> nn.Sequential:
        return nn.Sequential(StandardConv(channels, self.root_width, 3, 1), norm(self.root_width), nn.ReLU())


class Unit(nn.Module):
    """relu(shortcut(x) + f(x)), f three convolutions 1 x 1, 3 x 3, 1 x 1, the inner ones a quarter as wide."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        inner = after // 4
        changes = before != after or stride != 1
        self.shortcut = nn.Sequential(StandardConv(before, after, 1, stride), norm(after)) if changes else None
        self.f = nn.Sequential(
            *(StandardConv(before, inner, 1, 1), norm(inner), nn.ReLU()),
            *(StandardConv(inner, inner, 3, stride), norm(inner), nn.ReLU()),
            *(StandardConv(inner, after, 1, 1), norm(after)),
        )
        nn.init.zeros_(self.f[-1].weight)  # type: ignore[arg-type]  # so that it begins as its shortcut

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return F.relu(shortcut + self.f(x))


class StandardConv(nn.Conv2d):
    """A convolution whose kernels have mean 0 and variance 1 (Qiao et al. 2019), padded as TensorFlow's SAME."""

    def __init__(self, before: int, after: int, size: int, stride: int) -> None:
        super().__init__(before, after, size, stride=stride, bias=False)
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        kernels = F.layer_norm(self.weight, self.weight.shape[1:], eps=1e-8)
        return F.conv2d(same(x, self.kernel_size[0], self.stride[0]), kernels, stride=self.stride)


class SamePool(nn.Module):
    """The largest of each k x k pixels, padded as TensorFlow's SAME."""

    def __init__(self, size: int, stride: int) -> None:
        super().__init__()
        self.size, self.stride = size, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(same(x, self.size, self.stride, value=float("-inf")), self.size, self.stride)


def same(x: Tensor, size: int, stride: int, value: float = 0.0) -> Tensor:
    """Pad so that a side of n becomes ceil(n / stride); what is odd goes to the right and the bottom."""
    rooms = [max(0, (ceil(side / stride) - 1) * stride + size - side) for side in (x.shape[-1], x.shape[-2])]
    return F.pad(x, [part for room in rooms for part in (room // 2, room - room // 2)], value=value)


def norm(width: int) -> nn.GroupNorm:
    """Over 32 groups of channels, or as many as there are."""
    return nn.GroupNorm(min(GROUPS, width), width)
