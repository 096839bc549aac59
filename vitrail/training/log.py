"""What happened at each step: metrics.jsonl, and TensorBoard's own files where they are asked for."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vitrail.errors import InputError
from vitrail.files import naming, whole


class Log:
    """Lines of metrics.jsonl up to a step are kept, later ones (of a run that was killed) are left out."""

    def __init__(self, path: Path, step: int, *, on: bool = True, board: Path | None = None) -> None:
        self.path, self.step, self.on = path, step, on
        self.board = _board(board, step + 1) if on and board is not None else None

    def __enter__(self) -> Self:
        if self.on:
            kept = [line for line in read_metrics(self.path) if line["step"] <= self.step]
            with whole(self.path) as aside:
                aside.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
            self.file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.on:
            self.file.close()
        if self.board is not None:
            self.board.close()

    def __call__(self, line: Mapping[str, float | str]) -> None:
        """Write what happened after a step: an update, or a measurement after an epoch."""
        if not self.on:
            return
        values = {
            name: value if isinstance(value, str) or math.isfinite(value) else None for name, value in line.items()
        }
        with naming(self.path):
            print(json.dumps(values), file=self.file)
        if self.board is not None:
            for name, value in values.items():
                if name not in ("step", "part") and value is not None:
                    self.board.add_scalar(f"{values.get('part', 'train')}/{name}", value, values["step"])

    def sync(self) -> None:
        """Have all lines on disk."""
        with naming(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are whole."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:  # the last one, of a process that was killed
            break
    return lines


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError:
        raise InputError(
            "train.tensorboard=true needs TensorBoard; install it with `pip install vitrail[tensorboard]`."
        ) from None
    return SummaryWriter(str(folder), purge_step=step)
