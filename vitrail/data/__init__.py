"""Data: where it comes from and how it reaches a model."""

from vitrail.data.batches import Batch, Batches, Examples, Rows, stream
from vitrail.data.collection import (
    Aside,
    Found,
    Parts,
    Survey,
    collect,
    in_memory,
    labelled,
    listed,
    read_items,
    survey,
)
from vitrail.data.decode import FITS, Fit, Unreadable, View, read_pixels
from vitrail.data.embedded import from_idx, held_out, read_idx_part, sources
from vitrail.data.idx import idx_parts
from vitrail.data.listing import files_in, find, listed_in
from vitrail.data.normalise import NORMALISATIONS, Normalise
from vitrail.data.pictures import Pictures, unit

__all__ = [
    "FITS",
    "NORMALISATIONS",
    "Aside",
    "Batch",
    "Batches",
    "Examples",
    "Fit",
    "Found",
    "Normalise",
    "Parts",
    "Pictures",
    "Rows",
    "Survey",
    "Unreadable",
    "View",
    "collect",
    "files_in",
    "find",
    "from_idx",
    "held_out",
    "idx_parts",
    "in_memory",
    "labelled",
    "listed",
    "listed_in",
    "read_idx_part",
    "read_items",
    "read_pixels",
    "sources",
    "stream",
    "survey",
    "unit",
]
