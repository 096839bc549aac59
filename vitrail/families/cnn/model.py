"""Residual networks (He et al. 2016), and plain ones: convolutions, batch norms, a mean over the picture."""

from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitrail.core import Head
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.families.cnn.config import CNNConfig, unit_convolutions
from vitrail.families.model import Adapted, State, families
from vitrail.families.picture_model import PictureModel
from vitrail.families.vit.adapt import other_channels


class Convolved(nn.Sequential):
    """norm(conv(x)), and an activation where one is wanted."""

    def __init__(self, before: int, after: int, side: int, stride: int, eps: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, side, stride, side // 2, bias=False)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")
        self.norm = nn.BatchNorm2d(after, eps)


class Unit(nn.Module):
    """relu(x + f(x)), f some convolutions; without a shortcut relu(f(x))."""

    def __init__(self, config: CNNConfig, before: int, inner: int, stride: int) -> None:
        super().__init__()
        eps, after = config.eps, config.grown * inner
        several = unit_convolutions(config.unit, before, inner, stride)
        convs = [Convolved(one.before, one.after, one.side, one.stride, eps) for one in several]
        self.convs = nn.ModuleList(convs)
        self.residual = config.residual
        changes = self.residual and (before != after or stride > 1)
        self.shortcut = Convolved(before, after, 1, stride, eps) if changes else None
        if self.residual:
            nn.init.zeros_(convs[-1].norm.weight)  # so that it begins as its shortcut (Goyal et al. 2017, section 5.1)

    def forward(self, x: Tensor) -> Tensor:
        """(b c y x) -> (b d y x), the sides maybe halved."""
        came = x if self.shortcut is None else self.shortcut(x)
        *before, last = self.convs
        for conv in before:
            x = F.relu(conv(x))
        x = last(x)
        return F.relu(x + came if self.residual else x)


@families.add("cnn")
class CNN(PictureModel):
    """head(mean(stages(root(image))))."""

    Config = CNNConfig
    config: CNNConfig

    def __init__(self, config: CNNConfig) -> None:
        super().__init__()
        self.config = config
        side, stride = (7, 2) if config.root == "large" else (3, 1)
        self.root = Convolved(config.channels, config.width, side, stride, config.eps)
        stages, before = list[nn.Module](), config.width
        for stage, count in enumerate(config.units):
            inner, units = config.width * 2**stage, list[nn.Module]()
            for number in range(count):
                units.append(Unit(config, before, inner, 2 if stage and not number else 1))
                before = config.grown * inner
            stages.append(nn.Sequential(*units))
        self.stages = nn.Sequential(*stages)
        self.head = Head(config.pooled, config.classes, 0)

    def maps(self, image: Tensor) -> Tensor:
        """(b c H W) -> what the last stage sees where, (b w y x)."""
        x = F.relu(self.root(image))
        if self.config.root == "large":
            x = F.max_pool2d(x, 3, 2, 1)
        return self.stages(x)

    def stream(self, image: Tensor) -> Tensor:
        """(b c H W) -> the places of the last stage, row by row (b n w)."""
        return rearrange(self.maps(image), "b w y x -> b (y x) w")

    def answer(self, stream: Tensor) -> Tensor:
        """(b n w) -> logits (b classes)."""
        return self.head(stream.mean(1))

    def answers_and_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        features = self.maps(image).mean((2, 3))
        return self.head(features), features

    def summary(self) -> str:
        c = self.config
        kind = "residual" if c.residual else "plain"
        layers = sum(c.units) * (2 if c.unit == "basic" else 3) + 2
        sides = f"{c.size[0]} x {c.size[1]} pixels, {c.channels} channel{'s' * (c.channels > 1)}"
        return f"{sides}, {kind}, {layers} layers, {c.width} channels and more, units {' '.join(map(str, c.units))}"

    @classmethod
    def adapt(
        cls, config: CNNConfig, state: State, normalise: Normalise | None = None, *, head: str = "keep", **changes: Any
    ) -> Adapted:
        """With pictures of another size, other channels, or a head for other classes."""
        wanted = CNNConfig(
            **config.model_dump() | {name: value for name, value in changes.items() if value is not None}
        )
        fixed = [name for name in CNNConfig.model_fields if getattr(wanted, name) != getattr(config, name)]
        fixed = [name for name in fixed if name not in ("image", "channels", "classes")]
        if fixed:
            raise InputError(f"weights of a cnn have their own {fixed[0]}; leave it out.")
        state, notes = dict(state), list[str]()
        if wanted.channels != config.channels:
            state["root.conv.weight"] = other_channels(state["root.conv.weight"], wanted.channels)
            normalise = None if normalise is None else normalise.even(wanted.channels)
            notes.append(f"{config.channels} channels made {wanted.channels}")
        fresh = wanted.classes != config.classes or head == "fresh"
        if fresh:
            state = {name: one for name, one in state.items() if not name.startswith("head.")}
            if wanted.classes:
                some = state["root.conv.weight"]
                state["head.logits.weight"] = some.new_zeros(wanted.classes, wanted.pooled)
                state["head.logits.bias"] = some.new_zeros(wanted.classes)
            notes.append(f"the head for {config.classes} classes replaced by a fresh one for {wanted.classes}")
        return Adapted(wanted, state, normalise, notes, fresh)
