"""Running text: from files, folders of them, or by name; every line is there, or named with what is wrong with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vitrail.data.collection import Aside
from vitrail.data.listing import NAMES
from vitrail.data.pairs import set_aside
from vitrail.data.text import Undecodable, read_lines
from vitrail.errors import InputError
from vitrail.files import TEXTS, kind, walk
from vitrail.registry import Registry

PLAIN = (".txt", ".text", ".md", "")  # of files that are parts of a text: train.py is no part
SEVERAL = 10  # documents, from which on whole ones are held out


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents, what could not be used of them, and how many lines there were and were not used."""

    documents: list[str]
    aside: list[Aside] = field(default_factory=list)
    lines: int = 0
    wrong: int = 0
    files: int = 0
    unread: int = 0  # of the files

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def characters(self) -> int:
        """Of all documents."""
        return sum(map(len, self.documents))


@dataclass(frozen=True, eq=False)
class TextParts:
    """Texts to learn from, and to measure on: what part those are."""

    train: Texts
    held: Texts
    part: str = "validation"
    later: Texts | None = None  # to test on at the end
    origin: str = ""


# Asked for its documents.
TextSource = Callable[[], list[str]]
text_sources: Registry[TextSource] = Registry("data source")


@text_sources.add("topics")
def topics() -> list[str]:
    """What Python's own help says of the language: the chapters of its reference, as ``pydoc`` shows them."""
    from pydoc_data.topics import topics as chapters  # noqa: PLC0415  # which only this needs

    return [chapters[name].strip() + "\n" for name in sorted(chapters)]


def read_texts(paths: Sequence[str]) -> Texts:
    """The documents of files, plain or gzip, and of folders."""
    documents, aside = list[str](), list[Aside]()
    total = wrong = files = unread = 0
    for file in _files(paths):
        files += 1
        try:
            lines = read_lines(file)
        except InputError as error:
            if len(paths) == 1 and not Path(paths[0]).is_dir():
                raise
            aside.append(Aside(str(file), str(error), unreadable=True))
            unread += "is empty" not in str(error)
            continue
        bad = [number for number, line in enumerate(lines, 1) if isinstance(line, Undecodable)]
        total, wrong = total + len(lines), wrong + len(bad)
        if bad:
            aside.append(set_aside(file.name, bad, "not UTF-8"))
        text = "\n".join(line for line in lines if not isinstance(line, Undecodable))
        if text.strip():
            documents.append(text.rstrip("\n") + "\n")
    if not documents:
        raise InputError(f"{listing(paths)} holds no text that can be read; give files of text in UTF-8.")
    return Texts(documents, aside, total, wrong, files, unread)


def split_texts(texts: Texts, fraction: float, seed: int) -> tuple[Texts, Texts]:
    """Texts to train on, and about a fraction to measure on: whole documents, drawn by a seed, where there are ten or
    more; else the last part of each.
    """
    documents = texts.documents
    if len(documents) < SEVERAL:
        cuts = [_cut(document, fraction) for document in documents]
        train = [document[:cut] for document, cut in zip(documents, cuts, strict=True)]
        held = [document[cut:] for document, cut in zip(documents, cuts, strict=True)]
    else:
        order = np.random.default_rng(seed).permutation(len(documents)).tolist()
        ends = np.cumsum([len(documents[row]) for row in order])
        count = max(1, min(len(order) - 1, int((ends <= fraction * ends[-1]).sum())))
        drawn = set(order[:count])
        train = [document for row, document in enumerate(documents) if row not in drawn]
        held = [document for row, document in enumerate(documents) if row in drawn]
    return replace(texts, documents=train), Texts(held)


def _cut(document: str, fraction: float) -> int:
    return max(1, min(len(document) - 1, int((1 - fraction) * len(document))))


def listing(paths: Sequence[str]) -> str:
    """What is read, in a few words."""
    names = [Path(path).name for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def part_beside(path: str, part: str) -> list[str]:
    """The file of another part that stands beside that to train on, or in its folder: val.txt beside train.txt."""
    location = Path(train_part(path))
    names = NAMES["validation"] if part == "validation" else NAMES["test"]
    if not location.exists() or location.name.partition(".")[0].lower() not in NAMES["train"]:
        return []
    return [str(other) for other in _parts(location.parent, names) if kind(other) == kind(location)][:1]


def train_part(path: str) -> str:
    """The part to train on, of a folder that is divided; else the path itself."""
    folder = Path(path)
    parts = _parts(folder, NAMES["train"]) if folder.is_dir() else []
    return str(parts[0]) if parts else path


def _parts(folder: Path, names: Sequence[str]) -> list[Path]:
    """Files of plain text in a folder, or folders, with one of these names."""
    there = sorted(other for other in folder.iterdir() if other.name.partition(".")[0].lower() in names)
    return [other for other in there if other.is_dir() or kind(other) in PLAIN]


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            files = [file for file in walk(path) if kind(file) in TEXTS or not file.suffix]
            if not files:
                raise InputError(f"{str(path)!r} holds no file of text, such as notes.txt; name the files.")
            yield from files
        else:
            yield path
