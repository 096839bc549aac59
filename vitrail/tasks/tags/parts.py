"""Files of words or texts with labels, in their parts."""

import re
from collections.abc import Sequence
from pathlib import Path

from vitrail.data.listing import NAMES
from vitrail.data.tagged import Tagged, TaggedParts, read_tagged, split_tagged, tag_sources
from vitrail.errors import InputError
from vitrail.tasks.tags.recipe import Labelled, layout_of


def read_parts(data: Labelled) -> tuple[TaggedParts, Labelled]:
    """What has labels, in its parts; and what says how it is read, nothing of that left out."""
    if data.source != "files":
        return tag_sources[data.source](data.seed), data
    if not data.files:
        raise InputError("the recipe names no file; give one of words, or of texts, with labels.")
    held_files = list(data.validation) or _beside(data.files, "validation")
    later_files = list(data.test) or _beside(data.files, "test")
    part = "validation"
    if not held_files and later_files:
        held_files, later_files, part = later_files, [], "test"
    data = data.model_copy(update={"layout": data.layout or layout_of(Path(data.files[0]))})
    train, origin = read_files(data.files, data), Path(data.files[0]).name
    data = data.model_copy(update={"column": data.column or train.column})
    if not held_files:
        train, held = split_tagged(train, data.fraction, data.seed)
        return TaggedParts(train, held, part, origin=origin), data
    later = read_files(later_files, data) if later_files else None
    return TaggedParts(train, read_files(held_files, data), part, later, origin), data


def read_files(files: Sequence[str], data: Labelled) -> Tagged:
    """What is in some files, laid out as is said, or as their first lines tell."""
    missing = [file for file in files if not Path(file).is_file()]
    if missing:
        raise InputError(f"{missing[0]!r} is not there, or no file; check the path.")
    layout = data.layout or layout_of(Path(files[0]))
    if layout is None:
        raise InputError(
            f"{files[0]!r} has no labels that are told by its first lines; give CoNLL-U, a word and a label on each "
            f"line with an empty one between sentences, or a text, a tab and a label; or say data.layout."
        )
    return read_tagged(files, layout, data.column)


def _beside(files: Sequence[str], part: str) -> list[str]:
    """The file of another part that stands beside that to train on: en-ud-dev.conllu beside en-ud-train.conllu."""
    if len(files) != 1:
        return []
    file = Path(files[0])
    names = NAMES["validation"] if part == "validation" else NAMES["test"]
    match = re.search(rf"(?<![a-z])({'|'.join(NAMES['train'])})(?![a-z])", file.name.lower())
    if match is None:
        return []
    for name in names:
        stem = f"{file.name[: match.start()]}{name}{file.name[match.end() :]}".removesuffix(".gz")
        there = [file.with_name(one) for one in (stem, f"{stem}.gz") if file.with_name(one).is_file()]
        if there:
            return [str(there[0])]
    return []
