"""Parts of a model cut out: tokens by larger patches, layers, heads, neurons."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.shrink.cut import STACK, Kept, checked, cut, layered, without_layers
from vitrail.shrink.importance import by_gradient, heads_left_out, layers_left_out
from vitrail.shrink.surgeon import missed
from vitrail.shrink.way import EVEN, Change, Made, Workshop, as_number, count_or_share, ways
from vitrail.weights import Weights


@ways.add("image")
class Image(Change):
    """Pictures of fewer pixels, in patches of the same size."""

    about = "pictures of fewer pixels, so that there are fewer patches"
    usual = 0.25

    @classmethod
    def checked(cls, amount: float | str) -> float:
        return count_or_share(cls, amount, "the pixels of a side, such as 168, or the fraction of the patches that go")

    def grid(self, weights: Weights) -> tuple[int, int]:
        """Patches down and across."""
        config = weights.config
        side = self.fraction / min(config.size) if self.fraction >= 1 else (1 - self.fraction) ** 0.5
        down, across = (max(1, round(side * count)) for count in config.grid)
        return down, across

    def milder(self, weights: Weights) -> "Image | None":
        if self.fraction < 1:
            half = Image(round(self.fraction / 2, 4))
            return half if half.grid(weights) not in (self.grid(weights), weights.config.grid) else None
        patch, side = weights.config.patch, min(weights.config.size)
        between = round((self.fraction + side) / 2 / patch) * patch
        return Image(between) if self.fraction < between < side else None

    def check(self, weights: Weights) -> None:
        if weights.family != "vit":
            raise InputError(f"{weights.path!r} is a {weights.family}, whose pictures are not cut in patches.")
        config, sides = weights.config, " x ".join(map(str, weights.config.size))
        if self.fraction >= 1 and (self.fraction % config.patch or self.fraction >= min(config.size)):
            raise InputError(
                f"pictures of {self.fraction:g} pixels are not smaller ones of whole patches, where they have {sides} "
                f"in patches of {config.patch}."
            )
        if self.grid(weights) == config.grid:
            raise InputError(
                f"pictures of {sides} pixels in patches of {config.patch} are no smaller by {self.amount}."
            )

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        config, (down, across) = weights.config, self.grid(weights)
        side = [config.patch * count for count in (down, across)]
        other = weights.adapted(image=side[0] if down == across else tuple(side))
        sizes = [" x ".join(map(str, one.size)) for one in (config, other.config)]
        return Made(other, f"pictures of {sizes[0]} -> {sizes[1]} pixels, {config.patches} -> {other.config.patches}")


@ways.add("patches")
class Patches(Change):
    """Larger patches of the same pictures: with sides twice as long there are a quarter of the tokens."""

    about = "larger patches, so that there are fewer tokens"
    usual = 2

    @classmethod
    def checked(cls, amount: float | str) -> float:
        number = as_number(amount)
        if number is None or number != int(number) or number < 2:  # noqa: PLR2004
            raise InputError(f"{amount!r} is no amount for patches; give how many times as long their sides get: 2.")
        return int(number)

    def milder(self, weights: Weights) -> None:  # noqa: ARG002
        return None

    def check(self, weights: Weights) -> None:
        config = weights.config
        if weights.family != "vit" or config.stem != "patch":
            raise InputError(f"{weights.path!r} is no ViT of plain patches, so that they cannot be larger.")
        patch = int(self.amount) * config.patch
        if any(side % patch for side in config.size) or min(config.size) // patch < 2:  # noqa: PLR2004
            sides = " x ".join(map(str, config.size))
            raise InputError(f"patches of {patch} pixels do not fit pictures of {sides}.")

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        config, patch = weights.config, int(self.amount) * weights.config.patch
        other = weights.adapted(patch=patch)
        return Made(other, f"patches of {config.patch} -> {patch} pixels, {config.patches} -> {other.config.patches}")


@ways.add("layers")
class Layers(Change):
    """Layers left out: those without which the loss grows least."""

    about = "whole layers left out, those without which the loss grows least"
    cuts = True
    usual = 0.25

    @classmethod
    def checked(cls, amount: float | str) -> float:
        return count_or_share(cls, amount, "how many go, or which fraction, such as 0.25")

    def count(self, depth: int) -> int:
        """How many go."""
        many = int(self.fraction) if self.fraction >= 1 else max(1, round(self.fraction * depth))
        if many >= depth:
            raise InputError(f"{many} layers cannot go, since there are {depth}; one stays.")
        return many

    def milder(self, weights: Weights) -> "Layers | None":
        _, depth = layered(weights)
        half = self.count(depth) // 2
        return Layers(half) if half else None

    def check(self, weights: Weights) -> None:
        self.count(layered(weights)[1])

    def make(self, weights: Weights, shop: Workshop) -> Made:
        stack, depth = layered(weights)
        many = self.count(depth)
        model = weights.model().float()
        grown = layers_left_out(model, shop.loss, shop.batches(model, passes=len(model.blocks)), shop.progress)
        gone = sorted(grown[-depth:].argsort()[:many].tolist())  # the decoder's come last
        stay = [layer for layer in range(depth) if layer not in gone]
        named = ", ".join(str(one + 1) for one in gone)
        other = shop.followed(without_layers(weights, gone), weights, stay)
        return Made(other, f"{depth} -> {depth - many} layers of the {stack}, without {named}", stay=stay)


class Parts(Change):
    """Parts of each layer cut out, another number in each: those that are missed least."""

    cuts = True
    choices: ClassVar[tuple[str, ...]] = ("gradient",)  # by which else than by least squares they may be chosen

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        fraction, comma, how = str(amount).partition(",")
        number = super().checked(fraction)
        if comma and how.strip() not in cls.choices:
            known = ", ".join(cls.choices)
            raise InputError(
                f"{how.strip()!r} is no way to choose {cls.name()}; leave it out, or name one of: {known}."
            )
        return f"{number:g},{how.strip()}" if comma else number

    @property
    def fraction(self) -> float:
        return float(str(self.amount).partition(",")[0])

    @property
    def how(self) -> str:
        """By what they are chosen; nothing: by least squares."""
        return str(self.amount).partition(",")[2]

    def milder(self, weights: Weights) -> "Parts":  # noqa: ARG002
        return type(self)(",".join(filter(None, (f"{round(self.fraction / 2, 4):g}", self.how))))

    def scores(self, model: Model, maps: Sequence[str | None], wide: int, shop: Workshop) -> list[Tensor]:
        """How much each part is missed where the others are fitted to do without it; there may be none in a layer."""
        there = {path: wide for path in maps if path is not None}
        scores = missed(model, there, shop.loss, shop.batches(model, passes=3), shop.progress)
        return [torch.zeros(0) if path is None else scores[path] for path in maps]


@ways.add("heads")
class Heads(Parts):
    """Heads cut out."""

    about = "heads cut out, those that are missed least, another number in each layer"
    usual = 0.25
    choices = ("gradient", "ablation")

    def check(self, weights: Weights) -> None:
        checked(weights)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        config = checked(weights)
        model = weights.model().float()
        count = sum(heads for heads, _ in config.layers)
        if self.how == "ablation":
            scores = heads_left_out(model, shop.loss, shop.batches(model, passes=count), shop.progress)
        elif self.how == "gradient":
            importance, _ = by_gradient(model, shop.loss, shop.batches(model, passes=3))
            scores = [one / one.norm().clamp(min=1e-30) for one in importance]  # as Michel et al. do
        else:
            wide = config.rank or config.head or config.width // config.most_heads
            maps = [_path(layer, "attention") if heads else None for layer, (heads, _) in enumerate(config.layers)]
            scores = self.scores(model, maps, wide, shop)
        stay = _stay(scores, round(self.fraction * count), even=1)
        left = [len(one) for one in stay]
        note = f"{count} -> {sum(left)} heads ({' '.join(map(str, left))})"
        return Made(shop.followed(cut(weights, Kept(heads=stay)), weights), note)


@ways.add("neurons")
class Neurons(Parts):
    """Neurons of the feed-forward cut out."""

    about = "neurons of the feed-forward cut out, those that are missed least"
    usual = 0.5

    def check(self, weights: Weights) -> None:
        checked(weights, heads=False)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        config = checked(weights, heads=False)
        model = weights.model().float()
        count = sum(hidden for _, hidden in config.layers)
        if self.how == "gradient":
            _, scores = by_gradient(model, shop.loss, shop.batches(model, passes=3))
        else:
            maps = [_path(layer, "feed_forward") if some else None for layer, (_, some) in enumerate(config.layers)]
            scores = self.scores(model, maps, 1, shop)
        stay = _stay(scores, round(self.fraction * count), even=EVEN)
        left = [len(one) for one in stay]
        note = f"{count:,} -> {sum(left):,} neurons ({' '.join(map(str, left))})"
        return Made(shop.followed(cut(weights, Kept(neurons=stay)), weights), note)


def _path(layer: int, sublayer: str) -> str:
    """The last map of a sublayer."""
    return f"{STACK}.{layer}.{sublayer}.f.out"


def _stay(scores: list[Tensor], gone: int, even: int) -> list[list[int]]:
    """What stays of each layer, so many going over all layers: those that matter least, some of each layer staying.

    Numbers of what stays are rounded to multiples of ``even``, where there are as many.
    """
    every = torch.cat(scores)
    order = every.argsort()
    layer = torch.cat([torch.full((len(one),), number) for number, one in enumerate(scores)])
    index = torch.cat([torch.arange(len(one)) for one in scores])
    left = [len(one) for one in scores]
    least = [min(even, len(one)) for one in scores]
    out: list[set[int]] = [set() for _ in scores]
    for one in order.tolist():
        if gone <= 0:
            break
        number = int(layer[one])
        if left[number] > least[number]:
            out[number].add(int(index[one]))
            left[number] -= 1
            gone -= 1
    stay = []
    for number, one in enumerate(scores):
        count = max(least[number], round(left[number] / even) * even) if even > 1 else left[number]
        stay.append(sorted(one.argsort(descending=True)[: min(len(one), count)].tolist()))
    return stay
