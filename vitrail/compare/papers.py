"""Experiments of the papers: positions, norms, convolutions and attention, generative and discriminative."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from math import log
from typing import Any

from vitrail.compare.experiments import Arm, Base, Experiment, experiments, over_batches
from vitrail.families import Cost, configure, cost_of

PICTURE = ("image", "channels", "classes")
# Convolutions before the patches have norms of their own, and tell places by the zeros around a picture.
PATCHES = {"model.stem": "patch"}


@experiments.add("positions")
def positions(base: Base) -> Experiment:
    """How a ViT is told where patches are."""
    del base
    names = {
        "none": "none",
        "1-D learned": "learned",
        "2-D learned": "learned2d",
        "relative": "relative",
        "2-D sin-cos": "sincos2d",
        "rotary": "rotary",
    }
    return Experiment(
        "positions",
        "Does it matter how a ViT is told where its patches are?",
        [Arm(name, {"model.position": value}) for name, value in names.items()],
        "Dosovitskiy et al. 2021, table 8 (ViT-B/16, ImageNet 5-shot linear): none .61382, 1-D .64206, 2-D .64001, "
        "relative .64032: some position matters, which one hardly does.",
        shared=PATCHES,
        published={"none": 0.61382, "1-D learned": 0.64206, "2-D learned": 0.64001, "relative": 0.64032},
        positions=True,
    )


@experiments.add("norms")
def norms(base: Base) -> Experiment:
    """LayerNorm and BatchNorm, before and after each part, by the size of batches."""
    arms = [
        Arm(f"{name}Norm, {order}", {"model.norm": norm, "model.order": order})
        for name, norm in (("Layer", "layer"), ("Batch", "batch"))
        for order in ("pre", "post")
    ]
    most = max(8, base.pictures // 4)
    return Experiment(
        "norms",
        "Does BatchNorm need large batches, where LayerNorm does not?",
        arms,
        "Ba et al. 2016: LayerNorm computes the same in training and in use, whatever the batch; Wu and He 2018, "
        "figure 1: BatchNorm loses as batches get small, for its statistics are then those of few examples.",
        over_batches([size for size in (2, 4, 8, 16, 32, 64, 128, 256) if size <= most], 1e-3, 64),
        {**PATCHES, "optim.name": "adamw", "train.ema": 0.0},
        ("batch_statistics",),
        followed=6,
    )


@experiments.add("models")
def models(base: Base) -> Experiment:
    """Convolutions, attention, and both, at equal parameters and at equal multiply-adds."""
    config = base.config
    fields = {name: getattr(config, name) for name in PICTURE}
    small = max(config.size) <= 128  # noqa: PLR2004
    arms = [Arm("ViT", PATCHES)]
    plain = config.model_copy(update={"stem": "patch"})
    own = plain.cost()
    shape = {name: value for name, value in config.model_dump(mode="json").items() if name not in ("head", "factors")}
    stem = _stem(config.patch)
    kinds: dict[str, tuple[str, Any]] = {
        "residual CNN": ("cnn", lambda width: _cnn(fields, width, small=small, residual=True)),
        "plain CNN": ("cnn", lambda width: _cnn(fields, width, small=small, residual=False)),
        "hybrid": ("vit", lambda width: _vit(shape, width, stem=stem)),
        "visual tokens": ("vit", lambda width: _vit(shape, width, stem=stem, tokens=16)),
    }
    for name, (family, make) in kinds.items():
        if family == "vit" and stem is None:  # patches that no convolutions are for
            continue
        sizes = range(4, 257, 2) if family == "cnn" else range(8, 513, 8)
        shapes = matched(family, own, list(map(make, sizes)))
        both = len({repr(shape) for shape in shapes.values()}) == 1
        named = {"as many of both": next(iter(shapes.values()))} if both else shapes
        arms += [Arm(f"{name}, {words}", _named(family, shape)) for words, shape in named.items()]
    return Experiment(
        "models",
        "Which learns more from how many pictures: convolutions, attention, or both?",
        arms,
        "Dosovitskiy et al. 2021, figures 3 to 5: ResNets are better with few pictures, ViTs with many; hybrids are "
        "ahead at small budgets, which vanishes for large models. Wu et al. 2020: visual tokens in place of "
        "the last convolutions are better at fewer multiply-adds.",
    )


def matched(family: str, wanted: Cost, shapes: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of shapes of a family, each larger than the one before it, those that cost as much as another model: with the
    nearest number of parameters, and of multiply-adds, each by its ratio.
    """

    @cache
    def cost(number: int) -> Cost:
        return cost_of(configure(family, **shapes[number]))

    def nearest(by: Callable[[Cost], int]) -> dict[str, Any]:
        above = bisect_left(range(len(shapes)), by(wanted), key=lambda number: by(cost(number)))
        near = {max(0, above - 1), min(above, len(shapes) - 1)}
        return shapes[min(near, key=lambda number: abs(log(by(cost(number)) / by(wanted))))]

    return {
        "as many parameters": nearest(lambda one: one.parameters),
        "as many multiply-adds": nearest(lambda one: one.multiply_adds),
    }


def _stem(patch: int) -> str | None:
    """Convolutions that patches of a size can be made of; None where there are none."""
    if patch % 4 == 0:
        return "resnet-small"
    return "early" if patch == 2 else None  # noqa: PLR2004


def _cnn(fields: dict[str, Any], width: int, *, small: bool, residual: bool) -> dict[str, Any]:
    root, units = ("small", [2, 2, 2]) if small else ("large", [2, 2, 2, 2])
    return {**fields, "width": width, "root": root, "units": units, "residual": residual}


def _vit(shape: dict[str, Any], width: int, **other: Any) -> dict[str, Any]:
    heads = next(heads for heads in range(max(1, width // 32), 0, -1) if width % heads == 0)
    return {**shape, "width": width, "heads": heads, "hidden": 2 * width, **other}


def _named(family: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a recipe for a model, whose pictures' classes are the data's to say."""
    given = {f"model.{name}": value for name, value in fields.items() if name != "classes" and value is not None}
    other = {"optim.name": "adamw", "optim.lr": 1e-2} if family == "cnn" else {}
    return {"model.name": family, **given, **other}


@experiments.add("generative")
def generative(base: Base) -> Experiment:
    """Gaussians, logistic regression and a ViT, by the amount of data."""
    still = {"augment.shift": 0.0, "augment.rotate": 0.0, "augment.zoom": 0.0, "augment.flip": 0.0}
    still |= {"augment.mixup": 0.0, "augment.cutmix": 0.0, "augment.erase": 0.0, "train.smoothing": 0.0}
    config = base.config
    side = min(32, *config.size)
    gaussian = {"model.name": "gaussian", "model.image": side, "model.channels": 1}
    linear = {"model.name": "linear", "model.image": side, "model.channels": 1}
    return Experiment(
        "generative",
        "Model the classes, or what tells them apart: which is better with how many pictures, and which knows what it "
        "does not know?",
        [
            Arm("Gaussians, one covariance", {**gaussian, "model.covariance": "shared"}),
            Arm("Gaussians, a covariance each", {**gaussian, "model.covariance": "own"}),
            Arm("Gaussians, variances each", {**gaussian, "model.covariance": "diagonal"}),
            Arm("logistic regression", {**linear, "optim.name": "adamw", "optim.lr": 3e-3, **still}),
            Arm("ViT", {}),
        ],
        "Ng and Jordan 2002: the generative model reaches its own, higher error with fewer examples; the "
        "discriminative one is better in the end.",
        measures=("calibration", "no_class"),
    )
