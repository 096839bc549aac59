"""The files that a shrunk run answers by: of eight bits, but for what that would cost too much."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.errors import InputError
from vitrail.files import make_folder
from vitrail.progress import Progress
from vitrail.shrink.int8 import products, quantize_onnx, sensitive
from vitrail.shrink.ranges import apart, even
from vitrail.weights import Weights
from vitrail.weights.onnx import save_onnx
from vitrail.weights.onnx_translator import save_translator, takes_steps

FLOAT = (0.05, 0.15, 0.3)  # fractions of the products, the most sensitive ones, that may stay as they are

Kept = Mapping[Path, Sequence[str]]  # of a file, the products that stay as they are


class NoFile(InputError):  # noqa: N818
    """A model has a part that no such file can hold."""


def runs_as_bytes(weights: Weights) -> bool:
    """Whether there are such files of a model."""
    return weights.family in ("vit", "cnn") or (weights.family == "seq2seq" and takes_steps(weights.config))


def write_whole(weights: Weights, folder: Path, most: Mapping[str, Tensor] | None = None) -> list[Path]:
    """A model as files that ONNX Runtime runs, its products as they are; their ranges made even, where it is known what
    comes into them (``ranges.column_maxima``).
    """
    path = make_folder(folder) / "model.onnx"
    try:
        if weights.family == "seq2seq":
            return save_translator(weights, folder, small=True)
        same = even(weights, most) if most else weights
        save_onnx(same, path, own=True, apart=apart(same, most) if most else None)
    except InputError as error:
        raise NoFile(str(error)) from None
    return [path]


def small_name(path: Path) -> str:
    """What such a file of eight bits is called."""
    return f"{path.stem}.int8.onnx.gz"


def quantize_all(files: Sequence[Path], kept: Kept, folder: Path) -> None:
    """The same in eight bits, but for some products."""
    for file in files:
        quantize_onnx(file, folder / small_name(file), kept.get(file, ()))


def keeping(files: Sequence[Path], pictures: Callable[[], Any], progress: Progress) -> Iterator[tuple[Kept, str]]:
    """What may stay as it is, more and more, and how that is said: nothing at first."""
    yield {}, ""
    every = {file: products(file) for file in files}
    last = files[-1]
    if not every[last]:
        return
    if len(files) > 1:  # a translator, whose last product says the tokens
        yield {last: every[last][-1:]}, ", but for the product that says the tokens"
        return
    ordered = sensitive(last, pictures(), progress)
    for fraction in FLOAT:
        some = ordered[: max(1, round(fraction * len(ordered)))]
        yield {last: some}, f", but for {len(some)} of {len(ordered)} products"
