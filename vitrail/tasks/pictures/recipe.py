"""The recipe of labelling pictures."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat

from vitrail.config import Config, Rate
from vitrail.files import holds_text
from vitrail.recipe import Fraction, Recipe, Seed, Teacher, recipes

Probability = Annotated[float, Field(ge=0, le=1)]


class Data(Config):
    """Which pictures, and which of them are set aside to test on."""

    source: str = "pictures"  # or the name of a set that is known, such as digits
    path: str | None = None  # of the pictures: a folder, or a CSV of path and label
    test: Fraction = 0.2  # of the pictures, where they do not come in two parts
    seed: Seed = 0  # of the split, apart from the run's own, so that every run is tested on the same pictures
    use: Annotated[float, Field(gt=0, le=1)] = 1.0  # of each class to train on; which of them, train.seed decides
    balance: Probability = 0.0  # how far small classes count more: by their size to this power; 1: all classes alike
    bad: Rate = 0.1  # the fraction of files that cannot be read which stops the run
    memory: PositiveFloat = 2.0  # gigabytes of decoded pictures kept in memory, if free; more are kept in a file
    fit: Literal["crop", "pad", "squash"] = "crop"  # the middle of a picture; all of it, on grey; all, out of shape


class Augment(Config):
    """How the pictures are changed at random before each step."""

    flip: Probability = 0.0  # of left and right exchanged
    shift: Rate = 0.0  # largest shift, as a fraction of the side
    rotate: NonNegativeFloat = 0.0  # largest turn, in degrees
    zoom: Rate = 0.0  # largest change of scale
    crop: Rate = 0.0  # largest fraction of the area that a random crop leaves out
    colour: Rate = 0.0  # largest change of brightness, contrast and saturation
    erase: Probability = 0.0  # of a box made black
    mixup: Probability = 0.0  # that a micro-batch's pictures are mixed in pairs (Zhang et al. 2018)
    cutmix: Probability = 0.0  # that they get a box of another picture (Yun et al. 2019); of both, one is drawn


class PictureTeacher(Teacher):
    """A run that a student learns from, beside the labels."""

    hard: bool = False  # what the teacher decides, for the distillation token of model.pool=distilled (DeiT)


@recipes.add("pictures")
class PictureRecipe(Recipe):
    """Which pictures, how they are changed, and the model that learns to label them."""

    sections: ClassVar[tuple[str, ...]] = ("data", "teacher", "weights", "model", "augment", "optim", "train")
    of_updates: ClassVar[tuple[str, ...]] = ("augment", "optim", "train")

    data: Data = Data()
    augment: Augment = Augment()
    teacher: PictureTeacher = PictureTeacher()

    @classmethod
    def from_paths(cls, paths: Sequence[str]) -> dict[str, Any] | None:
        path = Path(paths[0])
        table = path.suffix.lower() == ".csv" or (path.suffix.lower() == ".tsv" and _names_pictures(path))
        folder = path.is_dir() and not holds_text(path)
        return {"data": {"path": paths[0]}} if len(paths) == 1 and (folder or table) else None

    def absolute(self) -> Self:
        recipe = super().absolute()
        data = recipe.data
        if data.path is not None:
            data = data.model_copy(update={"path": str(Path(data.path).resolve())})
        return recipe.model_copy(update={"data": data, "teacher": recipe.teacher.absolute()})


def _names_pictures(table: Path) -> bool:
    """Whether the first line of a table names a column of paths, or begins with one."""
    if not table.is_file():
        return True  # which is said where it is looked for
    with table.open(encoding="utf-8-sig", errors="replace") as file:
        cells = [cell.strip() for cell in file.readline().split("\t")]
    named = {"path", "file", "filename", "image"} & {cell.lower() for cell in cells}
    return bool(named) or _is_file(table.parent, cells[0])


def _is_file(folder: Path, name: str) -> bool:
    return os.path.isfile(folder / name)  # noqa: PTH113  # a long sentence is no path, which pathlib takes amiss
