"""What a recipe leaves out, chosen from the pictures: shown before the training, and any of it can be set."""

from dataclasses import dataclass
from typing import Any, Self

from vitrail.data import Found
from vitrail.families import ViTConfig, known_as
from vitrail.tasks.pictures.recipe import PictureRecipe
from vitrail.tasks.pictures.shapes import MEDIUM, SMALL, shape
from vitrail.tasks.task import Choice, filled
from vitrail.weights import Weights


@dataclass(frozen=True)
class Facts:
    """What is known of the pictures before they are decoded."""

    pictures: int  # to train on
    classes: int
    size: tuple[int, int]  # down and across, of the middle one
    grey: bool
    tests: int = 0  # pictures to test on
    weights: Weights | None = None  # to start from
    oblong: float = 0.0  # the fraction of the pictures that are no squares
    pace: float | None = None  # multiply-adds that the model of the weights does in a second here, where it matters
    bf16: bool = False  # whether the processor multiplies in it

    @classmethod
    def of(cls, found: Found, weights: Weights | None, pace: float | None = None, *, bf16: bool = False) -> Self:
        """Those of pictures that were found."""
        pictures, tests = sum(found.train), sum(found.held)
        return cls(pictures, len(found.names), found.sizes[1], found.grey, tests, weights, found.oblong, pace, bf16)

    def seconds(self, config: Any, side: int, pace: float) -> float:
        """That looking at all pictures takes, at a size."""
        cost = type(config)(**{**config.model_dump(), "image": side}).cost()
        return (self.pictures + self.tests) * cost.multiply_adds / pace


FEW = 10  # pictures of a class
WIDE = 192  # the width from which weights are taken to have learned enough to serve as they are
LOOK, LARGE = 224, 384  # pixels that weights are looked at with, and up to which their own size is taken
AIM = 10.0  # minutes, where none are given
TRAINED = 3.5  # times what looking at a picture takes, for an epoch with its part of the measurements
HALF = 0.6  # of that in bf16, where the processor multiplies in it (bench/precision.py)
LEAST, MOST = 5, 20  # epochs in which all layers learn (bench/README.md)
LOOKING = 0.6  # of the time, at most, for looking at pictures for a head; the rest is to read them and to fit it
CHEAP = 60.0  # seconds in which features are had that are worth having at a second size
RATE, STEPS = 3e-4, 40  # at which they do, in so many steps at least (bench/README.md)


def choose(recipe: PictureRecipe, facts: Facts) -> tuple[PictureRecipe, list[Choice]]:
    """The recipe with nothing left out, and what was chosen for it."""
    return filled(recipe, _choices(recipe, facts))


def _choices(recipe: PictureRecipe, facts: Facts) -> list[Choice]:
    if facts.weights is not None:
        return _tuning(recipe, facts, facts.weights)
    if recipe.model.get("name") == "gaussian":  # which is fitted at once
        return shape(recipe.model, facts)
    m, side = facts.pictures, min(facts.size)
    few = f"{m:,} pictures to train on"
    enough = max(15, min(150, round(300_000 / m)))
    with_muon = recipe.optim.name == "muon" or "name" not in recipe.optim.model_fields_set
    attends = issubclass(known_as(recipe.model.get("name", "vit"))[0], ViTConfig)
    with_muon = with_muon and (attends or recipe.optim.name == "muon")
    epochs = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else enough
    return [
        *shape(recipe.model, facts),
        *_optimizer(attends=attends, muon=with_muon),
        Choice("train.epochs", enough, f"{few}: about 300,000 in all, within 15 to 150"),
        Choice("train.batch", 64 if m < 10 * SMALL else 128, few),
        _evaluate(epochs, facts),
        Choice("train.smoothing", 0.1, "a model trained from scratch becomes overconfident"),
        Choice("train.ema", 0.99 if m < SMALL else 0.999, few),
        Choice("augment.flip", 0.0 if facts.grey else 0.5, _flip(facts)),
        Choice("augment.shift", 0.1 if side > 12 else 0.0, f"pictures of {side} pixels"),  # noqa: PLR2004
        Choice("augment.zoom", 0.1 if m < MEDIUM else 0.0, few),
        Choice("augment.mixup", 0.5 if m < MEDIUM else 0.0, f"{few}: mixtures teach more than they are"),
        Choice("augment.cutmix", 0.5 if m < MEDIUM else 0.0, f"{few}: mixtures teach more than they are"),
    ]


