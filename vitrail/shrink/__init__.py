"""Models made smaller and faster, with what that cost measured before and after.

``from vitrail.shrink import shrink`` is the command ``vitrail shrink`` in Python.
"""

from typing import TYPE_CHECKING

from vitrail.lazy import loader

if TYPE_CHECKING:
    from vitrail.shrink.shrinking import shrink

__all__ = ["shrink"]
__getattr__ = loader(__name__, {"shrink": "vitrail.shrink.shrinking"})
