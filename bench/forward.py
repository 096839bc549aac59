"""How fast: Vitrail, timm, HF, vit-pytorch and torchvision, interleaved in one run, beside the machine's own peak.

    .venv-peers/bin/python bench/forward.py            # or: make bench
    .venv-peers/bin/python bench/forward.py --only ti --rounds 21

Each system lives in a process of its own, so that what one does to memory or threads does not help or hurt another; one
works at a time, in an order drawn anew each round. Times are medians over the rounds.
"""

import argparse
import json
import multiprocessing
import platform
import random
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from systems import SYSTEMS, Shape, forward, training_step

TI = Shape(image=224, patch=16, channels=3, width=192, depth=12, heads=3, hidden=768, classes=1000)
BASE = Shape(image=224, patch=16, channels=3, width=768, depth=12, heads=12, hidden=3072, classes=1000)
SMALL = Shape(image=28, patch=4, channels=1, width=128, depth=6, heads=4, hidden=512, classes=10)

# What is timed, the model, the batch, and how often in a row in one round.
CASES = {
    "forward ti/16, batch 1": (TI, 1, False, 8),
    "forward ti/16, batch 16": (TI, 16, False, 1),
    "forward b/16, batch 1": (BASE, 1, False, 1),
    "forward b/16, batch 8": (BASE, 8, False, 1),
    "step 28 px, 6 x 128, batch 128": (SMALL, 128, True, 1),
    "step ti/16, batch 8": (TI, 8, True, 1),
}


class Worker:
    """One system in a process of its own: it builds and warms up a case, then times it on demand."""

    def __init__(self, system: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(system, theirs), daemon=True)
        self.process.start()

    def ask(self, what: str) -> float:
        """Ask it to prepare a case, or for the seconds that one run of it takes."""
        self.pipe.send(what)
        return self.pipe.recv()


def work(system: str, pipe: Connection) -> None:
    """What a worker does."""
    torch.manual_seed(0)
    run: Callable[[], object] = list
    repeats = 1
    while True:
        what = pipe.recv()
        if what in CASES:
            shape, batch, training, repeats = CASES[what]
            model = SYSTEMS[system](shape)
            run = (training_step if training else forward)(model, shape, batch)
            for _ in range(2):
                run()
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        pipe.send((time.perf_counter() - start) / repeats)


def measure(workers: dict[str, Worker], case: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each system in each round, and the machine's peak in multiply-adds a second."""
    for worker in workers.values():
        worker.ask(case)
    seconds: dict[str, list[float]] = {"peak": [], **{system: [] for system in workers}}
    for _ in range(rounds):
        seconds["peak"].append(peak())
        for system in random.sample(list(workers), len(workers)):
            seconds[system].append(workers[system].ask("go"))
    return seconds


def peak(n: int = 2048) -> float:
    """Multiply-adds a second of a square matrix product, the best of three."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - start)
    return n**3 / min(times)


def multiply_adds(case: str, system: str) -> int:
    """Of a forward pass, or three times that of a training step: forward, and the gradients of inputs and weights."""
    from vitrail.families import configure, cost

    shape, batch, training, _ = CASES[case]
    done = cost(configure("vit", **vars(shape)), shortest=system == "vitrail").multiply_adds
    return done * batch * (3 if training else 1)


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Milliseconds and the fraction of the machine's peak, in Markdown; the fastest peer's time over Vitrail's two."""
    ratios = ["fastest peer / vitrail", "/ plain"]
    lines = [f"| | {' | '.join([*SYSTEMS, *ratios])} |", "| --- |" + " ---: |" * (len(SYSTEMS) + 2)]
    for case, seconds in results.items():
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        cells = [
            f"{1e3 * medians[s]:.1f}, {multiply_adds(case, s) / medians[s] / medians['peak']:.0%}" for s in SYSTEMS
        ]
        fastest = min(medians[s] for s in SYSTEMS if "vitrail" not in s and "kept" not in s)
        cells += [f"{fastest / medians[s]:.2f}" for s in ("vitrail", "vitrail, plain")]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the cases asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write all times as JSON")
    options = parser.parse_args()
    workers = {system: Worker(system) for system in SYSTEMS}
    results = {}
    for case in CASES:
        if options.only in case:
            print(f"{case} ...", flush=True)
            results[case] = measure(workers, case, options.rounds)
    for worker in workers.values():
        worker.process.terminate()
    print(table(results))
    if options.out:
        about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.processor()}
        options.out.write_text(json.dumps({"about": about, "seconds": results}, indent=1))


if __name__ == "__main__":
    main()
