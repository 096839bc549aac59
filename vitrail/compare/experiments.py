"""The experiments that have a name: what is set beside what, and what a paper said of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitrail.config import separated, toml_value
from vitrail.errors import InputError
from vitrail.registry import Registry


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared: what is set for it."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)  # of the recipe, as "model.depth": 4
    against: str = ""  # the arm that it is set against, by its name; the first where it says none, or that is not there


@dataclass(frozen=True)
class Axis:
    """What else is varied: a field, and its values; or the fraction of the data."""

    name: str
    values: Sequence[float]
    fields: Callable[[float], Mapping[str, Any]]


@dataclass(frozen=True)
class Experiment:
    """Arms, and over what they are compared."""

    name: str
    question: str
    arms: Sequence[Arm]
    said: str = ""  # what a paper found
    notes: Sequence[str] = ()  # what is not compared, and why
    axis: Axis | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)  # what is set for all arms
    measures: Sequence[str] = ()  # names of more numbers, in ``vitrail.compare.measures``
    followed: int = 0  # at how many moments of a training they are had too
    published: Mapping[str, float] = field(default_factory=dict)  # by the names of arms
    positions: bool = False  # whether those of each arm are drawn
    shaped: bool = True  # whether arms have shapes of their own, for which what is set of a model is a beginning


@dataclass(frozen=True)
class Base:
    """What an experiment starts from: the configuration that the data has chosen for a ViT."""

    config: Any
    pictures: int  # to train on


experiments: Registry[Callable[[Base], Experiment]] = Registry(
    "experiment", homes=("vitrail.compare.papers", "vitrail.compare.parts")
)


ELSEWHERE = {"train.seed": "--seeds", "train.minutes": "--minutes"}  # fields that a comparison has options for


def over_batches(values: Sequence[int], lr: float, at: int) -> Axis:
    """Batches of several sizes, with a learning rate for AdamW that grows with the root of the batch."""

    def fields(batch: float) -> dict[str, Any]:
        return {"train.batch": int(batch), "optim.lr": float(f"{lr * (batch / at) ** 0.5:.3g}")}

    return Axis("batch", values, fields)


def over_fractions(values: Sequence[float], usual: float = 1.0) -> Axis:
    """Parts of the pictures to train on; where none are asked for, the one that the recipe uses."""

    def fields(fraction: float) -> dict[str, Any]:
        return {"data.use": fraction} if fraction != usual else {}

    return Axis("fraction of the data", list(values) or [usual], fields)


def varied(assignments: Sequence[str]) -> list[Arm]:
    """Arms from fields and their values, as someone types them: model.depth=2,4,6; of several, all together."""
    arms = [Arm("", {})]
    for text in assignments:
        name, equals, values = text.partition("=")
        if name.strip() in arms[0].fields:
            raise InputError(f"{name.strip()} is varied twice; give all its values at once.")
        each = list(dict.fromkeys(separated(values)))
        if not equals or "." not in name or len(each) < 2:  # noqa: PLR2004
            raise InputError(f"{text!r} varies nothing; give a field and two values or more: model.depth=2,4,6.")
        if name.strip() in ELSEWHERE:
            raise InputError(f"{name.strip()} is what {ELSEWHERE[name.strip()]} is for; leave it out of --vary.")
        arms = [
            Arm(f"{arm.name}, {name}={value}".lstrip(", "), {**arm.fields, name.strip(): toml_value(value)})
            for arm in arms
            for value in each
        ]
    return arms
