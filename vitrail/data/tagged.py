"""Sentences whose words have a label each, and texts that have one: from files, or by name."""

import io
import keyword
import os
import token as kinds
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vitrail.data.collection import Aside
from vitrail.data.pairs import set_aside
from vitrail.data.text import Undecodable, read_lines
from vitrail.errors import InputError, unknown
from vitrail.registry import Registry

COLUMNS = {"upos": 3, "lemma": 2, "xpos": 4, "feats": 5, "deprel": 7}  # of CoNLL-U, whose second column is the word
FASTTEXT = "__label__"
MOST = 2_000_000  # characters of Python's own sources that are taken
CHUNK = 256  # characters of a source that are looked at together


@dataclass(frozen=True, eq=False)
class Tagged:
    """Sentences as words with a label each; or, of texts with one label, as one text with one."""

    sentences: list[tuple[str, ...]]
    labels: list[tuple[str, ...]]
    places: list[int]  # the lines that they begin at
    name: str = ""
    whole: bool = False  # whether a text has one label
    column: str = ""  # of the labels, if it was chosen
    total: int = 0  # sentences, with those that could not be used
    aside: list[Aside] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def count(self) -> int:
        """How many labels there are."""
        return sum(map(len, self.labels))

    def at(self, rows: Sequence[int]) -> "Tagged":
        """Some of them."""
        return replace(
            self,
            sentences=[self.sentences[row] for row in rows],
            labels=[self.labels[row] for row in rows],
            places=[self.places[row] for row in rows],
        )


@dataclass(frozen=True, eq=False)
class TaggedParts:
    """To learn from, and to measure on: what part those are."""

    train: Tagged
    held: Tagged
    part: str = "validation"
    later: Tagged | None = None
    origin: str = ""


# Asked for its parts by a seed.
tag_sources: Registry[Callable[[int], TaggedParts]] = Registry("data source")


def read_tagged(paths: Sequence[str], layout: str, column: str = "") -> Tagged:
    """Words with a label each (layout ``conllu`` or ``columns``), or texts with a label each (``labels``)."""
    read = {"conllu": _conllu, "columns": _columns, "labels": _labels}[layout]
    every = [read(Path(path), column) for path in paths]
    first = every[0]
    whole = first if len(every) == 1 else _joined(every)
    if not len(whole):
        wrong = f"; the first line is not: {whole.aside[0].why}" if whole.aside else ""
        raise InputError(f"{first.name} holds nothing with a label that can be used{wrong}.")
    return whole


def _joined(every: list[Tagged]) -> Tagged:
    first = every[0]
    return replace(
        first,
        sentences=[one for some in every for one in some.sentences],
        labels=[one for some in every for one in some.labels],
        places=[one for some in every for one in some.places],
        name=f"{first.name} and {len(every) - 1} more",
        total=sum(some.total for some in every),
        aside=[one for some in every for one in some.aside],
    )


def _conllu(path: Path, column: str) -> Tagged:
    """A sentence is the lines up to an empty one; those of several words at once, and of none, are left out."""
    wanted = _column(column or "upos")

    def pair(line: str) -> tuple[str, str] | str | None:
        cells = line.split("\t")
        if line.startswith("#") or not cells[0].isdecimal():
            return None if line.startswith("#") or "-" in cells[0] or "." in cells[0] else "no number, word and label"
        if len(cells) <= wanted or not cells[1]:
            return f"{len(cells)} columns, where {wanted + 1} are needed"
        return cells[1], cells[wanted]

    return _sentences(path, pair)


def _column(name: str) -> int:
    if name.isdecimal() and int(name):
        return int(name) - 1
    if name not in COLUMNS:
        raise unknown("data.column", name, COLUMNS)
    return COLUMNS[name]


def _columns(path: Path, column: str) -> Tagged:
    """A word and a label in each line, or more columns, of which the last is taken unless another is said."""
    if column and not (column.isdecimal() and int(column) > 1):
        raise InputError(f"data.column={column!r} does not fit; it should be the number of a column, such as 2.")
    where = int(column) - 1 if column else -1

    def pair(line: str) -> tuple[str, str] | str | None:
        if line.startswith("-DOCSTART-"):
            return None
        cells = line.split("\t") if "\t" in line else line.split()
        if len(cells) < 2 or (column and len(cells) <= where) or not cells[0] or not cells[where]:  # noqa: PLR2004
            return "no word and label"
        return cells[0], cells[where].strip()

    return _sentences(path, pair)


def _sentences(path: Path, pair: Callable[[str], tuple[str, str] | str | None]) -> Tagged:
    """Sentences with an empty line between them; one with a line that cannot be used is set aside."""
    tagged = Tagged([], [], [], path.name)
    words: list[tuple[str, str]] = []
    wrong: dict[str, list[int]] = {}
    bad, first, total = False, 1, 0
    for number, line in enumerate([*read_lines(path), ""], 1):
        if line.strip():
            one = "not UTF-8" if isinstance(line, Undecodable) else pair(line)
            first = number if not words and not bad else first
            if isinstance(one, str):
                wrong.setdefault(one, []).append(number)
                bad = True
            elif one is not None:
                words.append(one)
            continue
        if words or bad:
            total += 1
        if words and not bad:
            tagged.sentences.append(tuple(word for word, _ in words))
            tagged.labels.append(tuple(label for _, label in words))
            tagged.places.append(first)
        words, bad = [], False
    aside = [set_aside(path.name, lines, f"{why}: the sentence is not used") for why, lines in wrong.items()]
    return replace(tagged, total=total, aside=aside)


