"""Shapes with a name."""

from vitrail.families.catalogue import presets
from vitrail.families.gpt.config import GPTConfig


def preset(name: str, width: int, depth: int, heads: int, *, tokens: int = 50_257, length: int = 1024) -> None:
    """Name a shape, whose hidden width is four times its width."""
    shape = {"width": width, "depth": depth, "heads": heads, "hidden": 4 * width, "tokens": tokens, "length": length}
    presets.add(name)((GPTConfig, {**shape, "norm_last": True}))


preset("gpt-tiny", 128, 4, 4, tokens=8_000, length=256)  # for small corpora
preset("gpt-small", 384, 6, 6, tokens=16_000, length=256)
preset("gpt2", 768, 12, 12)  # Radford et al. 2019, table 2
preset("gpt2-medium", 1024, 24, 16)
preset("gpt2-large", 1280, 36, 20)
preset("gpt2-xl", 1600, 48, 25)
