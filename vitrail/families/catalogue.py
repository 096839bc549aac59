"""The shapes that have a name, and what each costs; without torch, so that a list of them is quick."""

from dataclasses import dataclass
from typing import Any

from vitrail.config import Config
from vitrail.registry import Registry


@dataclass(frozen=True)
class Cost:
    """Numbers learned, and multiply-adds to answer one example of the model's own size."""

    parameters: int
    multiply_adds: int

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.parameters + other.parameters, self.multiply_adds + other.multiply_adds)


class Shape(Config):
    """The configuration of a family's models."""

    def cost(self) -> Cost | None:
        """What such a model costs, by a formula; None where there is none, and the model itself has to be counted."""
        return None

    def answering(self) -> int | None:
        """About how many bytes are in memory at a time for one example that is answered; None where nothing says."""
        return None

    def parameters(self) -> int:
        """How many numbers such a model learns, at least."""
        return 0


presets: Registry[tuple[type[Shape], dict[str, Any]]] = Registry(
    "model",
    homes=(
        "vitrail.families.vit.presets",
        "vitrail.families.cnn.presets",
        "vitrail.families.seq2seq.presets",
        "vitrail.families.gpt.presets",
        "vitrail.families.bert.presets",
    ),
)


def models(pattern: str = "*") -> list[str]:
    """The names that ``build`` knows, those that match a pattern such as ``vit-b*``."""
    return presets.matching(pattern)


def shape(name: str) -> Shape:
    """A preset as it is, every field of which is known to be right: what checks them needs torch."""
    kind, fields = presets[name]
    return kind.model_construct(**fields)


def price(name: str) -> Cost:
    """What a preset costs."""
    cost = shape(name).cost()
    if cost is None:
        from vitrail.families.costs import cost as counted  # noqa: PLC0415
        from vitrail.families.model import configure  # noqa: PLC0415

        return counted(configure(name))
    return cost
