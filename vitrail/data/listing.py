"""Which pictures a folder or a table holds, of which class and in which part: by names alone, nothing is decoded."""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Literal

from vitrail.errors import InputError
from vitrail.files import JUNK

Part = Literal["train", "validation", "test", ""]  # "": to be split
NAMES: dict[Part, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
PARTS: dict[str, Part] = {name: part for part, names in NAMES.items() for name in names}


@dataclass(frozen=True)
class Item:
    """A file that should be a picture, its class, and the part it belongs to."""

    file: Path
    label: str
    part: Part = ""


@dataclass(frozen=True)
class Listing:
    """What is there: how it is laid out, the files, every class that has a place, and what is not used.

    Of three parts the validation part is measured on while a model is trained, and the test part is left for later.
    """

    layout: str
    items: list[Item]
    classes: list[str]
    later: list[Item] = field(default_factory=list)
    left: str = ""  # where those are
    loose: tuple[Path, ...] = ()  # files beside the folders of the classes

    @property
    def held(self) -> Part:
        """The part that is measured on, of what is divided; "" of what is not."""
        return next((item.part for item in self.items if item.part not in ("train", "")), "")

    @property
    def measured(self) -> list[Item]:
        """What a finished model is measured on: the test part, else the one that there is, else all of it."""
        return self.later or [item for item in self.items if item.part == self.held]


def find(path: Path) -> Listing:
    """The pictures under a path: a folder by class, train/, val/ and test/ by class, or a CSV of paths and labels."""
    if not path.exists():
        raise InputError(f"{str(path)!r} is not there; give a folder of pictures, one folder a class, or a CSV file.")
    if path.is_file():
        if path.suffix.lower() not in (".csv", ".tsv"):
            raise InputError(
                f"{str(path)!r} is one file; give a folder of pictures, one folder a class, or a CSV of path and label."
            )
        return _table(path)
    folders, tables = _folders(path), sorted(path.glob("*.csv"))
    if len(tables) == 1 and len(folders) <= 1:
        return _table(tables[0])
    if not folders:
        raise InputError(
            f"{str(path)!r} holds no folder; put the pictures of each class in a folder with its name, or give a CSV "
            f"file of path and label."
        )
    named = {folder.name.lower(): folder for folder in folders}
    parts: dict[Part, Path] = {}
    for name, part in PARTS.items():
        if name in named and _folders(named[name]):
            parts.setdefault(part, named[name])
    if "train" in parts and len(parts) > 1:
        return _parts(parts)
    if "train" in parts and {folder.name.lower() for folder in folders} <= PARTS.keys():
        return _classes(parts["train"])  # and nothing, or nothing by class, to test on
    return _classes(path)


def _classes(path: Path) -> Listing:
    folders = _folders(path)
    items = [Item(file, folder.name) for folder in folders for file in files_in(folder)]
    loose = tuple(sorted(file for file in path.iterdir() if not _skipped(file.name) and not file.is_dir()))
    return Listing("a folder for each class", items, [folder.name for folder in folders], loose=loose)


def _parts(parts: dict[Part, Path]) -> Listing:
    def items(part: Part) -> list[Item]:
        return [Item(file, folder.name, part) for folder in _folders(parts[part]) for file in files_in(folder)]

    held: Part = "validation" if "validation" in parts else "test"
    used = (parts["train"], parts[held])
    classes = sorted({folder.name for part in used for folder in _folders(part)})
    later = items("test") if held != "test" and "test" in parts else []
    return Listing(
        f"{used[0].name}/ and {used[1].name}/, a folder for each class",
        items("train") + items(held),
        classes,
        later,
        str(parts["test"]) if later else "",
    )


FILES = ("path", "file", "filename", "image")  # what the column of pictures may be called


def listed_in(path: Path) -> list[Path]:
    """The pictures that a table names, relative to it, whatever else it says of them."""
    rows = _rows(path)
    column = _column([cell.lower() for cell in rows[0]], *FILES)
    if column is None and not (path.parent / rows[0][0]).exists():
        raise InputError(f"{str(path)!r} has no column 'path'; name it so in its first row.")
    return [path.parent / row[column or 0] for row in rows[column is not None :] if len(row) > (column or 0)]


def _rows(path: Path) -> list[list[str]]:
    """The rows of a table that are not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is not text in UTF-8; save it as CSV in UTF-8.") from None
    delimiter = next((mark for mark in "\t;," if mark in text.partition("\n")[0]), ",")
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(StringIO(text, newline=""), delimiter=delimiter)]
    except csv.Error as error:
        raise InputError(
            f"{str(path)!r} is not a table of path and label ({error}); look at it in an editor."
        ) from None
    rows = [row for row in rows if any(row)]
    if not rows:
        raise InputError(f"{str(path)!r} is empty; give it a row of path and label for each picture.")
    return rows


def _table(path: Path) -> Listing:
    """Rows of path and label, and perhaps split; paths are relative to the table, whose first row may name columns."""
    rows = _rows(path)
    names = [cell.lower() for cell in rows[0]]
    columns = [_column(names, *known) for known in (FILES, ("label", "class"))]
    if None in columns:
        if (path.parent / rows[0][0]).exists() and len(rows[0]) > 1:
            names, columns = [], [0, 1]
        else:
            raise InputError(f"{str(path)!r} has no columns 'path' and 'label'; name them so in its first row.")
    else:
        rows = rows[1:]
    at, split = [column or 0 for column in columns], _column(names, "split", "part", "set")
    items = []
    for row in rows:
        if len(row) <= max(at):
            raise InputError(f"{str(path)!r} has a row without a label: {','.join(row)!r}; mend it.")
        part = row[split].lower() if split is not None and split < len(row) else ""
        where = PARTS.get(part, "")
        if split is not None and not where:
            raise InputError(
                f"{str(path)!r} says {part!r} in column {names[split]!r}; it should say 'train', 'validation' or "
                f"'test' in every row."
            )
        items.append(Item(path.parent / row[at[0]], row[at[1]], where))
    if split is not None and len({item.part for item in items}) == 1:
        raise InputError(f"{str(path)!r} puts all pictures in one part; leave out the column {names[split]!r}.")
    both = {"validation", "test"} <= {item.part for item in items}
    later = [item for item in items if item.part == "test"] if both else []
    used = [item for item in items if not (both and item.part == "test")]
    left = f"the test part of {path}" if later else ""
    return Listing(f"the table {path.name}", used, sorted({item.label for item in used}), later, left)


def _column(names: list[str], *known: str) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _folders(path: Path) -> list[Path]:
    """The folders in it, by name; links to folders too."""
    try:
        return sorted(folder for folder in path.iterdir() if not _skipped(folder.name) and folder.is_dir())
    except PermissionError:
        raise InputError(f"{str(path)!r} may not be read; change its permissions.") from None


def files_in(folder: Path) -> Iterator[Path]:
    """All files under it, by name; and what cannot be looked into: links to folders, and folders that are locked."""
    closed: list[Path] = []
    for where, folders, files in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not _skipped(name))
        links = [name for name in folders if (Path(where) / name).is_symlink()]
        yield from (Path(where) / name for name in sorted([*files, *links]) if not _skipped(name))
    yield from closed


def _skipped(name: str) -> bool:
    """What file managers leave behind."""
    return name.startswith(".") or name.lower() in JUNK
