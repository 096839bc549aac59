"""Looking inside."""

from vitrail.lens.record import Trace, record

__all__ = ["Trace", "record"]
