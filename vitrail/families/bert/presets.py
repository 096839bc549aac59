"""Shapes with a name."""

from vitrail.families.bert.config import BERTConfig
from vitrail.families.catalogue import presets


def preset(name: str, width: int, depth: int, heads: int) -> None:
    """Name a shape, whose hidden width is four times its width."""
    shape = {"width": width, "depth": depth, "heads": heads, "hidden": 4 * width, "tokens": 30_522}
    presets.add(name)((BERTConfig, {**shape, "norm_last": False, "pooler": False}))


preset("bert-tiny", 128, 2, 2)  # Turc et al. 2019
preset("bert-mini", 256, 4, 4)
preset("bert-small", 512, 4, 8)
preset("bert-medium", 512, 8, 8)
preset("bert-base", 768, 12, 12)  # Devlin et al. 2019
preset("bert-large", 1024, 24, 16)
preset("minilm-l6", 384, 6, 12)  # Wang et al. 2020
