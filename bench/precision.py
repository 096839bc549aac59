"""Training steps on pictures in float32 and in bf16, in turns: milliseconds, medians, and how far both losses fell.

.venv/bin/python bench/precision.py [--threads 1] [--rounds 9]

bf16 pays where the processor multiplies in it (``vitrail.machine.multiplies_bf16``): elsewhere it is slower.
"""

import argparse
import statistics
from collections.abc import Iterator

import torch
from torch import nn

from vitrail.data import Batch
from vitrail.families import build
from vitrail.machine import keep_memory, multiplies_bf16
from vitrail.training import fit
from vitrail.training.loop import Precision

# What the built-in recipes train, what is chosen for small photos from scratch, and weights of others at two sizes.
SHAPES = {
    "digits: 8 pixels, width 64": ({"name": "vit-pico/2", "classes": 10, "stem": "early"}, 64),
    "fashion: 28 pixels, width 96": (
        {
            "name": "vit",
            "image": 28,
            "patch": 4,
            "channels": 1,
            "stem": "early",
            "width": 96,
            "depth": 5,
            "heads": 3,
            "hidden": 192,
            "classes": 10,
        },
        128,
    ),
    "photos: 64 pixels, width 64": (
        {
            "name": "vit",
            "image": 64,
            "patch": 8,
            "stem": "early",
            "width": 64,
            "depth": 4,
            "heads": 2,
            "hidden": 128,
            "classes": 10,
        },
        64,
    ),
    "ResNet-18: 64 pixels": ({"name": "resnet18", "image": 64, "classes": 10}, 32),
    "Ti/16: 112 pixels, width 192": ({"name": "vit-ti/16", "image": 112, "classes": 10}, 16),
    "S/16: 224 pixels, width 384": ({"name": "vit-s/16", "image": 224, "classes": 10}, 8),
}


def steps(fields: dict[str, object], batch: int, precision: str) -> Iterator[tuple[float, float]]:
    """Milliseconds and loss of each step on one batch."""
    torch.manual_seed(0)
    given = dict(fields)
    model = build(str(given.pop("name")), **given)
    size, channels = model.config.size, model.config.channels
    some = Batch(torch.randn(batch, channels, *size), torch.randint(0, 10, (batch,)), batch)

    def objective(one: nn.Module, given: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(one(given.inputs).float(), given.targets)

    def updates() -> Iterator[list[Batch]]:
        while True:
            yield [some]

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    for step in fit(model, objective, updates(), optimizer, lambda _: 1.0, precision=Precision(precision)):
        yield 1000 * step.seconds, step.loss


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    a = parser.parse_args()
    keep_memory()
    torch.set_num_threads(a.threads)
    print(f"{a.threads} threads; the processor {'multiplies' if multiplies_bf16() else 'does not multiply'} in bf16\n")
    print("| | float32 | bf16 | times as fast | loss after as many steps |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (fields, batch) in SHAPES.items():
        both = {precision: steps(fields, batch, precision) for precision in ("float32", "bf16")}
        rows = [{precision: next(one) for precision, one in both.items()} for _ in range(a.rounds + 2)][2:]
        ms = {precision: statistics.median(row[precision][0] for row in rows) for precision in both}
        last = " and ".join(f"{rows[-1][precision][1]:.3f}" for precision in both)
        ratio = ms["float32"] / ms["bf16"]
        print(f"| {name} | {ms['float32']:.0f} ms | {ms['bf16']:.0f} ms | {ratio:.2f} | {last} |", flush=True)


if __name__ == "__main__":
    main()
