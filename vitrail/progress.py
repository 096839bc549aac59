"""How work of many parts is shown while it is done."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """The items, one by one as they are asked for, and meanwhile a sign of how many are done."""

    def __call__(self, what: str, items: Iterable[T], total: int) -> Iterable[T]: ...


def silent(what: str, items: Iterable[T], total: int) -> Iterable[T]:  # noqa: ARG001
    """The items, with nothing shown."""
    return items
