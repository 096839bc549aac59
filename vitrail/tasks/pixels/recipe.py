"""The recipe of learning pictures as sequences."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from vitrail.config import Config, Rate
from vitrail.recipe import Fraction, Recipe, Seed, recipes

Sides = Annotated[
    tuple[PositiveInt, PositiveInt],
    BeforeValidator(
        lambda value: (value, value) if type(value) is int else tuple(value) if isinstance(value, list) else value
    ),
]


class Pixels(Config):
    """Which pictures, how large they are seen, and in how many colours."""

    source: str = "pictures"  # or the name of a set that is known, such as digits
    path: str | None = None
    test: Fraction = 0.2  # the fraction to measure on, where there is no part for that
    seed: Seed = 0  # of that split
    bad: Rate = 0.1  # the fraction of pictures that cannot be read which stops the run
    size: Sides | None = None  # pixels down and across; 16 x 16, or as they are if that is less
    colours: Annotated[int, Field(ge=2, le=4096)] = 16
    shift: NonNegativeInt = 0  # pixels by which a picture is moved at random, at most
    hidden: Fraction = 0.15  # of the pixels that a BERT is asked for


@recipes.add("pixels")
class PixelRecipe(Recipe):
    """Which pictures, and the model that learns their pixels."""

    sections: ClassVar[tuple[str, ...]] = ("data", "weights", "model", "optim", "train")

    task: str = "pixels"
    data: Pixels = Pixels()

    @model_validator(mode="before")
    @classmethod
    def _of_pixels(cls, sections: dict[str, Any]) -> dict[str, Any]:
        data, model = dict(sections.get("data") or {}), dict(sections.get("model") or {})
        if data.get("path") is not None and data.get("source") == "digits":
            data["source"] = "pictures"  # whose own are not meant
        if "image" in model:  # as --image has it
            data["size"] = model.pop("image")
        return {**sections, "data": data, "model": model}

    def absolute(self) -> Self:
        recipe = super().absolute()
        if recipe.data.path is None:
            return recipe
        path = str(Path(recipe.data.path).resolve())
        return recipe.model_copy(update={"data": recipe.data.model_copy(update={"path": path})})
