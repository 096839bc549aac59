"""Which pictures a folder or a table holds, of which class and in which part: by names alone, nothing is decoded."""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

from vitrail.errors import InputError

Part = Literal["train", "test", ""]  # "": to be split
TRAIN, TEST = ("train", "training"), ("val", "valid", "validation", "test", "testing")
JUNK = {"thumbs.db", "desktop.ini", "__macosx"}


@dataclass(frozen=True)
class Item:
    """A file that should be a picture, its class, and the part it belongs to."""

    file: Path
    label: str
    part: Part = ""


@dataclass(frozen=True)
class Listing:
    """What is there: how it is laid out, the files, every class that has a place, and what is not used."""

    layout: str
    items: list[Item]
    classes: list[str]
    left: tuple[str, ...] = ()
    loose: tuple[Path, ...] = ()  # files beside the folders of the classes


def find(path: Path) -> Listing:
    """The pictures under a path: a folder by class, train/ and val/ or test/ by class, or a CSV of paths and labels."""
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
    parts = {folder.name.lower(): folder for folder in folders}
    train = next((parts[name] for name in TRAIN if name in parts and _folders(parts[name])), None)
    tests = [parts[name] for name in TEST if name in parts and _folders(parts[name])]
    if train is not None and tests:
        return _parts(train, tests)
    if train is not None and parts.keys() <= {*TRAIN, *TEST}:
        return _classes(train)  # and nothing, or nothing by class, to test on
    return _classes(path)


def _classes(path: Path) -> Listing:
    folders = _folders(path)
    items = [Item(file, folder.name) for folder in folders for file in files_in(folder)]
    loose = tuple(sorted(file for file in path.iterdir() if not _skipped(file.name) and not file.is_dir()))
    return Listing("a folder for each class", items, [folder.name for folder in folders], loose=loose)


def _parts(train: Path, tests: list[Path]) -> Listing:
    classes = sorted({folder.name for part in (train, tests[0]) for folder in _folders(part)})
    roots: list[tuple[Part, Path]] = [("train", train), ("test", tests[0])]
    items = [
        Item(file, folder.name, part) for part, root in roots for folder in _folders(root) for file in files_in(folder)
    ]
    left = tuple(str(folder) for folder in tests[1:])
    return Listing(f"{train.name}/ and {tests[0].name}/, a folder for each class", items, classes, left)


def _table(path: Path) -> Listing:
    """Rows of path and label, and perhaps split; paths are relative to the table, whose first row may name columns."""
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
    names = [cell.lower() for cell in rows[0]]
    columns = [_column(names, *known) for known in (("path", "file", "filename", "image"), ("label", "class"))]
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
        where: Part = "train" if part in TRAIN else "test" if part in TEST else ""
        if split is not None and not where:
            raise InputError(
                f"{str(path)!r} says {part!r} in column {names[split]!r}; it should say 'train' or 'test' in every row."
            )
        items.append(Item(path.parent / row[at[0]], row[at[1]], where))
    if split is not None and len({item.part for item in items}) == 1:
        raise InputError(f"{str(path)!r} puts all pictures in one part; leave out the column {names[split]!r}.")
    return Listing(f"the table {path.name}", items, sorted({item.label for item in items}))


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
