"""Data by name: what works with no download, and what a package of the system brings."""

from collections.abc import Callable
from pathlib import Path

import torch
from einops import rearrange

from vitrail.data.collection import Aside, Parts
from vitrail.data.idx import idx_parts, read_pair
from vitrail.data.pictures import Pictures
from vitrail.errors import InputError
from vitrail.registry import Registry

# Asked for its parts with a path (or none), and the fraction and seed of a split where it has none of its own.
Source = Callable[[Path | None, float, int], Parts]
sources: Registry[Source] = Registry("data source")

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
GARMENTS = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@sources.add("digits")
def digits(path: Path | None, fraction: float, seed: int) -> Parts:
    """1,797 handwritten digits of 8 x 8 pixels, the test part of UCI's optical recognition set, from scikit-learn."""
    if path is not None:
        raise InputError("the digits come with scikit-learn, so data.path has no meaning for them; leave it out.")
    from sklearn.datasets import load_digits  # noqa: PLC0415  # a second, for those who use it

    pixels, labels = load_digits(return_X_y=True)
    images = rearrange((torch.from_numpy(pixels) * 255 / 16).round().byte(), "m (y x) -> m 1 y x", y=8)
    everything = Pictures.of(images, torch.from_numpy(labels), "0123456789", "digit")
    train, test = everything.split(fraction, seed)
    return Parts(train, test, "scikit-learn's digits", len(everything), sizes=((8, 8),) * 3)


@sources.add("fashion")
def fashion(path: Path | None, fraction: float, seed: int) -> Parts:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 grey pictures of 28 x 28 to train on, 10,000 to test on, 10 garments."""
    folder = path or DEBIAN
    if set(idx_parts(folder)) != {"train", "test"}:
        raise InputError(
            f"Fashion-MNIST is not in {str(folder)!r}; install Debian's package dataset-fashion-mnist, or give with "
            f"--data the folder that holds its four files, such as train-images-idx3-ubyte.gz."
        )
    return from_idx(folder, fraction, seed, GARMENTS)


def held_out(source: str, path: Path | None, fraction: float, seed: int) -> tuple[Pictures, str]:
    """The part of a known set, or of idx files, to measure on, and its name; files of its own alone are read."""
    folder = (path or DEBIAN) if source == "fashion" else path
    apart = {} if folder is None else idx_parts(folder)
    for part in ("test", "validation"):
        if part in apart:
            return _pictures(*apart[part], GARMENTS if source == "fashion" else (), part), part
    parts = sources[source](path, fraction, seed) if source in sources else from_idx(path or DEBIAN, fraction, seed)
    return parts.test, parts.held


def from_idx(folder: Path, fraction: float, seed: int, names: tuple[str, ...] = ()) -> Parts:
    """The idx files of a folder; without files to test on, a fraction of those to train on. Without names, numbers."""
    parts = idx_parts(folder)
    everything = _pictures(*parts["train"], names, "train").present()
    size = (int(everything.store.shape[2]), int(everything.store.shape[3]))
    part = "validation" if "validation" in parts else "test"
    if part not in parts:
        train, test = everything.split(fraction, seed)
        return Parts(train, test, "idx files", len(everything), sizes=(size,) * 3)
    left = f"the test part of {folder}" if part != "test" and "test" in parts else ""
    held = _pictures(*parts[part], names, part)
    known = held.among(everything.names)
    aside = [Aside(file, "of a class without a picture to train on") for file in sorted({*held.files} - {*known.files})]
    test = known.fitted(size, 1)
    return Parts(everything, test, "idx files", len(everything) + len(held), aside, part, left, sizes=(size,) * 3)


def read_idx_part(folder: Path) -> tuple[Pictures, str]:
    """The part of a folder's idx files that is to measure on, or the only one that is there; and its name."""
    parts = idx_parts(folder)
    part = next(name for name in ("test", "validation", "train") if name in parts)
    return _pictures(*parts[part], (), "picture"), part


def _pictures(images: Path, labels: Path, names: tuple[str, ...], part: str) -> Pictures:
    pixels, classes = read_pair(images, labels)
    names = names or tuple(str(number) for number in range(256))
    if int(classes.max()) >= len(names):
        raise InputError(f"{str(labels)!r} holds label {int(classes.max())}, and there are {len(names)} classes.")
    return Pictures.of(pixels, classes, names, part)
