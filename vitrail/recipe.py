"""What every recipe has: a model, weights to start from, an optimizer, a training. Each task adds its own sections."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from vitrail.config import Config, Rate
from vitrail.errors import InputError
from vitrail.registry import Registry

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Files = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class Start(Config):
    """Weights to start from, instead of from scratch."""

    path: str | None = None  # a run directory, a file or folder of another library, or hf:owner/name
    head: Literal["auto", "keep", "fresh"] = "auto"  # auto: kept where it was made for classes of these names
    prelogits: bool = False  # whether a fresh head keeps the layer before it
    names: str | None = None  # a TOML table of what a file calls the parts of a ViT, where its names were never seen
    strict: bool = True  # whether tensors with no place in the model stop the run, or are left out
    normalise: Literal["half", "imagenet", "clip", "none"] | None = None  # how pictures are, where nothing says
    freeze: bool = False  # whether the head alone is trained, on features computed once
    zeros: bool = False  # whether numbers that are 0 in the weights stay 0, as of a lottery ticket
    layers: PositiveInt | None = None  # how many of the last layers learn, the ones before them staying as they are


class Teacher(Config):
    """A run that a student learns from, beside the labels."""

    path: str | None = None
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5  # of the teacher's answers; 1: the labels count for nothing
    temperature: PositiveFloat = 1.0  # that makes answers softer
    hidden: NonNegativeFloat = 0.0  # weight of hidden states, through a linear map
    relations: NonNegativeFloat = 0.0  # weight of what tokens are to each other in the last layer (MiniLM)

    def check(self) -> None:
        """Without a teacher there is nothing of it to set."""
        for name, field in type(self).model_fields.items():
            if self.path is None and getattr(self, name) != field.default:
                raise InputError(f"teacher.{name} is of a teacher; name one with --teacher RUN.")

    def absolute(self) -> Self:
        """The same, with a path that holds from any folder."""
        if self.path is None or self.path.startswith("hf:"):
            return self
        return self.model_copy(update={"path": str(Path(self.path).resolve())})


class Optim(Config):
    """AdamW, or Muon for the matrices of the blocks and AdamW for the rest; warm-up and cosine decay."""

    name: Literal["adamw", "muon"] = "adamw"
    lr: PositiveFloat = 1e-3  # of AdamW
    muon: PositiveFloat = 3e-3  # learning rate of Muon
    decay: NonNegativeFloat = 0.05
    layer_decay: PositiveFloat = 1.0  # of the learning rate, from each layer to the one before it
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    warmup: Rate = 0.1  # fraction of the steps; ten at least, of twenty or more, unless it is 0
    clip: PositiveFloat = 1.0  # largest norm of the gradient

    @model_validator(mode="after")
    def _consistent(self) -> "Optim":
        if self.name == "muon" and self.layer_decay != 1:
            raise InputError(f"optim.layer_decay={self.layer_decay} is of AdamW alone; add optim.name=adamw.")
        return self


class Train(Config):
    """How long and how."""

    epochs: PositiveInt = 30
    steps: PositiveInt | None = None  # updates in all, however many epochs that are
    batch: PositiveInt = 64  # examples in one update, over all processes
    accumulate: PositiveInt = 1  # micro-batches that a process takes its part of a batch in, one after the other
    recompute: bool = False  # whether blocks are computed a second time for the gradients, instead of being kept
    minutes: PositiveFloat | None = None  # in all, however many epochs that are
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
    """What is trained, with what it is for and what it reached.

    What a recipe leaves out is chosen from the data.
    """

    sections: ClassVar[tuple[str, ...]] = ("weights", "model", "optim", "train")  # in the order they are shown
    of_updates: ClassVar[tuple[str, ...]] = ("optim", "train")  # sections without a part where the head alone is fitted

    about: str = ""
    command: str = ""
    reached: str = ""
    task: str = "pictures"
    model: dict[str, Any] = Field(default_factory=dict)  # a model's name, and its fields
    weights: Start = Start()
    optim: Optim = Optim()
    train: Train = Train()

    @classmethod
    def from_paths(cls, paths: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG003
        """The fields of a recipe for data that is given by its path, or paths, if it looks like this task's."""
        return None

    def absolute(self) -> Self:
        """The same, with paths that hold from any folder."""
        paths = {name: getattr(self.weights, name) for name in ("path", "names")}
        there = {name: str(Path(path).resolve()) for name, path in paths.items() if path and Path(path).exists()}
        return self.model_copy(update={"weights": self.weights.model_copy(update=there)}) if there else self


class FileRecipe(Recipe):
    """A recipe whose data are files: those to train on, and beside them those to validate and to test on."""

    data: Any = None  # with fields files, validation and test

    @classmethod
    def named(cls, sections: dict[str, Any]) -> dict[str, Any]:
        """Sections in which what --data names are the files."""
        data = dict(sections.get("data") or {})
        if "path" in data:
            data |= {"files": [data.pop("path")], "source": "files"}
        if "image" in (sections.get("model") or {}):
            raise InputError("--image is of pictures; leave it out.")
        return {**sections, "data": data}

    def absolute(self) -> Self:
        recipe = super().absolute()
        names = ("files", "validation", "test")
        files = {name: tuple(str(Path(file).resolve()) for file in getattr(recipe.data, name)) for name in names}
        there = {name: paths for name, paths in files.items() if paths}
        teacher = getattr(recipe, "teacher", None)  # which not every task has
        other = {} if teacher is None else {"teacher": teacher.absolute()}
        return recipe.model_copy(update={"data": recipe.data.model_copy(update=there), **other})


recipes: Registry[type[Recipe]] = Registry("task")  # the recipe of each
