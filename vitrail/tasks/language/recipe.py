"""The recipe of learning a language from text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from vitrail.config import Config, Rate
from vitrail.errors import InputError
from vitrail.files import holds_text
from vitrail.recipe import FileRecipe, Files, Fraction, Seed, Teacher, recipes


class Corpus(Config):
    """Which text, which part of it is measured on, and how it becomes tokens."""

    source: str = "files"  # or the name of a text that is known, such as topics
    files: Files = ()  # files, or folders of them
    validation: Files = ()  # to measure on while a model is trained; what stands beside those, if there is
    test: Files = ()  # to test on at the end
    fraction: Fraction = 0.1  # to measure on, where the text comes in one part
    seed: Seed = 0  # of that split, where whole documents are drawn
    bad: Rate = 0.1  # the fraction of lines that cannot be used which stops the run
    tokens: Literal["bpe", "characters"] = "bpe"
    vocabulary: PositiveInt = 8_000  # tokens at most


class Hidden(Config):
    """What a BERT learns: the words that are hidden, and whether the second half of a text follows the first."""

    words: bool = True
    rate: Fraction = 0.15  # of the tokens that are asked for
    masked: Rate = 0.8  # of those that are then masked
    other: Rate = 0.1  # that are another word; the rest is as it is
    next: bool = False  # whether halves follow one another is learned too

    @model_validator(mode="after")
    def _something(self) -> "Hidden":
        if not self.words and not self.next:
            raise InputError("hidden.words and hidden.next are both false, so that nothing is learned; set one.")
        if self.masked + self.other > 1:
            raise InputError(
                f"hidden.masked={self.masked} and hidden.other={self.other} are more than 1 together; lower one."
            )
        return self


@recipes.add("language")
class LanguageRecipe(FileRecipe):
    """Which text, and the model that learns it."""

    sections: ClassVar[tuple[str, ...]] = ("data", "hidden", "teacher", "weights", "model", "optim", "train")

    task: str = "language"
    data: Corpus = Corpus()
    hidden: Hidden = Hidden()
    teacher: Teacher = Teacher()

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, sections: dict[str, Any]) -> dict[str, Any]:
        return cls.named(sections)

    @classmethod
    def from_paths(cls, paths: Sequence[str]) -> dict[str, Any] | None:
        files = [Path(path) for path in paths]
        if len(files) == 1 and files[0].is_dir():
            return {"data": {"files": list(paths)}} if holds_text(files[0]) else None
        known = all(file.is_file() for file in files) and (len(files) == 1 or len(files) > 2)  # noqa: PLR2004
        return {"data": {"files": list(paths)}} if known else None
