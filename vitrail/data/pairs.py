"""Sentences in pairs: from two files line by line, from a table of two columns, or by name."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vitrail.data.collection import Aside
from vitrail.data.listing import NAMES
from vitrail.data.text import Undecodable, clean, read_lines
from vitrail.errors import InputError
from vitrail.registry import Registry

MOST = 2_000  # pairs that are held out to measure on, where they come in one part
EXAMPLES = 3  # lines that are named of each thing that is wrong with them


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sentences and their translations, and the lines of the files that they stand on."""

    sources: list[str]
    targets: list[str]
    lines: list[int]
    name: str = ""  # of the file, or files
    total: int = 0  # lines of it, with those that could not be used

    def __len__(self) -> int:
        return len(self.sources)

    def at(self, rows: Sequence[int]) -> "Pairs":
        """Some of them."""
        return replace(
            self,
            sources=[self.sources[row] for row in rows],
            targets=[self.targets[row] for row in rows],
            lines=[self.lines[row] for row in rows],
        )


@dataclass(frozen=True, eq=False)
class PairParts:
    """Pairs to learn from and to measure on: what part those are, and what could not be used."""

    train: Pairs
    held: Pairs
    part: str = "test"  # that is held out: validation, where another one is left for later
    later: Pairs | None = None  # to test on at the end
    aside: list[Aside] = field(default_factory=list)  # of the files to train on
    held_aside: list[Aside] = field(default_factory=list)
    later_aside: list[Aside] = field(default_factory=list)
    cut: bool = False  # whether both parts are from the same files
    origin: str = ""
    total: int = 0  # lines of the files to train on

    @property
    def wrong(self) -> int:
        """How many of them could not be used."""
        return self.total - len(self.train) - (len(self.held) if self.cut else 0)


# Asked for its parts by a seed.
PairSource = Callable[[int], PairParts]
pair_sources: Registry[PairSource] = Registry("data source", homes=("vitrail.data.dates",))


def read_pairs(files: Sequence[str]) -> tuple[Pairs, list[Aside]]:
    """Pairs from two files that go together line by line, or from one of two columns with a tab between them."""
    if len(files) == 1:
        sources, targets = _columns(Path(files[0]))
    elif len(files) == 2:  # noqa: PLR2004
        sources, targets = (read_lines(Path(file)) for file in files)
        if len(sources) != len(targets):
            raise InputError(
                f"{files[0]!r} has {len(sources):,} lines and {files[1]!r} {len(targets):,}; they should go together "
                f"line by line."
            )
    else:
        raise InputError(f"{len(files)} files are given; give two that go together line by line, or one table.")
    name = " and ".join(Path(file).name for file in files)
    return _usable(sources, targets, name)


def _usable(sources: list[str], targets: list[str], name: str) -> tuple[Pairs, list[Aside]]:
    """Without the pairs of which a side is empty, or not UTF-8: counted, with the first of them by their lines."""
    wrong: dict[str, list[int]] = {}
    kept: list[int] = []
    for row, pair in enumerate(zip(sources, targets, strict=True)):
        if any(isinstance(side, Undecodable) for side in pair):
            wrong.setdefault("not UTF-8", []).append(row + 1)
        elif not all(side.strip() for side in pair):
            wrong.setdefault("empty, on one side or both", []).append(row + 1)
        else:
            kept.append(row)
    aside = [set_aside(name, lines, why) for why, lines in wrong.items()]
    if not kept:
        raise InputError(f"{name} hold no pair of sentences that can be used; the first line is not: {aside[0].why}.")
    ours, theirs = ([clean(side[row]) for row in kept] for side in (sources, targets))
    return Pairs(ours, theirs, [row + 1 for row in kept], name, len(sources)), aside


def set_aside(name: str, lines: Sequence[int], why: str) -> Aside:
    """Lines that are not used, counted, the first of them named."""
    some = ", ".join(f"{line:,}" for line in lines[:EXAMPLES]) + ", ..." * (len(lines) > EXAMPLES)
    count = f"{len(lines):,} line{'s' * (len(lines) > 1)}"
    return Aside(f"{count} of {name} ({some})", why, unreadable=True)


def _columns(path: Path) -> tuple[list[str], list[str]]:
    rows = [line if isinstance(line, Undecodable) else line.split("\t") for line in read_lines(path)]
    widths = Counter(len(row) for row in rows if isinstance(row, list))
    if not widths or widths.most_common(1)[0][0] < 2:  # noqa: PLR2004
        raise InputError(f"{str(path)!r} has no two columns with a tab between them; give a table, or two files.")
    sources, targets = [], []
    for row in rows:
        pair = (row, row) if isinstance(row, str) else (row[0], row[1] if len(row) > 1 else "")
        sources.append(pair[0])
        targets.append(pair[1])
    return sources, targets


def split_pairs(pairs: Pairs, fraction: float, seed: int) -> tuple[Pairs, Pairs]:
    """Pairs to train on, and a fraction of them, drawn by a seed, to measure on: 2,000 at most.

    What has the same source goes into one part.
    """
    unique = list(dict.fromkeys(pairs.sources))
    count = max(1, min(MOST, round(fraction * len(unique))))
    if len(unique) < 2:  # noqa: PLR2004
        raise InputError(f"{pairs.name} has {len(unique)} sentence; two at least are needed, one to measure on.")
    drawn = {unique[row] for row in np.random.default_rng(seed).permutation(len(unique))[:count].tolist()}
    train = [row for row, source in enumerate(pairs.sources) if source not in drawn]
    held = [row for row, source in enumerate(pairs.sources) if source in drawn]
    return pairs.at(train), pairs.at(held)


def beside(files: Sequence[str], part: str) -> list[str] | None:
    """The files of another part that stand beside those to train on: val.en.gz beside train.en.gz."""
    names = NAMES["validation"] if part == "validation" else NAMES["test"]
    every: list[dict[str, str]] = []  # for each language its files, by their stems
    for file in map(Path, files):
        stem, dot, rest = file.name.partition(".")
        if stem.lower() not in NAMES["train"] or not dot or not file.parent.is_dir():
            return None
        others = [other.name.partition(".") for other in file.parent.iterdir() if other.is_file()]
        wanted = sorted(other for other in others if _is_part(other[0], names) and other[2] in _endings(rest))
        every.append({other[0]: str(file.parent / "".join(other)) for other in wanted})
    first = next((stem for stem in every[0] if all(stem in one for one in every)), None)
    return None if first is None else [one[first] for one in every]


def _is_part(stem: str, names: Sequence[str]) -> bool:
    stem = stem.lower()
    return any(stem == one or stem.startswith((f"{one}_", f"{one}-", f"{one}20")) for one in names)


def _endings(rest: str) -> tuple[str, ...]:
    """How the names of files of one language end, packed or not."""
    bare = rest.removesuffix(".gz")
    return rest, bare, f"{bare}.gz"
