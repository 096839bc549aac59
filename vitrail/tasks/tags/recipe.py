"""The recipe of labelling words, or texts."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from vitrail.config import Config, Rate
from vitrail.files import first_lines
from vitrail.recipe import FileRecipe, Files, Fraction, Seed, Teacher, recipes

Layout = Literal["conllu", "columns", "labels"]
LOOKED = 2_000  # lines that are looked at, to tell how a file is laid out
LONGEST = 60  # letters of a label
SEEN_AGAIN = 5  # times that a label is met on average, at least
FASTTEXT = "__label__"


class Labelled(Config):
    """Which words or texts with labels, which of them are measured on, and how they become tokens."""

    source: str = "files"  # or the name of a set that is known, such as python
    files: Files = ()
    layout: Layout | None = None  # conllu, columns (a word and a label a line), labels (a text and a label a line)
    column: str = (
        ""  # of the label: upos, xpos, ... of CoNLL-U; else its number. Default: upos; the last; the clear one
    )
    validation: Files = ()  # to measure on while a model is trained; files beside those, if there are
    test: Files = ()  # to test on at the end
    fraction: Fraction = 0.1  # to measure on, where all comes in one part
    seed: Seed = 0  # of that split
    bad: Rate = 0.1  # the fraction that cannot be used which stops the run
    tokens: Literal["bpe", "characters"] = "bpe"
    vocabulary: PositiveInt = 4_000  # tokens at most


@recipes.add("tags")
class TagRecipe(FileRecipe):
    """Which labels, and the model that learns to give them."""

    sections: ClassVar[tuple[str, ...]] = ("data", "teacher", "weights", "model", "optim", "train")

    task: str = "tags"
    data: Labelled = Labelled()
    teacher: Teacher = Teacher()

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, sections: dict[str, Any]) -> dict[str, Any]:
        return cls.named(sections)

    @classmethod
    def from_paths(cls, paths: Sequence[str]) -> dict[str, Any] | None:
        files = [Path(path) for path in paths]
        if not all(file.is_file() for file in files) or any(layout_of(file) is None for file in files):
            return None
        if len(files) > 1 and layout_of(files[0]) == "labels":
            return None
        return {"data": {"files": list(paths)}}


def layout_of(path: Path) -> Layout | None:
    """How a file of labels is laid out, told by its name and its first lines; None of what is none."""
    if re.search(r"\.conllu(\.gz)?$", path.name.lower()):
        return "conllu"
    lines = first_lines(path, LOOKED)
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2:  # noqa: PLR2004
        return None
    if all(line.startswith(FASTTEXT) for line in filled):
        return "labels"
    tabs = [line.split("\t") for line in filled]
    if _in_sentences(lines):
        return "columns"
    if sum(len(row) == 2 for row in tabs) > 0.9 * len(tabs):  # noqa: PLR2004
        columns = [[row[column].strip() for row in tabs if len(row) == 2] for column in (0, 1)]  # noqa: PLR2004
        return "labels" if any(map(_are_labels, columns)) else None
    return None


def _in_sentences(lines: Sequence[str]) -> bool:
    """Whether lines are words with a label each, and empty ones stand between sentences."""
    middle = lines[: max((number for number, line in enumerate(lines) if line.strip()), default=0)]
    if all(line.strip() for line in middle):
        return False
    rows = [line.split("\t") if "\t" in line else line.split() for line in lines if line.strip()]
    usual = max(set(map(len, rows)), key=[len(row) for row in rows].count)
    same = sum(len(row) == usual and " " not in row[0].strip() for row in rows)
    return usual > 1 and same > 0.9 * len(rows) and _are_labels([row[-1] for row in rows if len(row) == usual])


def _are_labels(cells: Sequence[str]) -> bool:
    """Whether they are few and short, and met again and again."""
    kinds = set(cells)
    return len(kinds) * min(SEEN_AGAIN, len(cells) / 2) <= len(cells) and max(map(len, kinds)) <= LONGEST
