"""A picture file to pixels, whatever camera, editor or decade it comes from.

What the file holds decides, not its name. Formats that run a program to be read (such as EPS) are not opened.
"""

import ctypes
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Literal, get_args

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

Size = tuple[int, int]  # down, across
Pixels = NDArray[np.uint8]  # c H W
Fit = Literal["crop", "pad", "squash"]  # the middle of a picture; all of it, on a ground; all of it, out of shape
FITS: tuple[Fit, ...] = get_args(Fit)

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")
LIMIT = 89_478_485  # pixels, Pillow's own: a file of some kilobytes may unpack to any number of them
LARGE, BAND = 2**24, 2**20  # pixels of a picture that is taken in bands, and of a band
_WHITE = 255
GROUND = (124, 116, 104)  # around a picture that is padded: the mean of ImageNet, which models take for nothing
_ALONE = Lock()  # large pictures are decoded one at a time, however many threads there are


class Unreadable(Exception):  # noqa: N818  # what it says of a file, not of the program
    """Why a file cannot be used as a picture."""


@dataclass(frozen=True)
class View:
    """How pictures are made for a model: their size (down, across), grey or colour, and what is seen of each."""

    size: Size
    channels: int
    fit: Fit = "crop"


@dataclass(frozen=True)
class Header:
    """What a file says of its picture before the pixels are read."""

    size: Size
    grey: bool


def read_header(file: Path | bytes) -> Header:
    """The size and kind of a picture, turned as its EXIF data says."""
    with _opened(file) as image:
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # by a quarter, so that down and across change places
        size = image.size if turned else (image.height, image.width)
        return Header(size, image.mode in _GREY)


def read_pixels(file: Path | bytes, size: Size, channels: int, fit: Fit = "crop") -> Pixels:
    """A picture at a size (down, across), as far as it fits; grey if channels is 1.

    A JPEG is decoded at the smallest of 1/1, 1/2, 1/4, 1/8 of its size that is no smaller than what is asked for.
    """
    with _opened(file) as image:
        image.draft(None, (max(size), max(size)))  # None: whatever its colours
        if image.width * image.height > LARGE:
            with _ALONE:
                image = _reduced(image, size, fit)  # noqa: PLW2901
        else:
            image = _plain(ImageOps.exif_transpose(image))  # noqa: PLW2901
        if _xy(image) != size:
            image = _fitted(image, (0, 0, image.width, image.height), size, fit)  # noqa: PLW2901
        return to_channels(np.asarray(image), channels)


def to_channels(pixels: Pixels, channels: int) -> Pixels:
    """(H W) or (H W 3) -> (c H W): grey by ITU-R 601 from colour, colour by repetition from grey."""
    if pixels.ndim == 2:  # noqa: PLR2004
        return np.repeat(pixels[None], channels, axis=0)
    if channels == 1:
        return np.asarray(Image.fromarray(pixels).convert("L"))[None]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _fitted(image: Image.Image, box: tuple[float, float, float, float], size: Size, fit: Fit) -> Image.Image:
    """What a box of an image holds, at a size."""
    left, top, right, bottom = box
    wide, high = right - left, bottom - top
    if fit == "crop":
        scale = min(wide / size[1], high / size[0])
        across, down = min(wide, scale * size[1]), min(high, scale * size[0])  # which rounding may make larger
        left, top = left + (wide - across) / 2, top + (high - down) / 2
        box = (left, top, left + across, top + down)
    scale = max(wide / size[1], high / size[0])
    inner = (max(1, round(high / scale)), max(1, round(wide / scale))) if fit == "pad" else size
    small = image.resize((inner[1], inner[0]), Image.Resampling.BICUBIC, box)
    if inner == size:
        return small
    ground = GROUND if image.mode == "RGB" else round(sum(GROUND) / len(GROUND))
    whole = Image.new(image.mode, (size[1], size[0]), ground)
    whole.paste(small, (round((size[1] - inner[1]) / 2), round((size[0] - inner[0]) / 2)))
    return whole


