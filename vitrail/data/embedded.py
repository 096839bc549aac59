"""What works with no download."""

from collections.abc import Callable

import torch
from einops import rearrange
from sklearn.datasets import load_digits

from vitrail.data.pictures import Pictures
from vitrail.registry import Registry

sources: Registry[Callable[[], Pictures]] = Registry("data source")


@sources.add("digits")
def digits() -> Pictures:
    """1,797 handwritten digits of 8 x 8 pixels, the test part of UCI's optical recognition set, from scikit-learn."""
    pixels, labels = load_digits(return_X_y=True)
    images = rearrange(torch.from_numpy(pixels).float() / 16, "m (y x) -> m 1 y x", y=8)
    return Pictures(images, torch.from_numpy(labels), tuple("0123456789"))
