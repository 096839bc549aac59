"""A translator that runs by its two files, one that reads sources and one that takes a step (``onnx_translator``)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.errors import AGAIN, InputError
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.weights.onnx import metadata, session_of
from vitrail.weights.weights import Weights, checked_config

NAMES = ("encoder", "step")


@dataclass
class Sessions:
    """What runs both files, on as many threads as are asked for at the time."""

    paths: list[Path]
    opened: dict[int, list[Any]] = field(default_factory=dict)

    @property
    def now(self) -> list[Any]:
        """The encoder, and the step."""
        threads = torch.get_num_threads()
        if threads not in self.opened:
            # Steps of 32 rows on two threads: 1,048 sentences a second, where threads that wait busily have 327.
            self.opened[threads] = [session_of(path, spins=False) for path in self.paths]
        return self.opened[threads]


class FileSteps:
    """Decoding token by token, by ONNX Runtime: what ``decode.greedy`` and its like ask."""

    def __init__(self, sessions: Sessions, source: Tensor) -> None:
        self.device = torch.device("cpu")
        encoder, self.session = sessions.now
        arrays = encoder.run(None, {"source": source.cpu().numpy()})
        self.context: dict[str, Any] = {
            one.name: value for one, value in zip(encoder.get_outputs(), arrays, strict=True)
        }
        pasts = [one for one in self.session.get_inputs() if one.name.startswith("past.")]
        self.names = [one.name for one in pasts]
        self.past: list[Any] = [np.zeros((len(source), one.shape[1], 0, one.shape[3]), np.float32) for one in pasts]

    def __call__(self, tokens: Tensor) -> Tensor:
        """The last token of each row (b) -> the logits of the next (b target)."""
        given = {"tokens": tokens[:, None].numpy(), **self.context, **dict(zip(self.names, self.past, strict=True))}
        logits, *self.past = self.session.run(None, given)
        return torch.from_numpy(logits)

    def select(self, rows: Tensor, *, sources: bool = True) -> None:
        """Go on with these rows; sources move with them, unless each place keeps its own."""
        chosen = rows.numpy()
        self.past = [one[chosen] for one in self.past]
        if sources:
            self.context = {name: one[chosen] for name, one in self.context.items()}


class OnnxSeq2Seq(Seq2Seq):
    """A translator that says targets by its files, and has no tensors."""

    def __init__(self, config: Any, sessions: Sessions) -> None:
        nn.Module.__init__(self)
        self.config, self.sessions = config, sessions
        self.nothing = nn.Parameter(torch.zeros(0))  # which says on which device it is

    def steps(self, source: Tensor) -> Any:
        """For decoding token by token."""
        return FileSteps(self.sessions, source)

    def stream(self, inputs: Any) -> Tensor:  # noqa: ARG002
        """What its files have no place for."""
        raise InputError("a translator that runs as ONNX files shows nothing of its inside; name its tensors.")

    def forward(self, inputs: Any, *, shortest: bool = False, rows: Tensor | None = None) -> Any:  # noqa: ARG002
        """Sources (b s), and targets (b t) -> the logits of each next token (b t target)."""
        logits = self.spelled(*inputs)
        return logits if rows is None else logits[rows]


@dataclass(frozen=True, eq=False)
class OnnxTranslator(Weights):
    """What the files of a translator say of themselves; they are run, and have no tensors to change."""

    files: tuple[Path, ...] = ()

    def model(self) -> Any:
        """The files, to be run."""
        return OnnxSeq2Seq(self.config, Sessions(list(self.files))).eval()


def read_translator(files: Sequence[Path]) -> OnnxTranslator:
    """What both files are."""
    about, path = metadata(files[-1]), str(files[-1])
    if about["family"] != "seq2seq" or about.get("part") != NAMES[-1]:
        raise InputError(f"{path!r} is not the step of a translator; {AGAIN}.")
    config = checked_config(path, "seq2seq", about["model"], {})
    return OnnxTranslator(path, "onnx", "seq2seq", config, {}, files=tuple(files))
