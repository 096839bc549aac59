"""How work of many parts is shown while it is done, and how much of a long list."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
NAMED = 10  # things that are named one by one


class Progress(Protocol):
    """The items, one by one as they are asked for, and meanwhile a sign of how many are done."""

    def __call__(self, what: str, items: Iterable[T], total: int) -> Iterable[T]: ...


def silent(what: str, items: Iterable[T], total: int) -> Iterable[T]:  # noqa: ARG001
    """The items, with nothing shown."""
    return items


def first_of(lines: Sequence[str]) -> list[str]:
    """The first lines of a list, and how many more there are."""
    more = len(lines) - NAMED
    return [*lines[:NAMED], *([f"... and {more:,} more"] if more > 0 else [])]
