"""Recipes: what a training run is, as a TOML file that says which number it reached and with which command."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from vitrail.config import Config, Rate, override
from vitrail.errors import InputError, unknown

Share = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Chance = Annotated[float, Field(ge=0, le=1)]


class Data(Config):
    """Which pictures, and which of them are set aside to test on."""

    source: str = "pictures"  # or the name of a set that is known, such as digits
    path: str | None = None  # of the pictures: a folder, or a CSV of path and label
    test: Share = 0.2  # of the pictures, where they do not come in two parts
    seed: Seed = 0  # of the split, apart from the run's own, so that every run is tested on the same pictures
    bad: Rate = 0.1  # the share of files that cannot be read which stops the run
    memory: PositiveFloat = 2.0  # gigabytes of decoded pictures kept in memory; more are kept in a file


class Start(Config):
    """Weights to start from, instead of from scratch."""

    path: str | None = None  # a run directory, a file or folder of another library, or hf:owner/name
    head: Literal["auto", "keep", "fresh"] = "auto"  # auto: kept where it was made for classes of these names
    prelogits: bool = False  # whether a fresh head keeps the layer before it
    strict: bool = True  # whether tensors with no place in the model stop the run, or are left out
    normalise: Literal["half", "imagenet", "clip", "none"] | None = None  # how pictures are, where nothing says
    freeze: bool = False  # whether the head alone is trained, on features computed once


class Augment(Config):
    """How the pictures are changed at random before each step."""

    flip: Chance = 0.0  # probability of left and right exchanged
    shift: Rate = 0.0  # largest shift, as a share of the side
    rotate: NonNegativeFloat = 0.0  # largest turn, in degrees
    zoom: Rate = 0.0  # largest change of scale
    crop: Rate = 0.0  # largest share of the area that a random crop leaves out
    colour: Rate = 0.0  # largest change of brightness, contrast and saturation
    erase: Chance = 0.0  # probability of a box made black
    mixup: Chance = 0.0  # probability that a share's pictures are mixed in pairs (Zhang et al. 2018)
    cutmix: Chance = 0.0  # probability that they get a box of another picture (Yun et al. 2019); of both, one is drawn


class Optim(Config):
    """AdamW, or Muon for the matrices of the blocks and AdamW for the rest; warm-up and cosine decay."""

    name: Literal["adamw", "muon"] = "adamw"
    lr: PositiveFloat = 1e-3  # of AdamW
    muon: PositiveFloat = 3e-3  # learning rate of Muon
    decay: NonNegativeFloat = 0.05
    layer_decay: PositiveFloat = 1.0  # of the learning rate, from each layer to the one before it
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    warmup: Rate = 0.1  # share of the steps
    clip: PositiveFloat = 1.0  # largest norm of the gradient

    @model_validator(mode="after")
    def _consistent(self) -> "Optim":
        if self.name == "muon" and self.layer_decay != 1:
            raise InputError(f"optim.layer_decay={self.layer_decay} is of AdamW alone; add optim.name=adamw.")
        return self


class Train(Config):
    """How long and how."""

    epochs: PositiveInt = 30
    batch: PositiveInt = 64  # pictures in one update, over all processes
    accumulate: PositiveInt = 1  # shares that a process takes its part of a batch in, one after the other
    seed: Seed = 0
    smoothing: Rate = 0.0  # of the labels
    ema: Rate = 0.0  # decay of the running average of the weights, which is then what is kept; 0: none
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    checkpoint: NonNegativeFloat = 30.0  # seconds between two
    keep: NonNegativeInt = 0  # models kept along the way, from the untrained one to the last, in RUN/history
    evaluate: PositiveInt = 1  # epochs between two measurements
    tensorboard: bool = False


class Recipe(Config):
    """Data, model and training, with what they are for and what they reached.

    What a recipe leaves out is chosen from the data.
    """

    about: str = ""
    command: str = ""
    reached: str = ""
    data: Data = Data()
    model: dict[str, Any] = Field(default_factory=dict)  # a model's name, and its fields
    weights: Start = Start()
    augment: Augment = Augment()
    optim: Optim = Optim()
    train: Train = Train()


def built_in() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    folder = Path(str(files("vitrail"))) / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def read_recipe(what: str, assignments: Iterable[str] = (), **fields: Mapping[str, Any]) -> Recipe:
    """A built-in recipe, a TOML file, or a folder or table of pictures, with some of its fields set."""
    table = _table(what)
    assignments = list(assignments)
    given = "path" in fields.get("weights", {}) or any(one.startswith("weights.path=") for one in assignments)
    if given and what in built_in():  # made for training from scratch
        table = {section: value for section, value in table.items() if section not in ("model", "optim", "train")}
    for section, changes in fields.items():
        if not isinstance(table.setdefault(section, {}), dict):
            raise InputError(
                f"{section}={table[section]!r} in recipe {what!r} does not fit; it should be a table [{section}]."
            )
        if section == "model" and "name" in changes:  # another model, with none of this one's fields
            table[section].clear()
        table[section].update(changes)
    return Recipe(**override(table, assignments))


def _table(what: str) -> dict[str, Any]:
    path = built_in().get(what) or Path(what)
    if path.is_dir() or path.suffix.lower() in (".csv", ".tsv"):
        return {"data": {"path": str(path)}}
    if path.suffix != ".toml" or not path.is_file():
        if path.suffix == ".toml":
            raise InputError(f"recipe {what!r} is not there; check the path, or see `vitrail recipes`.")
        if os.sep in what or path.exists():
            raise InputError(f"{what!r} is not a folder, nor a recipe; give a folder of pictures, one folder a class.")
        raise unknown("recipe", what, built_in())
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe {what!r} is not valid TOML: {error}.") from None
