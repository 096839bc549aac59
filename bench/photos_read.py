"""Decoding a folder of photos of 3 megapixels to small pictures: pictures a second on one core.

.venv/bin/python bench/photos_read.py

The usual way is to open, convert to RGB and resize; ours is what `vitrail train` does with each file. In turn, file by
file, on one thread; medians.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from vitrail.data import read_pixels


def write_photos(folder: Path, count: int) -> list[Path]:
    """JPEGs of 2048 x 1536 from the two photos that come with scikit-learn, each another part of one."""
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    chance, files = np.random.default_rng(0), []
    for number in range(count):
        photo = photos[number % 2]
        left, top = (int(chance.integers(0, 1 + side // 4)) for side in photo.size)
        part = photo.crop((left, top, left + photo.width * 3 // 4, top + photo.height * 3 // 4))
        files.append(folder / f"{number}.jpg")
        part.resize((2048, 1536), Image.Resampling.BICUBIC).save(files[-1], quality=90)
    return files


def usual(file: Path, size: int) -> np.ndarray:
    """Open, convert, resize."""
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC))


def ours(file: Path, size: int) -> np.ndarray:
    """As a training reads it."""
    return read_pixels(file, (size, size), 3)


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 224])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = write_photos(Path(folder), options.pictures)
        print("| size | usual, pictures/s | vitrail, pictures/s | ratio |\n| ---: | ---: | ---: | ---: |")
        for size in options.sizes:
            times: tuple[list[float], list[float]] = ([], [])
            for file in files:
                for read, taken in zip((usual, ours), times, strict=True):
                    began = time.perf_counter()
                    read(file, size)
                    taken.append(time.perf_counter() - began)
            slow, fast = map(statistics.median, times)
            print(f"| {size} | {1 / slow:.1f} | {1 / fast:.1f} | {slow / fast:.1f} |", flush=True)


if __name__ == "__main__":
    main()
