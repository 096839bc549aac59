"""Students: fewer layers, another shape or another kind, that the model teaches; and lottery tickets, that learn as it
did.
"""

from dataclasses import replace
from typing import Any

import torch

from vitrail.config import checked as checked_fields
from vitrail.config import override, separated
from vitrail.errors import InputError
from vitrail.families import configure, families, family_of, known_as
from vitrail.families.pictures import PictureShape
from vitrail.shrink.cut import layered, without_layers
from vitrail.shrink.tickets import ticketed
from vitrail.shrink.way import Change, Made, Way, Workshop, as_number, ways
from vitrail.weights import Weights


@ways.add("distil")
class Distil(Change):
    """A student with fewer layers of the model, evenly taken; or a fresh one of another shape, or of another kind."""

    about = "a smaller student, which the model teaches"
    usual = 0.5

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        number = as_number(amount)
        name, fields = _typed(str(amount))
        if number is None and (name or fields):
            if name:
                known_as(name)
            return str(amount)
        if number is None or not 0 < number < 1:
            raise InputError(
                f"{amount!r} is no amount for distil; give the fraction of the layers that go, such as 0.5, or a fresh "
                f"student: some fields, such as width=96,depth=4, or a name and fields, such as cnn,width=16."
            )
        return number

    def milder(self, weights: Weights) -> "Distil | None":
        if isinstance(self.amount, str):
            return None
        half, (_, depth) = Distil(self.fraction / 2), layered(weights)
        fewer = round((1 - half.fraction) * depth)
        return half if len(self._evenly(weights)) < fewer < depth else None

    def check(self, weights: Weights) -> None:
        if isinstance(self.amount, str):
            self._student(weights)
        else:
            self._evenly(weights)

    def make(self, weights: Weights, shop: Workshop) -> Made:
        shop.needed()
        if isinstance(self.amount, str):
            config = self._student(weights)
            torch.manual_seed(0)
            family = family_of(config)
            student = replace(weights, family=family, config=config, state=families[family](config).state_dict())
            return Made(student, f"a fresh student, {self.amount}", fresh=True)
        (stack, depth), stay = layered(weights), self._evenly(weights)
        gone = [layer for layer in range(depth) if layer not in stay]
        inside = {"relations": 1.0, **({"hidden": 1.0} if weights.family == "vit" else {})}
        return Made(without_layers(weights, gone), f"{depth} -> {len(stay)} layers of the {stack}", lessons=inside)

    def _evenly(self, weights: Weights) -> list[int]:
        """The layers that stay."""
        _, depth = layered(weights)
        count = max(1, round((1 - self.fraction) * depth))
        if count == depth:
            raise InputError(f"{self} leaves all {depth} layers of {weights.path!r}; give a larger fraction.")
        return [round((number + 1) * depth / count) - 1 for number in range(count)]

    def _student(self, weights: Weights) -> Any:
        """The shape of a fresh student: the model's own or one that has a name, but for some fields."""
        name, fields = _typed(str(self.amount))
        given, own = override({}, fields), weights.config.model_dump()
        if name:
            return _named(name, given, weights)
        if "factors" in own:
            own["factors"] = {}
        if "width" in given:  # and with it what is in proportion to it
            wide, narrow = own["width"], given["width"]
            for name in ("heads", "hidden"):
                if isinstance(own.get(name), int) and isinstance(narrow, int):
                    own[name] = max(1, own[name] * narrow // wide)
            own["head"] = None
        return type(weights.config)(**{**own, **checked_fields(type(weights.config), given, "distil")})


def _typed(text: str) -> tuple[str, list[str]]:
    """The name of a model and fields, as in ``cnn,width=16,units=[1,1]``; "" where only fields are given."""
    first, *rest = separated(text) or [""]
    return ("", [first, *rest]) if "=" in first else (first, rest)


def _named(name: str, given: dict[str, Any], weights: Weights) -> Any:
    """The shape that has a name, but for some fields, with the inputs and answers of other weights."""
    kind, _ = known_as(name)
    if not weights.pictures or not issubclass(kind, PictureShape):
        raise InputError(f"{name!r} is no student of {weights.path!r}: by its name one is found that labels pictures.")
    same = {field: getattr(weights.config, field) for field in ("image", "channels", "classes")}
    config = configure(name, **{**same, **checked_fields(kind, given, "distil")})
    if family_of(config) == "gaussian":
        raise InputError("Gaussians are fitted to labels, and learn from no teacher; choose another student.")
    return config


@ways.add("tickets")
class Tickets(Way):
    """Iterative magnitude pruning with rewinding: see ``shrink.tickets``."""

    about = "a lottery ticket: small numbers made 0, the others learned anew from their first values"
    usual = 0.8

    def check(self, weights: Weights) -> None:
        if not any(ticketed(name, tensor) for name, tensor in weights.state.items()):
            raise InputError(f"{weights.path!r} has no blocks, whose numbers a ticket is of.")