def _labels(path: Path, column: str) -> Tagged:
    """A text and a label in each line with a tab between them, in the order that is clear from them; or fastText's."""
    lines = read_lines(path)
    rows: list[tuple[int, list[str]]] = []
    wrong: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if line.startswith(FASTTEXT):
            label, _, text = line.partition(" ")
            cells = [text, label.removeprefix(FASTTEXT)]
        if isinstance(line, Undecodable):
            wrong.setdefault("not UTF-8", []).append(number)
        elif len(cells) < 2 or not all(cell.strip() for cell in cells[:2]):  # noqa: PLR2004
            wrong.setdefault("no text and label with a tab between", []).append(number)
        else:
            rows.append((number, [cell.strip() for cell in cells[:2]]))
    if column not in ("", "1", "2"):
        raise InputError(f"data.column={column!r} does not fit; of a text and a label it should be 1 or 2.")
    where = int(column) - 1 if column else label_column([cells for _, cells in rows])
    aside = [set_aside(path.name, some, why) for why, some in wrong.items()]
    return Tagged(
        [(cells[1 - where],) for _, cells in rows],
        [(cells[where],) for _, cells in rows],
        [number for number, _ in rows],
        path.name,
        whole=True,
        column=str(where + 1),
        total=len(lines),
        aside=aside,
    )


def label_column(rows: Sequence[Sequence[str]]) -> int:
    """Which of two columns has the labels: the one that has fewer different ones."""
    first, second = ({row[column] for row in rows} for column in (0, 1))
    return 0 if len(first) < len(second) else 1


def split_tagged(every: Tagged, fraction: float, seed: int) -> tuple[Tagged, Tagged]:
    """To train on, and a fraction, drawn by a seed, to measure on; what is the same goes into one part."""
    unique = list(dict.fromkeys(every.sentences))
    if len(unique) < 2:  # noqa: PLR2004
        raise InputError(f"{every.name} has {len(unique)} sentence; two at least are needed, one to measure on.")
    count = max(1, min(len(unique) - 1, round(fraction * len(unique))))
    drawn = {unique[row] for row in np.random.default_rng(seed).permutation(len(unique))[:count].tolist()}
    train = [row for row, one in enumerate(every.sentences) if one not in drawn]
    held = [row for row, one in enumerate(every.sentences) if one in drawn]
    return every.at(train), every.at(held)


@tag_sources.add("python")
def python(seed: int) -> TaggedParts:
    """Characters of Python's own sources, labelled by its own tokenizer: what a highlighter of syntax knows."""
    folder = Path(os.__file__).parent
    sources: list[tuple[str, list[str]]] = []
    total = 0
    for file in sorted(folder.glob("*.py")):
        try:
            text = file.read_text(encoding="utf-8")
            labels = highlighted(text)
        except (OSError, SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue
        sources.append((text, labels))
        total += len(text)
        if total > MOST:
            break
    order = np.random.default_rng(seed).permutation(len(sources)).tolist()
    held = set(order[: max(1, len(order) // 10)])
    parts = [[one for row, one in enumerate(sources) if (row in held) is wanted] for wanted in (False, True)]
    train, measured = (_chunks(some) for some in parts)
    return TaggedParts(train, measured, origin="Python's own sources")


def _chunks(sources: Sequence[tuple[str, list[str]]]) -> Tagged:
    texts, labels = [], []
    for text, given in sources:
        for first in range(0, len(text), CHUNK):
            texts.append(tuple(text[first : first + CHUNK]))
            labels.append(tuple(given[first : first + CHUNK]))
    return Tagged(texts, labels, list(range(1, len(texts) + 1)), "Python's own sources", total=len(texts))


def highlighted(text: str) -> list[str]:
    """What each character of a Python source is part of."""
    starts = np.cumsum([0, *(len(line) + 1 for line in text.split("\n"))]).tolist()
    labels = ["space"] * len(text)
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = _kind(one)
        if kind:
            first, last = (starts[row - 1] + column for row, column in (one.start, one.end))
            labels[first:last] = [kind] * (last - first)
    return labels


def _kind(one: tokenize.TokenInfo) -> str:
    if one.type == kinds.NAME:
        return "keyword" if keyword.iskeyword(one.string) else "name"
    named = {kinds.STRING: "string", kinds.COMMENT: "comment", kinds.NUMBER: "number", kinds.OP: "operator"}
    formatted = kinds.tok_name[one.type].startswith("FSTRING")  # from Python 3.12 on
    return "string" if formatted else named.get(one.type, "")
