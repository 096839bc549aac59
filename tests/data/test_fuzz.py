"""Pictures with something wrong in them, some hundred of each kind: pixels, or a reason; never anything else."""

import os
import warnings

import numpy as np
import pytest
from corpus import deep, encoded, gradient
from mutations import mutated

from vitrail.data import Unreadable, read_pixels
from vitrail.data.decode import read_header

COUNT = int(os.environ.get("VITRAIL_MUTATIONS", "300"))
KINDS = {
    "jpeg": lambda: encoded(gradient(size=(40, 50)), "JPEG"),
    "png": lambda: encoded(gradient("RGBA"), "PNG"),
    "16 bits": lambda: encoded(deep("I;16"), "PNG"),
    "palette": lambda: encoded(gradient().convert("P"), "PNG", transparency=3),
    "gif": lambda: encoded(gradient().convert("P"), "GIF"),
    "webp": lambda: encoded(gradient(), "WEBP"),
    "tiff": lambda: encoded(gradient(), "TIFF", compression="tiff_lzw"),
    "floats": lambda: encoded(deep("F"), "TIFF"),
    "bmp": lambda: encoded(gradient(), "BMP"),
    "ppm": lambda: encoded(gradient(), "PPM"),
    "avif": lambda: encoded(gradient(), "AVIF"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_or_a_reason(kind):
    data, read = KINDS[kind](), 0
    for seed in range(COUNT):
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.filterwarnings("ignore", module=r"PIL\.")
            for look in (read_header, lambda file: read_pixels(file, (8, 12), 3)):
                try:
                    found = look(mutated(data, seed))
                except Unreadable as error:
                    assert str(error)  # noqa: PT017
                else:
                    read += getattr(found, "shape", None) == (3, 8, 12)
    assert 0 < read < COUNT  # some are still pictures, and some are not
