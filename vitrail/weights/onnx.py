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
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.data.normalise import Normalise
from vitrail.errors import AGAIN, InputError
from vitrail.families import ViT
from vitrail.files import whole
from vitrail.weights.weights import Usage, Weights, checked_config, described, stated_fit, stated_labels

KEY = "vitrail"  # of what the metadata say
SIDES = 4096  # patches down and across, at most
INPUT, OUTPUTS = "pictures", ("logits", "features")


def save_onnx(weights: Weights, path: Path) -> None:
    """Write a model that labels pictures."""
    model = weights.model().float()
    if not isinstance(model, ViT):
        raise InputError(f"{weights.path!r} is a {weights.family}; ONNX files are of models that label pictures.")
    config = weights.config
    graph = _exported(_Whole(model, _normalise(weights)), config)
    usage = Usage(weights.normalise, weights.labels, weights.fit)
    about = described(config, "vitrail", usage)
    graph.model.metadata_props[KEY] = json.dumps(about)
    for node in graph.model.graph.all_nodes():  # which would each tell where in PyTorch it comes from
        node.metadata_props.clear()
        node.doc_string = None
    with whole(path) as part:
        graph.save(str(part))


class _Whole(nn.Module):
    """Normalised, read, and answered."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: ViT, normalise: Normalise) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(normalise.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(normalise.std).view(-1, 1, 1))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """(b c H W) -> logits (b classes), features (b w)."""
        return self.model.answers_and_features((pictures - self.mean) / self.std)


def _exported(model: nn.Module, config: Any) -> Any:
    batch = torch.export.Dim("batch", min=1, max=2**20)
    rows, columns = (torch.export.Dim(name, min=2, max=SIDES) for name in ("rows", "columns"))
    patch, grid = config.patch, [max(3, side) for side in config.grid]
    free = {0: batch, 2: patch * rows, 3: patch * columns}
    example = torch.zeros(2, config.channels, patch * grid[0], patch * (grid[1] + (grid[0] == grid[1])))
    with _quiet():
        return torch.onnx.export(
            model.eval(),
            (example,),
            None,
            dynamo=True,
            dynamic_shapes=(free,),
            input_names=[INPUT],
            output_names=list(OUTPUTS),
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
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


def _normalise(weights: Weights) -> Normalise:
    channels = weights.config.channels
    if weights.normalise is None:
        return Normalise((0.5,) * channels, (0.5,) * channels)
    return weights.normalise if len(weights.normalise.mean) == channels else weights.normalise.even(channels)


class OnnxModel(nn.Module):
    """A file that is run by ONNX Runtime, called as the model that it was made of."""

    def __init__(self, path: Path, config: Any, threads: int = 0) -> None:
        super().__init__()
        self.path, self.config, self.threads = path, config, threads

    @cached_property
    def session(self) -> Any:
        """ONNX Runtime's, on as many threads as PyTorch has."""
        import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415  # half a second, for those who run one

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads or torch.get_num_threads()
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  # of its own making, each
            raise InputError(
                f"{str(self.path)!r} cannot be run by ONNX Runtime: {str(error)[:200]}; {AGAIN}."
            ) from None

    def forward(self, images: Tensor, *, shortest: bool = False) -> Tensor:  # noqa: ARG002
        """(b c H W) -> logits (b classes)."""
        return self._run(images, "logits")

    def pooled(self, images: Tensor) -> Tensor:
        """(b c H W) -> (b w)."""
        return self._run(images, "features")

    def _run(self, images: Tensor, name: str) -> Tensor:
        given = {INPUT: np.ascontiguousarray(images.detach().cpu().float().numpy())}
        return torch.from_numpy(self.session.run([name], given)[0])


@dataclass(frozen=True, eq=False)
class OnnxWeights(Weights):
    """What an ONNX file says of itself; its model is run, and has no tensors to change."""

    def model(self) -> Any:
        """The file, to be run."""
        return OnnxModel(Path(self.path), self.config).eval()

    def adapted(self, *, head: str = "keep", **changes: Any) -> Weights:
        """As it is, or not at all."""
        wanted = [name for name, value in changes.items() if value not in (None, getattr(self.config, name, None))]
        if wanted or head != "keep":
            raise InputError(f"{self.path!r} is an ONNX file, used as it is; change the run that it was made of.")
        return self


def metadata(path: Path) -> dict[str, Any]:
    """What a file says of itself."""
    import onnx  # noqa: PLC0415

    try:
        graph = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # noqa: BLE001  # of protobuf's making
        raise InputError(f"{str(path)!r} is damaged or no ONNX file: {str(error)[:100]}; {AGAIN}.") from None
    found = {entry.key: entry.value for entry in graph.metadata_props}
    try:
        about = json.loads(found[KEY])
    except (KeyError, ValueError):
        about = None
    if not isinstance(about, dict) or not isinstance(about.get("model"), dict) or "family" not in about:
        raise InputError(f"{str(path)!r} does not say what it is; write it with `vitrail export RUN --format onnx`.")
    return about


def read_onnx(path: Path, *, stated: bool = False) -> OnnxWeights:
    """What a file is; how pictures are normalised is not to be stated."""
    if stated:
        raise InputError(f"{str(path)!r} normalises pictures itself; leave --normalise out.")
    about = metadata(path)
    config = checked_config(str(path), about["family"], about["model"], {})
    unit = Normalise((0.0,) * config.channels, (1.0,) * config.channels)  # it normalises pictures itself
    labels = stated_labels(about.get("labels"), str(path))
    return OnnxWeights(str(path), "onnx", about["family"], config, {}, unit, labels, fit=stated_fit(about))


def is_onnx(path: str | os.PathLike[str]) -> bool:
    """Whether a path names such a file."""
    return Path(path).suffix.lower() == ".onnx" and Path(path).is_file()
