"""Weights in hand: a model's configuration and tensors, with what is known about them."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vitrail.core.positions import Computed
from vitrail.data.decode import FITS, Fit
from vitrail.data.normalise import Normalise
from vitrail.errors import AGAIN, InputError, unknown
from vitrail.families import Model, empty, families, family_of
from vitrail.weights.files import Tensors, listed

LARGEST = 1_000_000  # of any number in a configuration


@dataclass(frozen=True, eq=False)
class Weights:
    """A model's configuration and tensors, and what is known about them."""

    path: str
    format: str
    family: str
    config: Any
    state: dict[str, Tensor]
    normalise: Normalise | None = None
    labels: tuple[str, ...] | None = None
    notes: list[str] = field(default_factory=list)  # what was not taken as it was
    assumed: str = ""  # how pictures are normalised, where nothing says
    fit: Fit = "crop"  # what of a picture is seen

    def __post_init__(self) -> None:
        classes = getattr(self.config, "classes", 0)
        if self.labels is not None and classes and len(self.labels) > classes:
            raise InputError(
                f"{self.path!r} has names of {len(self.labels)} classes, and a head for {classes}; take the names from "
                f"where the weights come from."
            )

    @property
    def remarks(self) -> list[str]:
        """All that someone should know who gives it pictures."""
        return [*self.notes, *([self.assumed] if self.assumed else [])]

    @property
    def pictures(self) -> bool:
        """Whether it is of a model that labels pictures."""
        return families[self.family].task == "pictures"

    def adapted(self, *, head: str = "keep", **changes: Any) -> "Weights":
        """For another size of pictures, other channels, patches or classes; with a fresh head, if asked for."""
        adapted = families[self.family].adapt(self.config, self.state, self.normalise, head=head, **changes)
        return replace(
            self,
            config=adapted.config,
            state=adapted.state,
            normalise=adapted.normalise,
            labels=None if adapted.fresh else self.labels,
            notes=[*self.notes, *adapted.notes],
        )

    def model(self) -> Model:
        """The model, in evaluation mode; the tensors are its own from now on."""
        model = self._empty()
        same = ties(model)
        state = {**self.state, **{name: self.state[first] for name, first in same.items() if first in self.state}}
        expected = model.state_dict()
        both = expected.keys() & state.keys()
        kinds = {
            "lacks": expected.keys() - state.keys(),
            "has, with no place in the model,": state.keys() - expected.keys(),
            "has of another shape": {name for name in both if expected[name].shape != state[name].shape},
            "has of another type": {name for name in both if not _alike(expected[name], state[name])},
        }
        for what, names in kinds.items():
            if names:
                raise InputError(f"{self.path!r} {what} {listed(sorted(names))}; {AGAIN}.")
        model.load_state_dict(state, assign=True)
        for module in model.modules():
            if isinstance(module, Computed):
                module.refresh()
                module.embedding = module.embedding.to(next(model.parameters()).dtype)
        if any(buffer.is_meta for buffer in model.buffers()):  # which no tensor holds, and only building it fills
            model = families[self.family](self.config)
            model.load_state_dict(state, assign=True)
        for name, first in same.items():
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, model.get_parameter(first))
        for parameter in model.parameters():
            parameter.requires_grad_()
        return model.eval()

    def _empty(self) -> Model:
        """The model without memory."""
        try:
            return empty(self.config)
        except (RuntimeError, OverflowError, TypeError, MemoryError):  # sizes that no machine could count
            raise InputError(f"{self.path!r} describes a model that cannot be, with sizes beyond all bounds.") from None


def ties(model: Model) -> dict[str, str]:
    """The names of parameters that are others' too, such as an output tied to an embedding, and the first of those."""
    first: dict[int, str] = {}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(p)] for name, p in every if first.setdefault(id(p), name) != name}


def checked_config(path: str, family: str, fields: dict[str, Any], tensors: Tensors) -> Any:
    """A configuration from a stranger, which does not decide how much is built: its numbers are as a model's can be."""
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
    if tensors and isinstance(depth, int) and depth > len(tensors):
        raise InputError(
            f"{path!r} describes {depth} layers, and has {len(tensors)} tensors; take both from one model."
        )
    config = families[family].Config(**fields)
    try:
        families[family].check(config)
    except InputError as error:
        raise InputError(f"{path!r} cannot be: {error}.") from None
    return config


@dataclass(frozen=True)
class Usage:
    """What a model is used with, where that is known: how pictures are normalised, and what its classes are called."""

    normalise: Normalise | None = None
    labels: tuple[str, ...] | None = None
    fit: Fit = "crop"


def described(config: Any, name: str, usage: Usage) -> dict[str, Any]:
    """What is written about a model beside its tensors, so that nothing of it has to be guessed."""
    about = {"family": family_of(config), "model": config.model_dump(mode="json")}
    if name != "vitrail":
        about = {"format": name, **about}
    if usage.normalise is not None:
        about["normalise"] = usage.normalise.table()
    if usage.fit != "crop":
        about["fit"] = usage.fit
    return about if usage.labels is None else {**about, "labels": list(usage.labels)}


def stated_normalise(about: dict[str, Any], path: str) -> Normalise | None:
    """How pictures are normalised, by what ``save`` wrote about a model."""
    table = about.get("normalise")
    stated = Normalise.of(table) if isinstance(table, dict) else None
    if table is not None and stated is None:
        raise InputError(f"{path!r} does not say how pictures are normalised in numbers: {str(table)[:80]}; mend it.")
    return stated


def stated_fit(about: dict[str, Any]) -> Fit:
    """What of a picture is seen, likewise."""
    fit = about.get("fit", "crop")
    if fit not in FITS:
        raise unknown("fit", fit, FITS)
    return fit


def stated_labels(names: Any, path: str) -> tuple[str, ...] | None:
    """What the classes are called, likewise."""
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"the labels of {path!r} are not a list of names; take them from the run again.")
    return tuple(names) or None


def normalisation(weights: Weights) -> Normalise:
    """How pictures are normalised for weights; 0.5 for mean and std, where nothing says."""
    channels = weights.config.channels
    if weights.normalise is None:
        return Normalise((0.5,) * channels, (0.5,) * channels)
    if len(weights.normalise.mean) != channels:  # as it was said for colours, of a model of grey pictures
        return weights.normalise.even(channels)
    return weights.normalise


def owned(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor in memory of its own: not a part of another's, nor of a file's, whose alignment moves last bits."""
    return {
        name: tensor
        if tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        and not tensor.untyped_storage().filename
        else tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.is_floating_point() == other.is_floating_point()
