"""What a task has to show, as data: a report draws it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Card:
    """A number, and what it is."""

    value: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Titled:
    """A heading, and a sentence under it."""

    title: str
    note: str = ""
    wide: bool = False  # beside no other
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Titled):
    """Rows under columns; a column whose name begins with > is flush right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str = ""  # what is said where there is no row


@dataclass(frozen=True)
class Figure:
    """A picture, bytes (c H W), what is said of it, and where it came from."""

    pixels: Any
    answer: str
    caption: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Confusion(Titled):
    """How often each class (down) got each answer (across), and some of the pictures that did."""

    counts: Sequence[Sequence[int]]
    names: Sequence[str]
    figures: Mapping[tuple[int, int], Sequence[Figure]] = field(default_factory=dict)


@dataclass(frozen=True)
class Bin:
    """The answers that were about equally confident: how many, how confident on average, and how many were right."""

    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Reliability(Titled):
    """How often answers were right, by how confident they were."""

    bins: Sequence[Bin]
    unit: str


@dataclass(frozen=True, kw_only=True)
class Gallery(Titled):
    """Pictures side by side."""

    figures: Sequence[Figure]
    empty: str = ""


Section: TypeAlias = Table | Confusion | Reliability | Gallery
