"""Shapes with a name."""

from typing import Literal

from vitrail.families.catalogue import presets
from vitrail.families.seq2seq.config import Seq2SeqConfig


def preset(name: str, order: Literal["pre", "post"], **shape: int) -> None:
    """Name a shape, whose decoder is as deep as its encoder."""
    rest = {"order": order, "norm_last": order == "pre", "shared": True}
    presets.add(name)((Seq2SeqConfig, {**shape, "decoder": shape["depth"], **rest}))


preset("seq2seq-tiny", "pre", width=128, depth=4, heads=4, hidden=256)  # for small corpora: as in Wu et al. 2021
preset("seq2seq-small", "pre", width=256, depth=4, heads=4, hidden=1024)
preset("seq2seq-base", "post", width=512, depth=6, heads=8, hidden=2048)  # Vaswani et al. 2017, table 3
preset("seq2seq-big", "post", width=1024, depth=6, heads=16, hidden=4096)
