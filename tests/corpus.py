"""Files that a folder of pictures may hold: every kind of picture, and every way to be none."""

import gzip
import os
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 13


def gradient(mode="RGB", size=(SIDE, SIDE + 4)):
    """A picture whose left top is dark and whose right bottom is bright, (down, across)."""
    y, x = np.mgrid[: size[0], : size[1]]
    grey = (20 + 200 * (y + x) / max(1, sum(size) - 2)).astype(np.uint8)
    if mode == "L":
        return Image.fromarray(grey)
    return Image.fromarray(np.stack([grey, grey // 2, 255 - grey], axis=-1)).convert(mode)


def encoded(image, kind, **options):
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(width, height, depth=8, colour=0, rows=None):
    """A PNG from its parts, of any claimed size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows or b"")) + chunk(b"IEND", b"")
    )


def deep(mode):
    """The gradient in 16 bits, in 32 bits, or in floating point from 0 to 1."""
    grey = np.asarray(gradient("L")).astype(np.float64)
    if mode == "F":
        return Image.fromarray((grey / 255).astype(np.float32))
    return Image.fromarray((grey * 257).astype(np.uint16 if mode == "I;16" else np.int32))


def turned():
    """The gradient as a camera on its side writes it: turned, with the EXIF data that turns it back."""
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter to the right
    return encoded(gradient().transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif.tobytes())


def animation(kind):
    frames = [gradient(), gradient().transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:])


def see_through(mode):
    """The gradient with its upper half transparent."""
    image = gradient("RGBA")
    alpha = np.full((SIDE, SIDE + 4), 255, np.uint8)
    alpha[: SIDE // 2] = 0
    image.putalpha(Image.fromarray(alpha))
    return image.convert(mode)


def good():
    """Pictures of every kind that is read, by file name."""
    rgb, grey = gradient(), gradient("L")
    return {
        "plain.jpg": encoded(rgb, "JPEG", quality=95),
        "progressive.jpg": encoded(rgb, "JPEG", quality=95, progressive=True),
        "grey.jpg": encoded(grey, "JPEG", quality=95),
        "cmyk.jpg": encoded(gradient("CMYK"), "JPEG", quality=95),
        "plain.png": encoded(rgb, "PNG"),
        "grey.png": encoded(grey, "PNG"),
        "sixteen.png": encoded(deep("I;16"), "PNG"),
        "bits.png": encoded(grey.convert("1"), "PNG"),
        "palette.png": encoded(rgb.quantize(64), "PNG"),
        "palette-transparent.png": encoded(rgb.quantize(64), "PNG", transparency=3),
        "alpha.png": encoded(see_through("RGBA"), "PNG"),
        "grey-alpha.png": encoded(see_through("LA"), "PNG"),
        "plain.webp": encoded(rgb, "WEBP", lossless=True),
        "alpha.webp": encoded(see_through("RGBA"), "WEBP", lossless=True),
        "moving.webp": animation("WEBP"),
        "plain.bmp": encoded(rgb, "BMP"),
        "plain.gif": encoded(rgb.quantize(128), "GIF"),
        "moving.gif": animation("GIF"),
        "plain.tiff": encoded(rgb, "TIFF"),
        "packed.tiff": encoded(rgb, "TIFF", compression="tiff_lzw"),
        "cmyk.tiff": encoded(gradient("CMYK"), "TIFF"),
        "sixteen.tiff": encoded(deep("I;16"), "TIFF"),
        "deep.tiff": encoded(deep("I"), "TIFF"),
        "float.tiff": encoded(deep("F"), "TIFF"),
        "plain.ppm": encoded(rgb, "PPM"),
        "turned.png": turned(),
        "really-a-png.jpg": encoded(rgb, "PNG"),
        "really-a-jpeg.txt": encoded(rgb, "JPEG", quality=95),
        "no-extension": encoded(rgb, "PNG"),
        "pïcture ☃.png": encoded(rgb, "PNG"),
        "one-pixel.png": encoded(gradient(size=(1, 1)), "PNG"),
        "thin.png": encoded(gradient(size=(1, 500)), "PNG"),
    }


def bad():
    """Files that are no pictures, or no longer, by file name."""
    rgb = gradient(size=(40, 40))
    jpeg, plain, gif, webp = (encoded(rgb, kind) for kind in ("JPEG", "PNG", "GIF", "WEBP"))
    tiff, bmp = encoded(rgb, "TIFF"), encoded(rgb, "BMP")
    float_nan = Image.fromarray(np.full((5, 5), np.nan, np.float32))
    noise = np.random.default_rng(0).bytes(3000)
    return {
        "empty.jpg": b"",
        "empty.png": b"",
        "one-byte.jpg": b"\xff",
        "header-only.jpg": jpeg[:20],
        "cut.jpg": jpeg[: len(jpeg) * 2 // 3],
        "cut.png": plain[: len(plain) // 2],
        "cut.gif": gif[: len(gif) // 2],
        "cut.webp": webp[: len(webp) // 2],
        "cut.tiff": tiff[: len(tiff) // 3],
        "cut.bmp": bmp[: len(bmp) // 2],
        "broken-sum.png": plain[:40] + bytes([plain[40] ^ 0xFF]) + plain[41:],
        "signature-only.png": plain[:8],
        "no-pixels.png": png(7, 7),
        "bomb.png": png(60_000, 60_000),
        "bomb-smaller.png": png(11_000, 11_000),
        "bomb.gif": b"GIF89a"
        + struct.pack("<HH", 65535, 65535)
        + b"\x80\0\0"
        + b"\0" * 6
        + b",\0\0\0\0"
        + b"\xff" * 4
        + b"\0\x02\0;",
        "bomb.bmp": b"BM"
        + struct.pack("<IHHI", 100, 0, 0, 54)
        + struct.pack("<IiiHHI", 40, 40_000, 40_000, 1, 24, 0)
        + b"\0" * 24,
        "text.jpg": b"This is not a picture.\n",
        "text.txt": b"Notes on the pictures.\n",
        "page.png": b"<!doctype html><title>404 Not Found</title>",
        "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "program.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
        "document.pdf": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n",
        "archive.zip": b"PK\x03\x04" + b"\0" * 26,
        "packed.jpg.gz": gzip.compress(jpeg),
        "noise.jpg": noise,
        "noise-after-header.png": plain[:60] + noise,
        "noise-in-jpeg.webp": webp[:30] + noise,
        "zeros.png": b"\0" * 4096,
        "nan.tiff": encoded(float_nan, "TIFF"),
        "table.csv": b"a,b\n1,2\n",
        "script.py": b"print('no')\n",
        "movie.mp4": b"\0\0\0\x18ftypmp42" + b"\0" * 64,
        "picture.psd": b"8BPS\0\x01" + b"\0" * 20,
        "icon.ico": b"\0\0\x01\0\x01\0\x10\x10" + b"\0" * 20,
        "half-a-palette.bmp": bmp[:30],
        "letters.jpg": "Привет, мир".encode(),
        "just-newlines.png": b"\n" * 100,
        "riff-without-picture.webp": b"RIFF\x10\0\0\0WEBP" + b"\0" * 8,
        "no-frames.gif": b"GIF89a\x05\0\x05\0\0\0\0;",
        "picture.heic": b"\0\0\0\x18ftypheic" + b"\0" * 64,
    }


def write_bad(folder):
    """All bad files in a folder, and those that no bytes can make: links, pipes. Their names."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in bad().items():
        (folder / name).write_bytes(data)
    (folder / os.fsdecode(b"no-\xff-text.jpg")).write_bytes(b"not a picture")  # a name that is not UTF-8
    (folder / "broken-link.jpg").symlink_to("nowhere.jpg")
    (folder / "folder-link.jpg").symlink_to(".", target_is_directory=True)
    (folder / "loop-link.jpg").symlink_to("loop-link.jpg")
    os.mkfifo(folder / "pipe.jpg")
    names = [
        *bad(),
        os.fsdecode(b"no-\xff-text.jpg"),
        "broken-link.jpg",
        "folder-link.jpg",
        "loop-link.jpg",
        "pipe.jpg",
    ]
    if os.geteuid():  # root reads everything
        (folder / "locked.png").write_bytes(encoded(gradient(), "PNG"))
        (folder / "locked.png").chmod(0)
        names.append("locked.png")
    return names


def write_classes(folder, counts, size=(SIDE, SIDE), seed=0):
    """A folder for each class, with noisy pictures in a colour of its own; no two are the same."""
    noise = np.random.default_rng(seed)
    colours = {name: noise.integers(0, 200, 3) for name in counts}
    for name, count in counts.items():
        (Path(folder) / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            pixels = (colours[name] + noise.integers(0, 50, (*size, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(Path(folder) / name / f"{number:03}.png")
    return Path(folder)
