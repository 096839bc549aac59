"""What each kind of attention is worth: the same model, data and time with each.

.venv/bin/python bench/kinds.py recall [--seconds 60] [--seeds 3] [--kinds softmax local ...] [--out FOLDER]
.venv/bin/python bench/kinds.py text --data input.txt.gz
.venv/bin/python bench/kinds.py fashion --data FOLDER
.venv/bin/python bench/kinds.py cells --data FOLDER                # where bench/photos.py keeps its packages

`recall`: of 1,024 tokens the first eight say a value each, noise follows, and the last 256 ask for one of the eight,
760 tokens back or more. `text`: a GPT of characters, 1,024 at a time; nats a character of the last tenth. `fashion`:
Fashion-MNIST with patches of 2 pixels, 197 tokens. `cells`: solar cells, sound or defective, of 300 pixels with patches
of 6, 2,501 tokens.

First the time of a step is measured, all kinds in turn, medians; then each kind trains for as many steps as it makes
in the time given, with a rate that warms up and falls to nothing. So what else a machine does in these minutes does not
matter. Curves are drawn over steps times the seconds of one.
"""

import argparse
import gzip
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitrail as vt
from vitrail.machine import keep_memory
from vitrail.training.optim import adamw

CAUSAL = ("softmax", "local", "bigbird", "strided", "fixed", "hashing", "linear")
PICTURES = ("softmax", "local", "axial", "bigbird", "star", "hashing", "linear", "lowrank")
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """A model for a kind, batches to train on, and what is measured on held-out ones."""

    kinds: tuple[str, ...]
    build: Callable[[Any], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]
    score: Callable[[nn.Module], float]
    measure: str
    lr: float = 1e-3


def recall(_: Path | None) -> Task:
    """What was said at the very beginning."""
    keys, values, noise, length, asked = 8, 8, 32, 1024, 256

    def batch(generator: torch.Generator, count: int = 4) -> Batch:
        tokens = values + torch.randint(noise, (count, length), generator=generator)
        value = torch.randint(values, (count, keys), generator=generator)
        order = torch.randint(keys, (count, asked), generator=generator)
        tokens[:, :keys] = value
        tokens[:, -asked:] = values + noise + order
        return tokens, value.gather(1, order)

    def said(model: nn.Module, tokens: Tensor) -> Tensor:
        return model(tokens)[:, -asked:, :values]

    def score(model: nn.Module) -> float:
        tokens, wanted = batch(torch.Generator().manual_seed(10**6), 64)
        return 100 * float((said(model, tokens).argmax(-1) == wanted).double().mean())

    return Task(
        kinds=CAUSAL,
        build=lambda kind: vt.build(
            "gpt",
            tokens=values + noise + keys,
            width=64,
            depth=2,
            heads=4,
            length=length,
            position="learned",
            kernel=kind,
        ),
        batch=batch,
        loss=lambda model, pair: F.cross_entropy(said(model, pair[0]).flatten(0, 1), pair[1].flatten()),
        score=score,
        measure="values said right (%)",
        lr=3e-3,
    )


def text(data: Path | None) -> Task:
    """Characters of a text."""
    if data is None:
        raise SystemExit("--data: a text, plain or .gz.")
    read = gzip.decompress(data.read_bytes()) if data.suffix == ".gz" else data.read_bytes()
    names, numbers = np.unique(np.array(list(read.decode())), return_inverse=True)
    every, length = torch.from_numpy(numbers.astype(np.int64)), 1024
    train, held = every[: len(every) * 9 // 10], every[len(every) * 9 // 10 :]
    windows = held[: 40 * length + 1]

    def batch(generator: torch.Generator) -> Batch:
        first = torch.randint(len(train) - length - 1, (4,), generator=generator)
        rows = torch.stack([train[at : at + length + 1] for at in first])
        return rows[:, :-1], rows[:, 1:]

    def loss(model: nn.Module, pair: Batch) -> Tensor:
        return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten())

    def score(model: nn.Module) -> float:
        inputs, wanted = windows[:-1].view(-1, length), windows[1:].view(-1, length)
        return statistics.fmean(float(loss(model, pair)) for pair in zip(inputs.split(4), wanted.split(4), strict=True))

    return Task(
        kinds=CAUSAL,
        build=lambda kind: vt.build(
            "gpt", tokens=len(names), width=128, depth=4, heads=4, length=length, position="rotary", kernel=kind
        ),
        batch=batch,
        loss=loss,
        score=score,
        measure="nats a character",
    )


def pictures(train: Batch, test: Batch, count: int, **model: Any) -> Task:
    """Classes of pictures."""
    channels, classes = train[0].shape[1], int(train[1].max()) + 1
    mean, deviation = train[0].float().mean() / 255, train[0].float().std() / 255

    def ready(images: Tensor) -> Tensor:
        return (images.float() / 255 - mean) / deviation

    def batch(generator: torch.Generator) -> Batch:
        rows = torch.randint(len(train[1]), (count,), generator=generator)
        images = ready(train[0][rows])
        mirrored = torch.rand(count, generator=generator) < 0.5
        return torch.where(mirrored[:, None, None, None], images.flip(-1), images), train[1][rows]

    def score(net: nn.Module) -> float:
        right = sum(
            int((net(ready(images)).argmax(-1) == wanted).sum())
            for images, wanted in zip(test[0].split(count), test[1].split(count), strict=True)
        )
        return 100 * right / len(test[1])

    return Task(
        kinds=PICTURES,
        build=lambda kind: vt.build("vit", channels=channels, classes=classes, kernel=kind, **model),
        batch=batch,
        loss=lambda net, pair: F.cross_entropy(net(pair[0]), pair[1]),
        score=score,
        measure="accuracy (%)",
    )


