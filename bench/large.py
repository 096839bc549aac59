"""A picture of 1,024 pixels in patches of 16, 4,097 tokens: full attention and a neighbourhood, as a whole model.

.venv/bin/python bench/large.py [--model vit-ti/16] [--window 7] [--rounds 5]

Seconds of a prediction and of a training step of one picture, both models in turn, medians; and what tensors take at
their peak beyond the model itself, in brackets the whole process. Positions and lens are tried at that size too.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from scale import apart, highest
from torch.profiler import ProfilerActivity, profile

import vitrail as vt
from vitrail.lens import explain
from vitrail.machine import keep_memory, return_memory

IMAGE = 1024


def made(name: str, kernel: Any) -> Any:
    """A model for pictures of this size, with fresh weights."""
    torch.manual_seed(0)
    return vt.build(name, image=IMAGE, classes=10, kernel=kernel)


def once(model: Any, *, training: bool) -> float:
    """Seconds of one pass."""
    image, label = torch.randn(1, 3, IMAGE, IMAGE), torch.tensor([3])
    model.train(training)
    began = time.perf_counter()
    with torch.enable_grad() if training else torch.inference_mode():
        answer = model(image, shortest=True)
        if training:
            torch.nn.functional.cross_entropy(answer, label).backward()
            model.zero_grad()
    return time.perf_counter() - began


def peak(name: str, kernel: Any, training: bool) -> tuple[float, float]:
    """Megabytes that tensors have at the peak, and the process, beyond those of the model."""
    return_memory()
    model = made(name, kernel)
    before = highest(afresh=True)
    once(model, training=training)
    process, held, most = highest() - before, 0, 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        once(model, training=training)
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / 2**20, process


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit-ti/16")
    parser.add_argument("--window", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    keep_memory()
    kinds: dict[str, Any] = {"full": "softmax", "local": {"name": "local", "window": a.window}}
    models = {kind: made(a.model, kernel) for kind, kernel in kinds.items()}
    print("| | full | local | ratio | full, MB | local, MB |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for training in (False, True):
        seen: dict[str, list[float]] = {kind: [] for kind in kinds}
        for turn in range(a.rounds + 1):
            for kind, model in models.items():
                seconds = once(model, training=training)
                seen[kind] += [seconds] if turn else []
        full, local = (statistics.median(seen[kind]) for kind in kinds)
        sizes = [apart(peak, a.model, kernel, training) for kernel in kinds.values()]
        what = "training step" if training else "prediction"
        shown = " | ".join(f"{tensors:,.0f} ({process:,.0f})" for tensors, process in sizes)
        cells = f"{full:.3f} s | {local:.3f} s | {full / local:.2f} | {shown}"
        print(f"| {what} | {cells} |", flush=True)
    image = torch.randn(1, 3, IMAGE, IMAGE)
    began = time.perf_counter()
    seen_through = explain(models["local"].eval(), image, label=0, steps=0)
    shapes = {name: tuple(values.shape) for name, values in seen_through.maps.items()}
    print(f"explained in {time.perf_counter() - began:.0f} seconds: {shapes}")


if __name__ == "__main__":
    main()
