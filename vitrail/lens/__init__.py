"""Looking inside: what a model attends to, and what happens if that is changed."""

from vitrail.lens.edit import Edits, edit
from vitrail.lens.record import Trace, record

__all__ = ["Edits", "Trace", "edit", "record"]
