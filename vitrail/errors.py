"""The one kind of error a user sees, and the "did you mean" that goes with it."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


AGAIN = "take it from its source again"  # the way out, of a file that is damaged


class InputError(ValueError):
    """A mistake its maker can put right: one sentence that names the thing, its value, and a way out."""


def unknown(noun: str, name: object, known: "Iterable[str]") -> InputError:
    """The error for a name that is not among the known ones."""
    names = sorted(set(known))
    close = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    way_out = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}."
    return InputError(f"{noun} {name!r} is not known; {way_out}")
