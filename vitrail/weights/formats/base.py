"""What every format keeps to."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.registry import Registry
from vitrail.weights.files import Tensors
from vitrail.weights.weights import Usage, Weights

formats: Registry["type[Format]"] = Registry("format")


@dataclass(frozen=True)
class Request:
    """How a file is to be read: what the user says of it, what it is wanted for, and whether all of it must fit."""

    strict: bool = True
    stated: dict[str, Any] = field(default_factory=dict)  # fields of the model that no tensor says
    wanted: dict[str, Any] = field(default_factory=dict)  # fields that it will be adapted to
    normalise: Normalise | None = None

    def check(self, path: str, config: Any) -> None:
        """What the user says of a model whose configuration is known has to be true."""
        for name, value in self.stated.items():
            if not hasattr(config, name):
                raise InputError(f"{path!r} is of a model without {name}; leave {name}={value!r} out.")
            known = getattr(config, name)
            if known not in (None, value):
                raise InputError(f"{path!r} has {name}={known!r}, not {value!r}; leave it out.")


class Format(ABC):
    """One library's way to keep the models of one family. Several formats may share a name, as ``hf`` does."""

    name: ClassVar[str]
    family: ClassVar[str]

    @abstractmethod
    def recognises(self, tensors: Tensors) -> bool:
        """Whether a file is of this format."""

    @abstractmethod
    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:
        """The tensors under our names, with the configuration read off them, or off what ``save`` wrote about them."""

    def suits(self, config: Any) -> bool:  # noqa: ARG002
        """Whether a model is meant for this one of the formats of its name."""
        return True

    @abstractmethod
    def write(self, path: Path, config: Any, state: dict[str, Tensor], usage: Usage) -> None:
        """Write the tensors under the library's names, or say what has no place there."""
