"""Pictures that look almost the same are found, and others are not."""

from io import BytesIO

import numpy as np
import torch
from PIL import Image

from vitrail.data import Pictures
from vitrail.data.duplicates import near_duplicates


def photo(seed, side=96):
    """Smooth shapes, as photos have them, and a little noise."""
    noise = np.random.default_rng(seed)
    small = Image.fromarray(noise.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    smooth = np.asarray(small.resize((side, side), Image.Resampling.BICUBIC))
    return Image.fromarray((smooth * 0.9 + noise.integers(0, 12, (side, side, 3))).astype(np.uint8))


def pictures(images):
    pixels = np.stack([np.asarray(image).transpose(2, 0, 1) for image in images])
    return Pictures.of(torch.from_numpy(pixels), torch.zeros(len(images), dtype=torch.long), ("a",), "some")


def as_jpeg(image, quality=60):
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def test_copies_are_found():
    train = [photo(seed) for seed in range(40)]
    smaller = train[7].resize((48, 48), Image.Resampling.LANCZOS).resize((96, 96), Image.Resampling.BICUBIC)
    test = [photo(100), as_jpeg(train[3]), smaller, photo(101), train[5]]
    found = near_duplicates(pictures(test), pictures(train))
    assert {(one, other) for one, other, _ in found} == {(1, 3), (2, 7)}, "the very same are found elsewhere"
    assert all(alike > 0.995 for _, _, alike in found)


def test_flat_pictures_are_like_nothing():
    flat = [Image.new("RGB", (96, 96), (20 * n, 200, 100)) for n in range(4)]
    assert near_duplicates(pictures(flat), pictures([*flat[1:], photo(0)])) == []
