"""Data: where it comes from and how it reaches a model."""

from vitrail.data.batches import Batch, batches
from vitrail.data.embedded import sources
from vitrail.data.pictures import Pictures

__all__ = ["Batch", "Pictures", "batches", "sources"]
