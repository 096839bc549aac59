"""A step of our Muon beside PyTorch's, on the matrices of the fashion recipe's blocks: milliseconds, medians.

.venv/bin/python bench/muon.py
"""

import statistics
import time

import torch

from vitrail.families import build
from vitrail.tasks import read_recipe
from vitrail.training import Muon


def main() -> None:
    """Print both and their ratio."""
    fields = dict(read_recipe("fashion").model)
    blocks = build(fields.pop("name"), classes=10, **fields).get_submodule("encoder")
    matrices = [p for p in blocks.parameters() if p.ndim == 2]
    for matrix in matrices:
        matrix.grad = torch.randn_like(matrix)
    steps = {"vitrail": Muon(matrices, 1e-3), "torch.optim.Muon": torch.optim.Muon(matrices, 1e-3)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(31):
        for name, optimizer in steps.items():
            began = time.perf_counter()
            optimizer.step()
            times[name].append(1000 * (time.perf_counter() - began))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["torch.optim.Muon"] / medians["vitrail"]
    print(", ".join(f"{name} {value:.1f} ms" for name, value in medians.items()) + f": {ratio:.1f} times as fast")


if __name__ == "__main__":
    main()
