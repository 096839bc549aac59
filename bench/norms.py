"""LayerNorm against BatchNorm on the digits, at several batch sizes (A10): small batches hurt BatchNorm.

.venv/bin/python bench/norms.py
"""

import argparse
import statistics
import tempfile

from vitrail.distributed import ALONE
from vitrail.machine import keep_memory
from vitrail.runs import Run
from vitrail.tasks import read_recipe
from vitrail.tasks.registry import prepare
from vitrail.training import Job


def accuracy(norm: str, batch: int, epochs: int, seed: int) -> float:
    """Of a run of the digits recipe with this norm and batch, the learning rate as the root of the batch."""
    rate = 2e-3 * (batch / 64) ** 0.5
    settings = [f"model.norm={norm}", f"train.batch={batch}", f"train.epochs={epochs}", f"optim.lr={rate}"]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(prepare(read_recipe("digits", [*settings, f"train.seed={seed}"])), Run(folder), ALONE)
        for _ in job.steps():
            pass
        return job.finish().measurement.values["accuracy"]


def main() -> None:
    """Print a Markdown table of medians over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4, 16, 64])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    keep_memory()
    print("| batch | layer | batch norm |\n| ---: | ---: | ---: |")
    for batch in options.batches:
        medians = (
            statistics.median(accuracy(norm, batch, options.epochs, seed) for seed in range(options.seeds))
            for norm in ("layer", "batch")
        )
        print(f"| {batch} | " + " | ".join(f"{value:.1%}" for value in medians) + " |", flush=True)


if __name__ == "__main__":
    main()