def _reduced(image: Image.Image, size: Size, fit: Fit) -> Image.Image:
    """A large picture at a size: some rows at a time made smaller by a whole number, to three times the size at least,
    which cannot be told from the whole made smaller at once.

    All of its pixels are in memory once, as its file has them, and never again as something else.
    """
    image.load()  # before which a TIFF does not say how it is turned
    turned = _TURNS.get(image.getexif().get(0x0112, 1))
    sides = size if turned not in _QUARTERS else size[::-1]
    factor = max(1, min(image.height // (3 * sides[0]), image.width // (3 * sides[1])))
    rows = max(1, BAND // (image.width * factor)) * factor
    boxes = [(0, top, image.width, min(top + rows, image.height)) for top in range(0, image.height, rows)]
    top = max(_top(image.crop(box)) for box in boxes) if image.mode in _DEEP else 0.0
    bands = [np.asarray(_plain(image.crop(box), top).reduce(factor)) for box in boxes]
    box = (0, 0, image.width / factor, image.height / factor)  # of which the last pixels may be a part
    small = _fitted(Image.fromarray(np.concatenate(bands)), box, sides, fit)
    return small if turned is None else small.transpose(turned)


_TURNS = {  # by the EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_QUARTERS = {_TURNS[number] for number in (5, 6, 7, 8)}  # by which down and across change places

_GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"}
_DEEP = {"I", "I;16", "I;16L", "I;16B", "I;16N", "F"}


def _xy(image: Image.Image) -> Size:
    return image.height, image.width


@contextmanager
def _opened(file: Path | bytes) -> Iterator[Image.Image]:
    """The picture in a file; all that can be wrong with it becomes one kind of error with a reason."""
    try:
        with _open(file) as image:
            yield image
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable("not a picture of a kind that is read here") from None
    except Image.DecompressionBombError:
        raise Unreadable(f"more than {2 * LIMIT:,} pixels") from None
    except FileNotFoundError:
        link = isinstance(file, Path) and file.is_symlink()
        raise Unreadable("a link to a file that is not there" if link else "not there") from None
    except OSError as error:
        raise Unreadable(_reason(error)) from None
    except MemoryError:
        raise Unreadable("more pixels than memory holds") from None
    except Exception as error:  # noqa: BLE001  # a damaged file can make a decoder fail in any way
        raise Unreadable(f"damaged ({type(error).__name__}: {error})") from None


def _open(file: Path | bytes) -> Image.Image:
    if isinstance(file, bytes):
        if not file:
            raise Unreadable("empty")
        source: Path | BytesIO = BytesIO(file)
    else:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, without end
            raise Unreadable("not a regular file")
        if not status.st_size:
            raise Unreadable("empty")
        source = file
    image = Image.open(source, formats=FORMATS)
    if image.format == "TIFF":
        _quiet_libtiff()
    most = 2 * LIMIT if image.format == "JPEG" else LIMIT  # which is not unpacked whole
    if image.width * image.height > most:
        image.close()
        raise Unreadable(f"{image.width * image.height:,} pixels, more than {most:,}")
    return image


@cache
def _quiet_libtiff() -> None:
    """What is wrong with a TIFF is said in our own words: the library that Pillow brings says it on the terminal."""
    for file in (Path(PIL.__file__).parent.parent / "pillow.libs").glob("libtiff*"):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(str(file))
            library.TIFFSetErrorHandler(None)
            library.TIFFSetWarningHandler(None)


def _reason(error: OSError) -> str:
    if error.strerror:
        return error.strerror.lower()
    text = str(error)
    return "cut short" if "truncated" in text.lower() or "not enough" in text.lower() else f"damaged ({text})"


def _plain(image: Image.Image, top: float | None = None) -> Image.Image:
    """8 bits a channel, grey (L) or colour (RGB), with what is transparent on white.

    Of a part of a picture with deeper pixels the largest of the whole is to be given.
    """
    if image.mode in _DEEP:
        return _eight_bits(image, _top(image) if top is None else top)
    if image.has_transparency_data:
        under = Image.new("RGBA", image.size, (_WHITE, _WHITE, _WHITE, _WHITE))
        flat = Image.alpha_composite(under, image.convert("RGBA"))
        return flat.convert("L" if image.mode in _GREY else "RGB")
    if image.mode in _GREY:
        return image.convert("L")
    return image.convert("RGB")


def _top(image: Image.Image) -> float:
    """The largest pixel."""
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise Unreadable("pixels that are not numbers")
    return float(values.max())


def _eight_bits(image: Image.Image, top: float) -> Image.Image:
    """Deeper pixels scaled to 0..255: from 16 bits, from 0..1, or as they are where they fit."""
    values = np.asarray(image).astype(np.float64)
    if image.mode.startswith("I;16"):
        scale = 255 / 65535
    elif image.mode == "F" and top <= 1:
        scale = 255.0
    else:
        scale = 1.0 if top <= 255 else 255 / max(65535, top)  # noqa: PLR2004
    return Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))
