"""What every family's models keep to, and the families and shapes by their names."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from vitrail.config import Config
from vitrail.core import Block
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError, unknown
from vitrail.families.catalogue import Shape, presets
from vitrail.machine import available_memory, check_room
from vitrail.registry import Registry

State: TypeAlias = dict[str, Tensor]
ROOM = 2**30  # bytes at most for examples that are answered together


class Model(nn.Module, ABC):
    """answer(stream(inputs)): what comes in becomes a residual stream, which blocks write to and an answer is read off.

    A model is called as ``model(inputs)``, or as ``model(inputs, shortest=True)`` by who wants its answer and will not
    look inside: the same to rounding, sooner where the family knows how.
    """

    Config: ClassVar[type[Config]]
    task: ClassVar[str] = ""  # what models of this family are for, where a run does not say
    config: Any  # the frozen configuration that built it, of the type Config

    def forward(self, inputs: Any, *, shortest: bool = False) -> Tensor:  # noqa: ARG002
        """Inputs to answers, such as the logits of each."""
        return self.answer(self.stream(inputs))

    @abstractmethod
    def stream(self, inputs: Any) -> Tensor:
        """Inputs to the residual stream after the last block, (b n w)."""

    @abstractmethod
    def answer(self, stream: Tensor) -> Tensor:
        """The residual stream (b n w) to answers; also of a stream from between two blocks."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Block]:
        """All of them, from the first to the last."""

    @abstractmethod
    def example(self) -> Any:
        """An input of one example, of the model's own size: what its cost is counted on."""

    def summary(self) -> str:
        """Its shape in one line."""
        return ", ".join(f"{name} {value}" for name, value in self.config.model_dump().items())

    @classmethod
    def task_of(cls, config: Any) -> str:  # noqa: ARG003
        """What a model of some configuration is for, where a run does not say."""
        return cls.task

    @classmethod
    def adapt(
        cls, config: Any, state: State, normalise: Normalise | None = None, *, head: str = "keep", **changes: Any
    ) -> "Adapted":
        """Weights for other inputs or answers than they were made for; a family that knows how says so."""
        same = {"image": getattr(config, "size", None)}  # which one number stands for too
        wanted = [
            name
            for name, value in changes.items()
            if value is not None and value not in (getattr(config, name, None), same.get(name))
        ]
        if wanted or head != "keep":
            family = family_of(config)
            raise InputError(f"weights of a {family} are used as they are; leave {(wanted or ['head'])[0]} out.")
        return Adapted(config, state, normalise)

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse a stranger's configuration that would take memory which no tensor of a file has given."""


@dataclass(frozen=True)
class Adapted:
    """Weights for other inputs or answers, and what was done to them."""

    config: Any
    state: State
    normalise: Normalise | None = None
    notes: list[str] = field(default_factory=list)
    fresh: bool = False  # whether the head is a new one, whose classes have no names yet


families: Registry[type[Model]] = Registry(
    "family",
    homes=(
        "vitrail.families.vit.model",
        "vitrail.families.cnn.model",
        "vitrail.families.gaussian.model",
        "vitrail.families.linear.model",
        "vitrail.families.seq2seq.model",
        "vitrail.families.gpt.model",
        "vitrail.families.bert.model",
    ),
)


def known_as(name: str) -> tuple[type[Config], dict[str, Any]]:
    """The configuration that a preset or a family has, and the fields that it gives."""
    if str(name).lower() not in {*presets, *families}:
        raise unknown("model", name, [*presets, *families])
    return presets[name.lower()] if name.lower() in presets else (families[name.lower()].Config, {})


def configure(name: str, **fields: Any) -> Config:
    """The configuration of a preset (``vit-b/16``) or of a family (``vit``) with some fields given."""
    kind, preset = known_as(name)
    if isinstance(fields.get("width"), int) and "hidden" in preset:  # which keeps its proportion to the width
        preset = {**preset, "hidden": preset["hidden"] * fields["width"] // preset["width"]}
    return kind(**{**preset, **fields})


def build(name: str, **fields: Any) -> Model:
    """A model with fresh weights: ``build("vit-b/16", classes=10)``, ``build("vit", image=28, patch=4, ...)``."""
    config = configure(name, **fields)
    check_memory(config)
    return families[family_of(config)](config)


def at_once(config: Any, most: int) -> int:
    """How many examples may be answered together: so many at most, within a gigabyte, and an eighth of what is free."""
    free = available_memory()
    room = ROOM if free is None else min(ROOM, free // 8)
    each = config.answering() if isinstance(config, Shape) else None
    return most if each is None else max(1, min(most, room // max(1, each)))


def empty(config: Any) -> Model:
    """A model without memory, that has shapes and no numbers."""
    with torch.device("meta"):
        return families[family_of(config)](config)


def check_memory(config: Any, bytes_each: int = 4) -> None:
    """Refuse a model that this machine has no memory for, with so many bytes for each of its numbers."""
    if isinstance(config, Shape) and torch.get_default_device().type != "meta":
        count = config.parameters()
        check_room(f"the {count:,} parameters of the model", bytes_each * count, "choose a smaller one")


def family_of(config: Any) -> str:
    """The name of the family that a configuration belongs to."""
    names = [name for name, family in families.items() if type(config) is family.Config]
    if not names:
        raise InputError(f"{type(config).__name__} is the configuration of no family; add its model to families.")
    return names[0]
