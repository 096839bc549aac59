"""Which pictures a folder or a table holds, of which class and in which part: by names alone, nothing is decoded."""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
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
class Found:
    """What is there: how it is laid out, the files, every class that has a place, and what is left for later."""

    layout: str
    items: list[Item]
    classes: list[str]
    left: tuple[str, ...] = ()


def find(path: Path) -> Found:
    """The pictures under a path: a folder by class, train/ and val/ or test/ by class, or a CSV of paths and labels."""
    if not path.exists():
        raise InputError(f"{str(path)!r} is not there; give a folder of pictures, one folder a class, or a CSV file.")
    if path.is_file():
        if path.suffix.lower() not in (".csv", ".tsv"):
            raise InputError(
                f"{str(path)!r} is one file; give a folder of pictures, one folder a class, or a CSV of path and label."
            )
        return _table(path)
    folders = _folders(path)
    parts = {folder.name.lower(): folder for folder in folders}
    train = next((parts[name] for name in TRAIN if name in parts), None)
    tests = [parts[name] for name in TEST if name in parts]
    if train is not None and tests:
        return _parts(train, tests)
    if folders:
        items = [Item(file, folder.name) for folder in folders for file in files_in(folder)]
        return Found("a folder for each class", items, [folder.name for folder in folders])
    tables = sorted(path.glob("*.csv"))
    if len(tables) == 1:
        return _table(tables[0])
    raise InputError(
        f"{str(path)!r} holds no folder; put the pictures of each class in a folder with its name, or give a CSV file "
        f"of path and label."
    )


def _parts(train: Path, tests: list[Path]) -> Found:
    classes = sorted({folder.name for part in (train, tests[0]) for folder in _folders(part)})
    roots: list[tuple[Part, Path]] = [("train", train), ("test", tests[0])]
    items = [
        Item(file, folder.name, part) for part, root in roots for folder in _folders(root) for file in files_in(folder)
    ]
    left = tuple(str(folder) for folder in tests[1:])
    return Found(f"{train.name}/ and {tests[0].name}/, a folder for each class", items, classes, left)


def _table(path: Path) -> Found:
    """Rows of path and label, and perhaps split; paths are relative to the table, whose first row may name columns."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{str(path)!r} is not text in UTF-8; save it as CSV in UTF-8.") from None
    delimiter = next((mark for mark in "\t;," if mark in text.partition("\n")[0]), ",")
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines(), delimiter=delimiter)]
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
        items.append(Item(path.parent / row[at[0]], row[at[1]], where))
    if any(item.part for item in items) and {item.part for item in items} != {"train", "test"}:
        column = names[split or 0]
        raise InputError(f"the column {column!r} of {str(path)!r} should say 'train' or 'test' in every row.")
    return Found(f"the table {path.name}", items, sorted({item.label for item in items}))


def _column(names: list[str], *known: str) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _folders(path: Path) -> list[Path]:
    """The folders in it, by name; links to folders too."""
    try:
        return sorted(folder for folder in path.iterdir() if not _skipped(folder.name) and folder.is_dir())
    except PermissionError:
        raise InputError(f"{str(path)!r} may not be read; change its permissions.") from None


def files_in(folder: Path) -> Iterator[Path]:
    """All files under it, by name; links to folders are not followed, so that none is walked forever."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _skipped(name))
        yield from (Path(where) / name for name in sorted(files) if not _skipped(name))


def _skipped(name: str) -> bool:
    """What file managers leave behind."""
    return name.startswith(".") or name.lower() in JUNK