def fashion(data: Path | None) -> Task:
    """Garments, patches of 2; measured on a tenth of the test pictures."""
    from vitrail.data import sources

    parts = sources["fashion"](data, 0.2, 0)
    test = parts.test[torch.arange(0, len(parts.test), 10)]
    both = ((part.images, part.labels) for part in (parts.train, test))
    return pictures(*both, 64, image=28, patch=2, width=96, depth=4, heads=4)


def cells(data: Path | None) -> Task:
    """Solar cells, sound or not, 300 pixels, patches of 6."""
    import csv

    from photos import split_table
    from PIL import Image

    if data is None:
        raise SystemExit("--data: a folder for the pictures.")
    with split_table("cells", 0, data).open() as file:
        rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["label"] in ("defect 0.00", "defect 1.00")]

    def of(part: str) -> Batch:
        some = [row for row in kept if (row["split"] == "test") == (part == "test")]
        images = np.stack([np.asarray(Image.open(row["path"]).convert("L")) for row in some])
        labels = torch.tensor([int(row["label"] == "defect 1.00") for row in some])
        return torch.from_numpy(images)[:, None], labels

    test = of("test")
    some = torch.arange(0, len(test[1]), max(1, len(test[1]) // 250))  # scoring takes as long as training
    return pictures(of("train"), (test[0][some], test[1][some]), 4, image=300, patch=6, width=96, depth=4, heads=4)


TASKS = {"recall": recall, "text": text, "fashion": fashion, "cells": cells}


class Learner:
    """A model in training, step by step."""

    def __init__(self, task: Task, kind: str, seed: int) -> None:
        torch.manual_seed(seed)
        options = {"name": kind, "length": 4096} if kind == "lowrank" else kind
        self.task, self.model = task, task.build(options)
        self.optimizer = adamw(self.model, task.lr, 0.05, (0.9, 0.98))
        self.generator = torch.Generator().manual_seed(seed)

    def step(self, fraction: float) -> None:
        """One, with a fraction of the rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.task.lr * fraction
        self.model.train()
        loss = self.task.loss(self.model, self.task.batch(self.generator))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def score(self) -> float:
        """On what is held out."""
        self.model.eval()
        with torch.no_grad():
            return self.task.score(self.model)


def step_times(task: Task, kinds: list[str], rounds: int = 7) -> dict[str, float]:
    """Seconds of a step, medians, all in turn."""
    learners = {kind: Learner(task, kind, 0) for kind in kinds}
    seen: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds + 1):
        for kind, learner in learners.items():
            began = time.perf_counter()
            learner.step(0.1)
            seen[kind] += [time.perf_counter() - began] if turn else []
    return {kind: statistics.median(values) for kind, values in seen.items()}


def curve(task: Task, kind: str, steps: int, seed: int, points: int = 5) -> list[tuple[int, float]]:
    """What is measured after some steps, and after all."""
    learner, marks = Learner(task, kind, seed), {round(steps * (i + 1) / points) for i in range(points)}
    warm, found = max(1, steps // 10), []
    for step in range(1, steps + 1):
        learner.step(min(1, step / warm) * 0.5 * (1 + math.cos(math.pi * step / (steps + 1))))
        if step in marks:
            found.append((step, learner.score()))
    return found


def draw(name: str, measure: str, found: dict[str, Any], out: Path) -> None:
    """Each kind over the seconds of its steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for kind, one in found.items():
        values = np.array([[value for _, value in each] for each in one["curves"]])
        seconds = [step * one["seconds a step"] for step, _ in one["curves"][0]]
        (line,) = axes.plot(seconds, values.mean(0), label=kind, marker="o", markersize=3)
        if len(values) > 1:
            axes.fill_between(seconds, values.min(0), values.max(0), color=line.get_color(), alpha=0.15)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel(measure)
    axes.set_title(name)
    axes.legend(fontsize=8)
    figure.savefig(out)


def main() -> None:
    """Measure, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(TASKS))
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, help="to train with, after times have been measured")
    parser.add_argument("--out", type=Path, help="a folder: NAME.json, NAME.svg")
    a = parser.parse_args()
    keep_memory()
    task = TASKS[a.what](a.data)
    kinds = a.kinds or list(task.kinds)
    times = step_times(task, kinds)
    print({kind: round(1e3 * seconds, 1) for kind, seconds in times.items()}, "milliseconds a step", flush=True)
    if a.threads:
        torch.set_num_threads(a.threads)
    found: dict[str, Any] = {}
    print(f"| kind | ms a step | steps | {task.measure} |\n| --- | ---: | ---: | ---: |")
    for kind in kinds:
        steps = max(8, round(a.seconds / times[kind]))
        curves = [curve(task, kind, steps, seed) for seed in range(a.seeds)]
        last = [each[-1][1] for each in curves]
        spread = f" ± {statistics.stdev(last):.2f}" if len(last) > 1 else ""
        shown = f"{1e3 * times[kind]:.0f} | {steps:,} | {statistics.fmean(last):.2f}{spread}"
        print(f"| {kind} | {shown} |", flush=True)
        found[kind] = {"seconds a step": times[kind], "steps": steps, "curves": curves}
    if a.out is not None:
        a.out.mkdir(parents=True, exist_ok=True)
        report = {"what": a.what, "measure": task.measure, "seconds": a.seconds, "kinds": found}
        (a.out / f"{a.what}.json").write_text(json.dumps(report, indent=1) + "\n")
        draw(a.what, task.measure, found, a.out / f"{a.what}.svg")


if __name__ == "__main__":
    main()
