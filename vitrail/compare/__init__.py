"""Many runs beside each other: what differs between them, and what is noise."""

from typing import TYPE_CHECKING

from vitrail.lazy import loader

if TYPE_CHECKING:
    from vitrail.compare.comparison import compare

__all__ = ["compare"]

__getattr__ = loader(__name__, {"compare": "vitrail.compare.comparison"})
