"""Weights in hand: a model's configuration and tensors, with what is known about them."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vitrail.core.positions import Computed
from vitrail.errors import InputError, unknown
from vitrail.families import Model, families
from vitrail.weights.adapt import Normalisation, adapt, fresh_head
from vitrail.weights.files import AGAIN, listed

LARGEST = 1_000_000  # of any number in a configuration
COMPUTED = 2**28  # bytes that positions may take which no tensor holds


@dataclass(frozen=True, eq=False)
class Weights:
    """A model's configuration and tensors, and what is known about them."""

    path: str
    format: str
    family: str
    config: Any
    state: dict[str, Tensor]
    normalise: Normalisation | None = None
    labels: tuple[str, ...] | None = None
    notes: list[str] = field(default_factory=list)  # what was not taken as it was
    assumed: str = ""  # how pictures are normalised, where nothing says

    @property
    def remarks(self) -> list[str]:
        """All that someone should know who gives it pictures."""
        return [*self.notes, *([self.assumed] if self.assumed else [])]

    def adapted(self, *, head: str = "keep", **changes: Any) -> "Weights":
        """For another size of pictures, other channels, patches or classes; with a fresh head, if asked for."""
        if head not in ("keep", "fresh"):
            raise unknown("head", head, ["keep", "fresh"])
        made = adapt(self.config, self.state, self.normalise, **changes)
        config, said, labels = made.config, made.said, self.labels
        same = (config.classes, config.prelogits) == (self.config.classes, self.config.prelogits)
        if head == "fresh" and same and config.classes:
            fresh_head(config, made.state)
            said.append(f"the head for {config.classes} classes replaced by a fresh one")
        if head == "fresh" or config.classes != self.config.classes:
            labels = None
        return replace(
            self,
            config=config,
            state=made.state,
            normalise=made.normalise,
            labels=labels,
            notes=[*self.notes, *said],
        )

    def model(self) -> Model:
        """The model, in evaluation mode; the tensors are its own from now on."""
        model = self._empty()
        expected = model.state_dict()
        both = expected.keys() & self.state.keys()
        kinds = {
            "lacks": expected.keys() - self.state.keys(),
            "has, with no place in the model,": self.state.keys() - expected.keys(),
            "has of another shape": {name for name in both if expected[name].shape != self.state[name].shape},
            "has of another type": {name for name in both if not _alike(expected[name], self.state[name])},
        }
        for what, names in kinds.items():
            if names:
                raise InputError(f"{self.path!r} {what} {listed(sorted(names))}; {AGAIN}.")
        model.load_state_dict(self.state, assign=True)
        for module in model.modules():
            if isinstance(module, Computed):
                module.refresh()
                module.embedding = module.embedding.to(next(model.parameters()).dtype)
        for parameter in model.parameters():
            parameter.requires_grad_()
        return model.eval()

    def _empty(self) -> Model:
        """The model without memory."""
        try:
            with torch.device("meta"):
                return families[self.family](self.config)
        except (RuntimeError, OverflowError, TypeError, MemoryError):  # sizes that no machine could count
            raise InputError(f"{self.path!r} describes a model that cannot be, with sizes beyond all bounds.") from None


def check_bounds(path: str, fields: dict[str, Any], tensors: int) -> None:
    """A configuration from a stranger does not decide how much is built: its numbers are as a model's can be."""
    numbers = {
        name: number
        for name, value in fields.items()
        for number in (value if isinstance(value, list | tuple) else [value])
        if isinstance(number, int) and number > LARGEST
    }
    if numbers:
        name, number = next(iter(numbers.items()))
        raise InputError(f"{path!r} describes a model with {name}={number}, which is beyond all bounds.")
    depth = fields.get("depth")
    if isinstance(depth, int) and depth > tensors:
        raise InputError(f"{path!r} describes {depth} layers, and has {tensors} tensors; take both from one model.")


def check_positions(path: str, config: Any) -> None:
    """Positions that are computed take memory which no file has given."""
    if config.position in ("sincos2d", "sinusoidal") and 4 * config.patches * config.width > COMPUTED:
        raise InputError(f"{path!r} describes pictures of {config.patches:,} patches, which is beyond all bounds.")


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.is_floating_point() == other.is_floating_point()
