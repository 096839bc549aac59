"""Models as ONNX files: written with all that they are used with, and run by ONNX Runtime.

A file takes pictures with values from 0 to 1, as many and as large as they come, and says what it answers (logits) and
what its head is given (features); it normalises them itself. What it is, and what its classes are called, is in its
metadata, under ``vitrail``.
"""

import io
import json
import logging
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.data.normalise import Normalise
from vitrail.errors import AGAIN, InputError
from vitrail.families import families
from vitrail.families.picture_model import PictureModel
from vitrail.files import whole
from vitrail.weights.onnx_fused import fused
from vitrail.weights.weights import (
    Usage,
    Weights,
    checked_config,
    described,
    normalisation,
    stated_fit,
    stated_labels,
)

KEY = "vitrail"  # of what the metadata say
LARGEST = 1_500_000_000  # bytes of weights in one file
SIDES = 4096  # patches down and across, at most
INPUT, OUTPUTS = "pictures", ("logits", "features")


def save_onnx(
    weights: Weights, path: Path, *, own: bool = False, apart: Mapping[str, Sequence[int]] | None = None
) -> bool:
    """Write a model that labels pictures; whether it takes them of any size, or of its own alone.

    What was written is tried before it has its name: it says what the model says. A file of one's own is for pictures
    of the model's size, and for ONNX Runtime alone, which runs it sooner; in it some neurons of feed-forwards, by their
    paths, may be apart from the others.
    """
    model = weights.model().float() if not isinstance(weights, OnnxWeights) else None
    if not isinstance(model, PictureModel):
        what = "is an ONNX file already" if model is None else f"is a {weights.family}, which labels no pictures"
        raise InputError(f"{weights.path!r} {what}; give a run, or weights, of pictures.")
    size = 4 * sum(tensor.numel() for tensor in model.state_dict().values())
    if size > LARGEST:
        raise InputError(f"{weights.path!r} has {size / 1e9:.1f} GB of weights, and a file of this kind holds 1.5 GB.")
    whole_model = _Whole(model, normalisation(weights)).eval()
    usage = Usage(weights.normalise, weights.labels, weights.fit)
    about = described(weights.config, "vitrail", usage)
    any_size = not own and _least(weights.config) <= min(grid_of(weights.config))
    for free in (True, False) if any_size else (False,):
        try:
            with fused(model, apart) if own else nullcontext():
                graph = _exported(whole_model, weights.config, free=free)
            with written(graph, path, {**about, "free": free}) as part:
                _try(part, whole_model, weights.config, free=free)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # of a part that PyTorch or ONNX Runtime has no way for
            why = str(error).strip().splitlines()[:1]
        else:
            return free
    raise InputError(f"{weights.path!r} has a part that ONNX files have no place for: {' '.join(why)[:160]}.")


@contextmanager
def written(graph: Any, path: Path, about: dict[str, Any]) -> Iterator[Path]:
    """A graph in a file that says of itself what it is, which has its name once it was tried."""
    graph.model.metadata_props[KEY] = json.dumps(about)
    for node in graph.model.graph.all_nodes():  # which would each tell where in PyTorch it comes from
        node.metadata_props.clear()
        node.doc_string = None
    with whole(path) as part:
        graph.save(str(part))
        yield part


def _try(path: Path, model: nn.Module, config: Any, *, free: bool) -> None:
    """A file's answers are the model's, at its own size and, if it may have any, at others."""
    session = OnnxModel(path, config).session
    (down, across), patch = config.size, config.step
    sizes = [(down, across), *([(down + patch, across), (down, across + 2 * patch)] if free else [])]
    for number, (height, width) in enumerate(sizes, 1):
        pictures = torch.rand(number, config.channels, height, width)
        with torch.no_grad():
            expected = [part.numpy() for part in model(pictures)]
        answers = session.run(list(OUTPUTS), {INPUT: pictures.numpy()})
        for one, other in zip(answers, expected, strict=True):
            near = 1e-4 * max(1.0, float(np.abs(other).max()))
            if one.shape != other.shape or not np.allclose(one, other, rtol=1e-3, atol=near):
                raise ValueError(f"answers differ at {height} x {width} pixels")


class _Whole(nn.Module):
    """Normalised, read, and answered."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: PictureModel, normalise: Normalise) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(normalise.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(normalise.std).view(-1, 1, 1))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """(b c H W) -> logits (b classes), features (b w)."""
        return self.model.answers_and_features((pictures - self.mean) / self.std)


def _exported(model: nn.Module, config: Any, *, free: bool) -> Any:
    """The graph; to be free in size it is followed at a size that has nothing in common with the model's own."""
    patch, (down, across) = config.step, grid_of(config)
    shape: dict[int, Any] = {0: torch.export.Dim("batch", min=1, max=2**20)}
    if free:
        down, across = max(3, down + 1), max(4, across + 2 + (down + 1 == across + 2))
        rows, columns = (torch.export.Dim(name, min=_least(config), max=SIDES) for name in ("rows", "columns"))
        shape |= {2: patch * rows, 3: patch * columns}
    with quiet():
        return torch.onnx.export(
            model,
            (torch.zeros(2, config.channels, patch * down, patch * across),),
            None,
            dynamo=True,
            dynamic_shapes=(shape,),
            input_names=[INPUT],
            output_names=list(OUTPUTS),
            verbose=False,
        )


def grid_of(config: Any) -> tuple[int, int]:
    """How many steps of its size pictures have down and across: patches of a ViT, pixels of others."""
    down, across = config.size
    return down // config.step, across // config.step


