"""How long until 90 % of Fashion-MNIST's test pictures: our recipe, and a plain ViT of vit-pytorch with Adam.

.venv-peers/bin/python bench/time_to.py --data FOLDER --out bench/results/time_to.json

Both train in one process, some steps each in turn, so that a busy machine slows both; the time of measuring is not
counted. The one stops when it is there, or when it has taken ``--most`` times as long as the other.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))

import stub  # noqa: F401
from vit_pytorch import ViT

from vitrail.data import Pictures, unit
from vitrail.distributed import ALONE
from vitrail.machine import keep_memory
from vitrail.runs import Run
from vitrail.tasks import read_recipe
from vitrail.tasks.pictures.examples import TestPictures
from vitrail.tasks.registry import PictureTask, prepare
from vitrail.training import Job

SLICE = 100  # steps in turn


class Ours:
    """``vitrail train fashion``, in one process."""

    name = "vitrail"

    def __init__(self, task: PictureTask, folder: Path) -> None:
        self.job, self.normalise = Job(task, Run(folder), ALONE), task.normalise
        self.size, self.model = self.job.parameters, self.job.model
        self.steps = self.job.updates()

    def accuracy(self, test: Pictures) -> float:
        """Of the model that would be kept now."""
        return TestPictures(test, self.normalise).measure(self.job.trained).values["accuracy"]


class Plain:
    """A ViT of vit-pytorch of about as many parameters, with Adam, and nothing else."""

    name = "vit-pytorch, Adam"

    def __init__(self, task: PictureTask, rate: float) -> None:
        torch.manual_seed(0)
        self.train, self.normalise = task.parts.train, task.normalise
        shape = {"image_size": 28, "patch_size": 4, "channels": 1, "num_classes": 10}
        self.model = ViT(**shape, dim=96, depth=6, heads=3, dim_head=32, mlp_dim=192)
        self.size = sum(p.numel() for p in self.model.parameters())
        self.optimizer = torch.optim.Adam(self.model.parameters(), rate)
        self.steps = self._steps()

    def _steps(self) -> Iterator[None]:
        while True:
            for rows in torch.randperm(len(self.train)).split(128):
                self.model.train()
                loss = nn.functional.cross_entropy(self._answer(self.train[rows]), self.train.labels[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                yield

    def _answer(self, pictures: Pictures) -> torch.Tensor:
        return self.model(self.normalise(unit(pictures.images)))

    @torch.no_grad()
    def accuracy(self, test: Pictures) -> float:
        """Of the model as it is."""
        self.model.eval()
        right = [
            (self._answer(test[rows]).argmax(1) == test.labels[rows]).sum()
            for rows in torch.arange(len(test)).split(500)
        ]
        return int(sum(right)) / len(test)


def main() -> None:
    """Print who got there when, and how many times sooner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of Fashion-MNIST, unless Debian's package is installed")
    parser.add_argument("--goal", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=30, help="of our recipe, whose schedule they shorten")
    parser.add_argument("--ema", type=float, default=0.999, help="of our recipe; less for fewer epochs")
    parser.add_argument("--rate", type=float, default=1e-3, help="Adam's learning rate")
    parser.add_argument("--most", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    keep_memory()
    where = {"data": {"path": options.data}} if options.data else {}
    shorter = [f"train.epochs={options.epochs}", f"train.ema={options.ema}"]
    task = prepare(read_recipe("fashion", shorter, **where))
    with tempfile.TemporaryDirectory() as folder:
        results = race(Ours(task, Path(folder)), Plain(task, options.rate), task.parts.test, options)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


def race(ours: Ours, plain: Plain, test: Pictures, options: argparse.Namespace) -> dict[str, object]:
    """Train both in turn until both are there."""
    racers = {racer.name: racer for racer in (ours, plain)}
    seconds, steps = dict.fromkeys(racers, 0.0), dict.fromkeys(racers, 0)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in racers}
    there: dict[str, float] = {}
    while plain.name not in there:
        for name, racer in racers.items():
            if name in there:
                continue
            began = time.perf_counter()
            for _ in range(SLICE):
                next(racer.steps)
            seconds[name] += time.perf_counter() - began
            steps[name] += SLICE
            curves[name].append((seconds[name], racer.accuracy(test)))
            print(f"{name:18} {steps[name]:6} steps {seconds[name]:7.1f} s {curves[name][-1][1]:.2%}", flush=True)
            if curves[name][-1][1] >= options.goal:
                there[name] = seconds[name]
        if ours.name in there and seconds[plain.name] > options.most * there[ours.name]:
            break
    reached = ours.name in there and plain.name in there
    ratio = (there.get(plain.name, seconds[plain.name]) / there[ours.name]) if ours.name in there else 0.0
    print(f"{options.goal:.0%}: {there}; {'' if reached else 'more than '}{ratio:.1f} times sooner")
    return {
        "goal": options.goal,
        "epochs": options.epochs,
        "parameters": {racer.name: racer.size for racer in racers.values()},
        "seconds": there,
        "plain got there": reached,
        "times sooner": ratio,
        "curves": curves,
    }


if __name__ == "__main__":
    main()
