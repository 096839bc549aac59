"""Data by name: what works with no download, and what a package of the system brings."""

from collections.abc import Callable
from pathlib import Path

import torch
from einops import rearrange
from sklearn.datasets import load_digits

from vitrail.data.collect import Parts
from vitrail.data.idx import idx_parts, read_pair
from vitrail.data.pictures import Pictures
from vitrail.errors import InputError
from vitrail.registry import Registry

# A source is asked for its parts with a path (or none), and the share and seed of a split where it has none of its own.
Source = Callable[[Path | None, float, int], Parts]
sources: Registry[Source] = Registry("data source")

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
GARMENTS = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@sources.add("digits")
def digits(path: Path | None, share: float, seed: int) -> Parts:
    """1,797 handwritten digits of 8 x 8 pixels, the test part of UCI's optical recognition set, from scikit-learn."""
    if path is not None:
        raise InputError("the digits come with scikit-learn, so data.path has no meaning for them; leave it out.")
    pixels, labels = load_digits(return_X_y=True)
    images = rearrange((torch.from_numpy(pixels) * 255 / 16).round().byte(), "m (y x) -> m 1 y x", y=8)
    everything = Pictures.of(images, torch.from_numpy(labels), "0123456789", "digit")
    train, test = everything.split(share, seed)
    return Parts(train, test, "scikit-learn's digits", len(everything), sizes=((8, 8),) * 3)


@sources.add("fashion")
def fashion(path: Path | None, share: float, seed: int) -> Parts:
    """Fashion-MNIST (Xiao et al. 2017): 60,000 grey pictures of 28 x 28 to train on, 10,000 to test on, 10 garments."""
    folder = path or DEBIAN
    if set(idx_parts(folder)) != {"train", "test"}:
        raise InputError(
            f"Fashion-MNIST is not in {str(folder)!r}; install Debian's package dataset-fashion-mnist, or give with "
            f"--data the folder that holds its four files, such as train-images-idx3-ubyte.gz."
        )
    return from_idx(folder, share, seed, GARMENTS)


def from_idx(folder: Path, share: float, seed: int, names: tuple[str, ...] = ()) -> Parts:
    """The idx files of a folder; without files to test on, a share of those to train on."""
    parts = idx_parts(folder)
    train = _pictures(*parts["train"], names, "train")
    if "test" not in parts:
        kept, held = train.split(share, seed)
        found = len(train)
    else:
        kept, held = train, _pictures(*parts["test"], train.names, "test")
        held = held.fitted((train.store.shape[2], train.store.shape[3]), 1)
        found = len(kept) + len(held)
    size = (int(train.store.shape[2]), int(train.store.shape[3]))
    return Parts(kept, held, "idx files", found, sizes=(size,) * 3)


def _pictures(images: Path, labels: Path, names: tuple[str, ...], part: str) -> Pictures:
    pixels, classes = read_pair(images, labels)
    names = names or tuple(str(number) for number in range(int(classes.max()) + 1))
    if int(classes.max()) >= len(names):
        raise InputError(f"{str(labels)!r} holds label {int(classes.max())}, and there are {len(names)} classes.")
    return Pictures.of(pixels, classes, names, part)