def _least(config: Any) -> int:
    """Patches down and across, at least, of pictures that a file is free in: enough for all that are merged."""
    gone, needed = 0, 4
    for count in getattr(config, "merges", ()):
        needed, gone = max(needed, gone + 2 * count), gone + count
    return ceil(sqrt(needed))


@contextmanager
def quiet() -> Iterator[None]:
    """Without what PyTorch says of its own ways."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def session_of(path: Path, *, spins: bool = True) -> Any:
    """What runs a file: ONNX Runtime, on as many threads as PyTorch has, which wait for the next call busily, or not:
    where PyTorch computes between two calls, each waits in the other's way.
    """
    import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415  # half a second, for those who run one

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    if not spins:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        whole = content(path) if _packed(path) else str(path)
        return onnxruntime.InferenceSession(whole, options, providers=["CPUExecutionProvider"])
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  # of its own making, each
        raise InputError(f"{str(path)!r} cannot be run by ONNX Runtime: {str(error)[:200]}; {AGAIN}.") from None


def content(path: Path) -> bytes:
    """What is in a file, which may be packed by gzip: bytes of weights have fewer than eight bits to tell."""
    held = path.read_bytes()
    if not _packed(path):
        return held
    unpacking = zlib.decompressobj(wbits=31)
    try:
        held = unpacking.decompress(held, LARGEST)
    except zlib.error:
        held = b""
    if not unpacking.eof:
        raise InputError(f"{str(path)!r} is damaged, no ONNX file, or one that is too large; {AGAIN}.")
    return held


def _packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


class OnnxModel(nn.Module):
    """A file that is run by ONNX Runtime, called as the model that it was made of."""

    def __init__(self, path: Path, config: Any) -> None:
        super().__init__()
        self.path, self.config = path, config

    @cached_property
    def session(self) -> Any:
        """ONNX Runtime's."""
        return session_of(self.path)

    def forward(self, images: Tensor, *, shortest: bool = False) -> Tensor:  # noqa: ARG002
        """(b c H W) -> logits (b classes)."""
        return self._run(images, "logits")

    def pooled(self, images: Tensor) -> Tensor:
        """(b c H W) -> (b w)."""
        return self._run(images, "features")

    def example(self) -> Tensor:
        """A picture of the model's own size."""
        return torch.zeros(1, self.config.channels, *self.config.size)

    def _run(self, images: Tensor, name: str) -> Tensor:
        given = {INPUT: np.ascontiguousarray(images.detach().cpu().float().numpy())}
        try:
            answers = self.session.run([name], given)[0]
        except Exception as error:  # noqa: BLE001  # of ONNX Runtime's making
            size = " x ".join(map(str, images.shape[2:]))
            why = " ".join(str(error).split())[:160]
            raise InputError(f"{str(self.path)!r} cannot be run on pictures of {size} pixels: {why}.") from None
        classes = self.config.classes
        if name == "logits" and classes and answers.shape[-1] != classes:
            raise InputError(
                f"{str(self.path)!r} says {classes} classes, and answers with {answers.shape[-1]}; {AGAIN}."
            )
        return torch.from_numpy(answers)


@dataclass(frozen=True, eq=False)
class OnnxWeights(Weights):
    """What an ONNX file says of itself; its model is run, and has no tensors to change."""

    def model(self) -> Any:
        """The file, to be run."""
        return OnnxModel(Path(self.path), self.config).eval()

    def adapted(self, *, head: str = "keep", **changes: Any) -> Weights:
        """As it is, or not at all."""
        own = {"image": (self.config.image, self.config.size)}
        wanted = [
            name
            for name, value in changes.items()
            if value is not None and value not in own.get(name, (getattr(self.config, name, None),))
        ]
        if wanted or head != "keep":
            raise InputError(f"{self.path!r} is an ONNX file, used as it is; change the run that it was made of.")
        return self


def metadata(path: Path) -> dict[str, Any]:
    """What a file says of itself."""
    import onnx  # noqa: PLC0415

    try:
        graph = onnx.load_model_from_string(content(path))
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  # of protobuf's making
        raise InputError(f"{str(path)!r} is damaged or no ONNX file: {str(error)[:100]}; {AGAIN}.") from None
    facts = {entry.key: entry.value for entry in graph.metadata_props}
    try:
        about = json.loads(facts[KEY])
    except (KeyError, ValueError):
        about = None
    if not isinstance(about, dict) or not isinstance(about.get("model"), dict) or "family" not in about:
        raise InputError(f"{str(path)!r} does not say what it is; write it with `vitrail export RUN --format onnx`.")
    return about


def read_onnx(path: Path, *, stated: Sequence[str] = ()) -> OnnxWeights:
    """What a file is; nothing of it is to be stated."""
    if stated:
        raise InputError(f"{str(path)!r} says itself what it is, and normalises pictures; leave {stated[0]} out.")
    about = metadata(path)
    if about["family"] not in families or families[about["family"]].task != "pictures":
        raise InputError(f"{str(path)!r} says that it is a {about['family']!r}, which no ONNX file here is; {AGAIN}.")
    config = checked_config(str(path), about["family"], about["model"], {})
    unit = Normalise((0.0,) * config.channels, (1.0,) * config.channels)  # it normalises pictures itself
    labels = stated_labels(about.get("labels"), str(path))
    return OnnxWeights(str(path), "onnx", about["family"], config, {}, unit, labels, fit=stated_fit(about))


def is_onnx(path: str | os.PathLike[str]) -> bool:
    """Whether a path names such a file."""
    return os.fspath(path).lower().endswith((".onnx", ".onnx.gz")) and Path(path).is_file()