def _optimizer(*, attends: bool, muon: bool) -> list[Choice]:
    if not attends:
        return [
            Choice("optim.name", "adamw", "for convolutions it learns in fewer steps than Muon does (bench/README.md)"),
            Choice("optim.lr", 1e-2, "of a model without attention"),
        ]
    adamw = [Choice("optim.lr", 2e-3, "of AdamW, beside Muon")] if muon else []
    return [Choice("optim.name", "muon", "it learns in fewer steps than AdamW alone"), *adamw]


def _tuning(recipe: PictureRecipe, facts: Facts, weights: Weights) -> list[Choice]:
    """For weights that know much already: the head alone, or a few epochs in which the first layers change little."""
    m, each = facts.pictures, facts.pictures / max(1, facts.classes)
    few, config, given = f"{m:,} pictures to train on", weights.config, recipe.weights.model_fields_set
    about = f"about {each:.0f} of a class, width {_width(config)}"
    way = _way(recipe, facts, weights)
    start = [
        *([] if "image" in recipe.model else [Choice("model.image", *_shown(config, way))]),
        Choice("weights.freeze", way.freeze, f"{few}, {about}: {way.why}"),
        Choice("data.fit", *_fit(facts)),
    ]
    if recipe.weights.freeze if "freeze" in given else way.freeze:
        return start
    enough = way.epochs
    epochs = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else enough
    batch = recipe.train.batch if "batch" in recipe.train.model_fields_set else 32 if m < SMALL else 64
    muon = recipe.optim.name == "muon" and "name" in recipe.optim.model_fields_set
    half = _precision(facts)
    return [
        *start,
        Choice("optim.name", "adamw", "as weights from elsewhere were trained"),
        Choice("optim.lr", *_rate(config, epochs * -(-m // batch))),
        *([] if muon else [Choice("optim.layer_decay", 0.75, "the first layers need to change least")]),
        Choice("train.epochs", enough, f"{few}: {way.length}"),
        Choice("train.batch", batch, few),
        *([Choice("train.precision", half, "the processor multiplies in it, faster")] if half != "float32" else []),
        _evaluate(epochs, facts),
        Choice("train.smoothing", 0.1, "few pictures make a model overconfident"),
        Choice("train.ema", 0.99 if m < SMALL else 0.999, few),
        Choice("augment.flip", 0.0 if facts.grey else 0.5, _flip(facts)),
        Choice("augment.shift", 0.1, "pictures of one thing, a little moved"),
    ]


@dataclass(frozen=True)
class Way:
    """How weights are used: the head alone or all layers, at which size, for how many epochs, and why."""

    freeze: bool
    side: int
    epochs: int
    why: str
    look: str
    length: str


def _way(recipe: PictureRecipe, facts: Facts, weights: Weights) -> Way:
    """The largest pictures and the most epochs that the time allows: for weights that learned much, and few pictures
    of a class, the head alone.
    """
    config, each = weights.config, facts.pictures / max(1, facts.classes)
    minutes = recipe.train.minutes
    seconds, within = 60 * (minutes or AIM), f"{minutes or AIM:g} minutes"
    sides = [given] if (given := _side(recipe.model.get("image"))) else sides_for(config)
    start = recipe.weights
    asked = start.freeze if "freeze" in start.model_fields_set else None
    if asked is None and (start.head == "keep" or start.prelogits or start.layers):  # which have more to learn
        asked = False
    enough = max(5, min(150, round(60_000 / facts.pictures)))
    if facts.pace is None:  # small weights of one's own
        return Way(bool(asked), sides[0], enough, "all layers learn", "", "about 60,000 in all, within 5 to 150")
    looks = {side: facts.seconds(config, side, facts.pace) for side in sides}
    head = next((side for side, look in looks.items() if look <= LOOKING * seconds), sides[-1])
    precision = recipe.train.precision if "precision" in recipe.train.model_fields_set else _precision(facts)
    each_epoch = TRAINED * HALF if precision == "bf16" else TRAINED
    tuned = [(side, int(seconds / (each_epoch * look))) for side, look in looks.items()]
    side, epochs = next(((side, many) for side, many in tuned if many >= LEAST), (0, 0))
    if asked or (asked is None and (each <= FEW or not side)):
        why = "the head alone learns" + ("" if each <= FEW or asked else f", all layers would take more than {within}")
        return Way(True, head, 1, why, "", "")
    side, epochs = (side, epochs) if side else tuned[-1]
    epochs = max(1, min(MOST, enough, epochs))
    return Way(False, side, epochs, "all layers learn", within, f"what {within} allow, within 1 to {min(MOST, enough)}")


def _precision(facts: Facts) -> str:
    """bf16 for weights of some width, where the processor multiplies in it."""
    return "bf16" if facts.bf16 and facts.weights is not None and _width(facts.weights.config) >= WIDE else "float32"


def _width(config: Any) -> int:
    """Numbers of a token; 0 of a model that has none."""
    return getattr(config, "width", 0)


def _rate(config: Any, steps: int) -> tuple[float, str]:
    """Lower, where there are few steps to mend what the first ones spoil."""
    wide = _width(config)
    if wide < WIDE:
        return 1e-3, f"width {wide}"
    few = steps < STEPS
    return round(RATE * min(1.0, steps / STEPS), 6), f"width {wide}{f', {steps} steps' * few}"


def sides_for(config: Any) -> list[int]:
    """The sizes to look at pictures in, the best first: not above what weights were evaluated at, which for those that
    were trained at several is less than the positions they come with.
    """
    patch, own = config.step, min(config.size)
    look = own if own <= LARGE else LOOK
    return list(dict.fromkeys(max(1, round(look * part / patch)) * patch for part in (1, 3 / 4, 1 / 2)))


def _side(image: Any) -> int | None:
    return min(image) if isinstance(image, list | tuple) else image


def _shown(config: Any, way: Way) -> tuple[Any, str]:
    own, made_for = min(config.size), f"the weights were made for {config.size[0]} x {config.size[1]} pixels"
    if way.side == own:
        return (own if config.size[0] == config.size[1] else config.size), made_for
    best = sides_for(config)[0]
    serve = f"; {best} serve as well (bench/README.md)" if best < own else ""
    allowed = f"; {way.look} allow {way.side}" if way.look and way.side < best else ""
    return way.side, f"{made_for}{serve}{allowed}"


def _fit(facts: Facts) -> tuple[str, str]:
    if facts.oblong > 0.05:  # noqa: PLR2004
        return "pad", f"{facts.oblong:.0%} of the pictures are no squares: all of each is seen"
    return "crop", "the pictures are squares"


def _evaluate(epochs: int, facts: Facts) -> Choice:
    """So seldom that it takes a third of the training's time at most: a picture's test is a third of its training."""
    rounds = max(1, round(epochs / 40), round(facts.tests / facts.pictures))
    return Choice(
        "train.evaluate", rounds, f"{epochs} epoch{'s' * (epochs > 1)}, {facts.tests:,} pictures to measure on"
    )


def _flip(facts: Facts) -> str:
    if facts.grey:
        return "grey pictures, which may be of writing"
    return "colour pictures, where left and right seldom matter"
