"""The recipe of translating."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import PositiveInt, model_validator

from vitrail.config import Config, Rate
from vitrail.errors import InputError
from vitrail.files import first_lines
from vitrail.recipe import FileRecipe, Files, Fraction, Seed, recipes


class Sentences(Config):
    """Which sentences, which of them are set aside to measure on, and how they become tokens."""

    source: str = "files"  # or the name of a set that is known, such as dates
    files: Files = ()  # two that go together line by line, or one table of two columns
    validation: Files = ()  # likewise, to measure on while a model is trained; files beside those, if there are
    test: Files = ()  # likewise, to test on at the end
    reverse: bool = False  # from the second to the first
    fraction: Fraction = 0.05  # to measure on, 2,000 sentences at most, where they come in one part
    seed: Seed = 0  # of that split
    bad: Rate = 0.1  # the fraction of lines that cannot be used which stops the run
    tokens: Literal["bpe", "characters"] = "bpe"
    vocabulary: PositiveInt = 8_000  # tokens at most
    shared: bool = True  # whether both languages have one vocabulary
    longest: PositiveInt = 128  # tokens of a sentence; longer ones are set aside
    measure: Literal["bleu", "exact"] = "bleu"  # what a model is judged by: exact is how many are right as a whole


class Speaker(Config):
    """A run whose translations are learned instead of the given ones (Kim and Rush 2016)."""

    path: str | None = None
    beam: PositiveInt = 5

    def absolute(self) -> Self:
        """The same, with a path that holds from any folder."""
        return self if self.path is None else self.model_copy(update={"path": str(Path(self.path).resolve())})


@recipes.add("translate")
class TranslateRecipe(FileRecipe):
    """Which sentences, and the model that learns to translate them."""

    sections: ClassVar[tuple[str, ...]] = ("data", "teacher", "weights", "model", "optim", "train")

    task: str = "translate"
    data: Sentences = Sentences()
    teacher: Speaker = Speaker()

    @model_validator(mode="before")
    @classmethod
    def _of_sentences(cls, sections: dict[str, Any]) -> dict[str, Any]:
        for section, name, option in (("data", "path", "--data"), ("model", "image", "--image")):
            if name in (sections.get(section) or {}):
                raise InputError(f"{option} is of pictures; sentences are named as they are: two files, or a table.")
        return sections

    @classmethod
    def from_paths(cls, paths: Sequence[str]) -> dict[str, Any] | None:
        two = len(paths) == 2 and all(Path(path).is_file() for path in paths)  # noqa: PLR2004
        return {"data": {"files": list(paths)}} if two or (len(paths) == 1 and _has_columns(Path(paths[0]))) else None


def _has_columns(table: Path) -> bool:
    """Whether the first line of a file has a tab in it."""
    return table.is_file() and any("\t" in line for line in first_lines(table, 1))
