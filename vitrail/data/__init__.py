"""Data: where it comes from and how it reaches a model."""

from vitrail.data.augment import augmenter
from vitrail.data.batches import Batch, Batches, stream
from vitrail.data.collect import Aside, Parts, Survey, collect, labelled, listed, survey
from vitrail.data.decode import Unreadable, read_pixels
from vitrail.data.embedded import from_idx, read_idx_part, sources
from vitrail.data.find import files_in, find
from vitrail.data.idx import idx_parts
from vitrail.data.pictures import Normalise, Pictures, unit

__all__ = [
    "Aside",
    "Batch",
    "Batches",
    "Normalise",
    "Parts",
    "Pictures",
    "Survey",
    "Unreadable",
    "augmenter",
    "collect",
    "files_in",
    "find",
    "from_idx",
    "idx_parts",
    "labelled",
    "listed",
    "read_idx_part",
    "read_pixels",
    "sources",
    "stream",
    "survey",
    "unit",
]
