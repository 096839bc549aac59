"""Every kind of picture is read as what it shows; everything else says what is wrong with it."""

import time

import numpy as np
import pytest
from corpus import SIDE, bad, encoded, good, gradient, write_bad
from PIL import Image, ImageOps

from vitrail.data import Unreadable, read_pixels
from vitrail.data.decode import read_header

SIZE = (SIDE, SIDE + 4)
ODD = {"bits.png", "one-pixel.png", "thin.png"}  # which show something else
CLEAR = {name for name in good() if "alpha" in name}
RGB = np.asarray(gradient()).transpose(2, 0, 1).astype(float)
GREY = np.asarray(gradient("L")).astype(float)
GREY_KINDS = {"grey.jpg", "grey.png", "sixteen.png", "sixteen.tiff", "deep.tiff", "float.tiff", "grey-alpha.png"}


@pytest.mark.parametrize("name", sorted(set(good()) - ODD - CLEAR - {"palette-transparent.png"}))
def test_every_kind_shows_the_same_picture(name):
    """As bytes and as a file, within what its compression or palette loses."""
    pixels = read_pixels(good()[name], SIZE, 3).astype(float)
    expected = np.stack([GREY] * 3) if name in GREY_KINDS else RGB
    loss = {"palette": 12, "gif": 12, "jpg": 12, "jpeg": 12, "webp": 1, "cmyk": 3}
    most = max([loss[word] for word in loss if word in name], default=0)
    if "moving.webp" in name:
        most = 12
    assert pixels.shape == (3, *SIZE)
    assert np.abs(pixels - expected).mean() <= most, np.abs(pixels - expected).mean()


@pytest.mark.parametrize("name", sorted(CLEAR))
def test_what_is_transparent_is_white(name):
    pixels = read_pixels(good()[name], SIZE, 3)
    assert (pixels[:, : SIDE // 2] == 255).all()
    assert (pixels[:, SIDE // 2 :] < 255).any()


def test_a_transparent_entry_of_a_palette_is_white():
    entries = np.asarray(gradient().quantize(64))
    pixels = read_pixels(good()["palette-transparent.png"], SIZE, 3)
    assert (pixels[:, entries == 3] == 255).all()
    assert (pixels[:, entries != 3] < 255).any()


@pytest.mark.parametrize("name", sorted(good()))
def test_every_kind_is_read_at_any_size_and_as_grey(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(good()[name])
    for size in [(7, 7), (32, 16)]:
        assert read_pixels(path, size, 1).shape == (1, *size)
        assert read_pixels(path, size, 3).shape == (3, *size)
    assert read_header(path).grey == (name in GREY_KINDS | {"bits.png"})


def test_16_bits_are_scaled_not_cut():
    """The high byte of a 16-bit picture, as it was made from 8 bits."""
    for name in ("sixteen.png", "sixteen.tiff", "deep.tiff"):
        assert np.array_equal(read_pixels(good()[name], SIZE, 1)[0], GREY.astype(np.uint8))


def test_a_header_counts_the_turn():
    assert read_header(good()["turned.png"]).size == SIZE == read_header(good()["plain.png"]).size


def test_the_middle_is_kept():
    """A wide picture loses its sides, not its shape."""
    pixels = np.zeros((10, 30), np.uint8)
    pixels[:, 10:20] = 255
    assert (read_pixels(encoded(Image.fromarray(pixels), "PNG"), (10, 10), 1) == 255).all()


@pytest.mark.parametrize("size", [(16, 16), (11, 30), (40, 9)])
@pytest.mark.parametrize("kind", ["wide", "high"])
def test_pictures_are_fitted_as_pillow_does(size, kind):
    image = gradient(size=(23, 61) if kind == "wide" else (61, 23))
    across = (size[1], size[0])
    bicubic, ground = Image.Resampling.BICUBIC, (124, 116, 104)
    expected = {
        "crop": ImageOps.fit(image, across, bicubic),
        "pad": ImageOps.pad(image, across, bicubic, color=ground),
        "squash": image.resize(across, bicubic),
    }
    for fit, theirs in expected.items():
        ours = read_pixels(encoded(image, "PNG"), size, 3, fit)
        assert np.abs(ours.astype(int) - np.asarray(theirs).transpose(2, 0, 1)).max() <= 1, fit


def test_a_large_jpeg_decoded_small_is_the_picture():
    """Against Pillow's own full decoding and resizing."""
    noise = np.random.default_rng(0).integers(0, 255, (12, 16, 3)).astype(np.uint8)
    large = Image.fromarray(noise).resize((1600, 1200), Image.Resampling.BICUBIC)
    data = encoded(large, "JPEG", quality=95)
    from io import BytesIO

    with Image.open(BytesIO(data)) as image:
        whole = image.crop((200, 0, 1400, 1200)).resize((64, 64), Image.Resampling.BICUBIC)
    difference = np.abs(read_pixels(data, (64, 64), 3).transpose(1, 2, 0) - np.asarray(whole).astype(float))
    assert difference.mean() < 2


@pytest.mark.parametrize("name", sorted(bad()))
def test_what_is_no_picture_says_why(name):
    began = time.monotonic()
    with pytest.raises(Unreadable) as caught:
        read_pixels(bad()[name], (8, 8), 3)
    assert str(caught.value)
    assert time.monotonic() - began < 20
    if "bomb" in name:
        assert "more than" in str(caught.value)
        assert "pixels" in str(caught.value)
    if "empty" in name:
        assert str(caught.value) == "empty"
    if name in ("cut.jpg", "cut.png", "cut.bmp"):
        assert str(caught.value) == "cut short"


def test_files_that_are_not_files_say_why(tmp_path):
    reasons = {}
    for name in write_bad(tmp_path):
        with pytest.raises(Unreadable) as caught:
            read_pixels(tmp_path / name, (8, 8), 3)
        reasons[name] = str(caught.value)
    assert len(reasons) >= 40
    assert reasons["broken-link.jpg"] == "a link to a file that is not there"
    assert reasons["pipe.jpg"] == "not a regular file"
    assert "loop-link.jpg" in reasons
