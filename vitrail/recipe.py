"""Recipes: what a training run is, as a TOML file that says which number it reached and with which command."""

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from vitrail.config import Config, Rate, override
from vitrail.errors import InputError, unknown

Share = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Data(Config):
    """Which pictures, and which of them are set aside to test on."""

    source: str
    test: Share = 0.2
    seed: Seed = 0  # of the split, apart from the run's own, so that every run is tested on the same pictures


class Optim(Config):
    """AdamW with warm-up and cosine decay."""

    lr: PositiveFloat = 1e-3
    decay: NonNegativeFloat = 0.05
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    warmup: Rate = 0.1  # share of the steps
    clip: PositiveFloat = 1.0  # largest norm of the gradient


class Train(Config):
    """How long and how."""

    epochs: PositiveInt
    batch: PositiveInt
    seed: Seed = 0
    smoothing: Rate = 0.0  # of the labels


class Recipe(Config):
    """Data, model and training, with what they are for and what they reached."""

    about: str = ""
    command: str = ""
    reached: str = ""
    data: Data
    model: dict[str, Any]  # a model's name, and its fields
    optim: Optim = Optim()
    train: Train


def built_in() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    folder = Path(str(files("vitrail"))) / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def read_recipe(what: str, assignments: Iterable[str] = (), **fields: Mapping[str, Any]) -> Recipe:
    """A built-in recipe, or a TOML file, with some of its fields set."""
    path = built_in().get(what) or Path(what)
    if path.suffix != ".toml" or not path.is_file():
        if path.suffix == ".toml":
            raise InputError(f"recipe {what!r} is not there; check the path, or see `vitrail recipes`.")
        raise unknown("recipe", what, built_in())
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe {what!r} is not valid TOML: {error}.") from None
    for section, changes in fields.items():
        if not isinstance(table.setdefault(section, {}), dict):
            raise InputError(
                f"{section}={table[section]!r} in recipe {what!r} does not fit; it should be a table [{section}]."
            )
        table[section].update(changes)
    return Recipe(**override(table, assignments))
