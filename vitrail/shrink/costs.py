"""What a model costs on this machine: numbers, multiply-adds, bytes on disk and in memory, and time beside another."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch

from vitrail.families import cost
from vitrail.progress import Progress, silent
from vitrail.runs import Run
from vitrail.tasks.task import ask
from vitrail.weights import Weights
from vitrail.weights.reading import KINDS

BATCHES = (1, 16)  # examples at a time
ROUNDS = 7  # of each, at least
SECONDS = 6.0  # for the rounds of a batch, beyond those
MOST = 60  # rounds
PAUSE = 0.005  # seconds before each


@dataclass(frozen=True)
class Costs:
    """What does not change from one minute to the next."""

    parameters: int
    multiply_adds: int  # of one example
    bytes: int  # of the file that answers
    memory: int | None  # bytes that answering the largest batch takes at its peak, the model among them


@dataclass(frozen=True)
class Time:
    """Seconds of one example, so many at a time: the median, and between what half of the rounds lie."""

    batch: int
    median: float
    low: float
    high: float


def costs(run: Run) -> Costs:
    """Those of a run."""
    weights = run.answering()
    counted = cost(weights.config)
    size = sum(file.stat().st_size for file in _files(run, weights))
    return Costs(counted.parameters, counted.multiply_adds, size, peak(run))


def _files(run: Run, weights: Weights) -> list[Path]:
    """What answers: ONNX files, tensors, or weights from elsewhere, which may be several files."""
    path = Path(weights.path) if Path(weights.path).exists() else run.path
    if run.answers or path.is_file():
        return run.answers or [path]
    own = path / "model.safetensors"
    return [own] if own.is_file() else [file for file in path.iterdir() if file.suffix in KINDS]


def times(systems: Mapping[str, Any], count: int, progress: Progress = silent) -> dict[str, list[float]]:
    """Seconds of an example for some calls that answer so many, round by round, each system once a round.

    What else the machine does in a minute then slows all of them. Their order is drawn anew each round, and each waits
    a little, since threads of the one before it go on for some milliseconds, in search of work.
    """
    draw = np.random.default_rng(0)
    taken: dict[str, list[float]] = {name: [] for name in systems}
    with torch.inference_mode():
        for call in systems.values():
            call()  # the first is the slowest
        began = perf_counter()
        for _ in progress(f"rounds of {count} at a time", range(MOST), MOST):
            for name in draw.permutation(list(systems)).tolist():
                call = systems[name]
                sleep(PAUSE)
                start = perf_counter()
                call()
                taken[name].append((perf_counter() - start) / count)
            if len(next(iter(taken.values()))) >= ROUNDS and perf_counter() - began > SECONDS:
                break
    return taken


def summed(count: int, taken: list[float]) -> Time:
    """Rounds as their median, and what half of them lie between."""
    low, _, high = quantiles(taken, n=4)
    return Time(count, median(taken), low, high)


def ratio(one: list[float], other: list[float]) -> float:
    """How many times as fast the second is: the median over the rounds, in each of which both ran."""
    return median(a / b for a, b in zip(one, other, strict=True))


def peak(run: Run) -> int | None:
    """Bytes that a process takes more at its peak when it reads a run and has it answer; None where none can be asked.

    A process of its own, since memory that was freed is not given back.
    """
    command = [sys.executable, "-m", __name__, run.name]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    lines = process.stdout.split()
    return int(lines[-1]) if process.returncode == 0 and lines and lines[-1].isdigit() else None


def _answer(name: str) -> None:
    """Print how much more memory a process takes at its peak than before it reads a run and has it answer (Linux)."""
    import onnxruntime  # type: ignore[import-untyped]  # noqa: F401, PLC0415  # which is not to be counted

    torch.zeros(64, 64) @ torch.zeros(64, 64)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that from now on
    before = _bytes("VmRSS")
    model = Run(name).answering().model()
    with torch.inference_mode():
        ask(model, BATCHES[-1])()
    print(_bytes("VmHWM") - before)  # noqa: T201


def _bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    _answer(sys.argv[1])
