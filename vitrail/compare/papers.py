"""Experiments of the papers: positions, norms, convolutions and attention, generative and discriminative."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import log
from typing import Any

from vitrail.compare.experiments import Arm, Base, Experiment, experiments, over_batches
from vitrail.families import Cost, configure, cost_of
from vitrail.tasks.pictures.recipe import Augment

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
        Arm(f"{name}Norm, {order}", {"model.norm": norm, "model.order": order}, f"LayerNorm, {order}")
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
        axis=over_batches([size for size in (2, 4, 8, 16, 32, 64, 128, 256) if size <= most], 3e-3, 64),
        # AdamW's own decay, and statistics of whole batches, which no average of weights hides.
        shared={**PATCHES, "optim.name": "adamw", "optim.decay": 0.05, "train.ema": 0.0, "train.accumulate": 1},
        measures=("batch_statistics",),
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
    grid = plain.grid[0] * plain.grid[1]
    stem = _stem(config.patch)
    kinds: dict[str, tuple[str, Any]] = {
        "residual CNN": ("cnn", lambda width: _cnn(fields, width, small=small, residual=True)),
        "plain CNN": ("cnn", lambda width: _cnn(fields, width, small=small, residual=False)),
        "hybrid": ("vit", lambda width: _vit(config, width, stem=stem)),
        "visual tokens": ("vit", lambda width: _vit(config, width, stem=stem, tokens=max(2, min(16, grid // 4)))),
    }
    notes = []
    for name, (family, make) in kinds.items():
        if family == "vit" and stem is None:
            notes.append(f"No convolutions are known for patches of {config.patch} pixels: there is no {name}.")
            continue
        shapes = matched(family, own, list(map(make, WIDTHS[family])))
        notes += [f"No {name} has {words} as the ViT." for words in AS_MANY if words not in shapes]
        both = len(shapes) == len(AS_MANY) and len({repr(shape) for shape in shapes.values()}) == 1
        named = {"as many of both": next(iter(shapes.values()))} if both else shapes
        arms += [Arm(f"{name}, {words}", _named(family, shape)) for words, shape in named.items()]
    return Experiment(
        "models",
        "Which learns more from how many pictures: convolutions, attention, or both?",
        arms,
        "Dosovitskiy et al. 2021, figures 3 to 5: ResNets are better with few pictures, ViTs with many; hybrids are "
        "ahead at small budgets, which vanishes for large models. Wu et al. 2020: visual tokens in place of "
        "the last convolutions are better at fewer multiply-adds.",
        notes=notes,
    )


AS_MANY: dict[str, Callable[[Cost], int]] = {
    "as many parameters": lambda cost: cost.parameters,
    "as many multiply-adds": lambda cost: cost.multiply_adds,
}
NEAR = 1.2  # times as much, or as little, that still counts as as much
WIDTHS = {"cnn": range(1, 4097), "vit": range(4, 4097, 4)}  # of models that may cost as much as another


def matched(family: str, wanted: Cost, shapes: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of shapes of a family, each larger than the one before it, those that cost as much as another model: with the
    nearest number of parameters, and of multiply-adds, each by its ratio; where none is near, none.
    """

    @cache
    def cost(number: int) -> Cost:
        return cost_of(configure(family, **shapes[number]))

    def ratio(by: Callable[[Cost], int], number: int) -> float:
        return log(by(cost(number)) / by(wanted))

    nearest = {words: _nearest(len(shapes), partial(ratio, by)) for words, by in AS_MANY.items()}
    return {words: shapes[number] for words, (number, apart) in nearest.items() if abs(apart) <= log(NEAR)}


def _nearest(count: int, apart: Callable[[int], float]) -> tuple[int, float]:
    """Of so many numbers that which is nearest to nothing, and how far it is: ``apart`` grows with the number."""
    above = bisect_left(range(count), 0.0, key=apart)
    number = min({max(0, above - 1), min(above, count - 1)}, key=lambda one: abs(apart(one)))
    return number, apart(number)


def _stem(patch: int) -> str | None:
    """Convolutions that patches of a size can be made of; None where there are none."""
    if patch % 4 == 0:
        return "resnet-small"
    return "early" if patch == 2 else None  # noqa: PLR2004


def _cnn(fields: dict[str, Any], width: int, *, small: bool, residual: bool) -> dict[str, Any]:
    root, units = ("small", [2, 2, 2]) if small else ("large", [2, 2, 2, 2])
    return {**fields, "width": width, "root": root, "units": units, "residual": residual}


def _vit(config: Any, width: int, **other: Any) -> dict[str, Any]:
    """A ViT of another width, whose heads and hidden layers are to it as they are in another."""
    shape = {name: value for name, value in config.model_dump(mode="json").items() if name not in ("head", "factors")}
    (heads, hidden), *_ = config.layers
    wanted = heads * width / config.width
    divisors = [count for count in range(1, width + 1) if width % count == 0]
    near = min(divisors, key=lambda count: abs(log(count / wanted)))
    return {**shape, "width": width, "heads": near, "hidden": round(hidden * width / config.width), **other}


def _named(family: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a recipe for a model, whose pictures' classes are the data's to say."""
    given = {f"model.{name}": value for name, value in fields.items() if name != "classes" and value is not None}
    other = {"optim.name": "adamw", "optim.lr": 1e-2} if family == "cnn" else {}
    return {"model.name": family, **given, **other}


@experiments.add("generative")
def generative(base: Base) -> Experiment:
    """Gaussians, logistic regression and a ViT, by the amount of data."""
    step = base.config.step
    shown = {"model.image": max(1, min(32, *base.config.size) // step) * step, "model.channels": 1}
    still = {f"augment.{name}": 0.0 for name in Augment.model_fields} | {"train.smoothing": 0.0}
    gaussian = {"model.name": "gaussian", **shown}
    return Experiment(
        "generative",
        "Model the classes, or what tells them apart: which is better with how many pictures, and which knows what it "
        "does not know?",
        [
            Arm("Gaussians, one covariance", {**gaussian, "model.covariance": "shared"}),
            Arm("Gaussians, a covariance each", {**gaussian, "model.covariance": "own"}),
            Arm("Gaussians, variances each", {**gaussian, "model.covariance": "diagonal"}),
            Arm(
                "logistic regression",
                {"model.name": "linear", **shown, **still, "optim.name": "adamw", "optim.lr": 3e-3},
            ),
            Arm("ViT", {**shown, **still}),
            Arm("ViT, augmented", shown),
        ],
        "Ng and Jordan 2002: the generative model reaches its own, higher error with fewer examples; the "
        "discriminative one is better in the end.",
        measures=("calibration", "no_class"),
    )
