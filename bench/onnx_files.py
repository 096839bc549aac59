"""Milliseconds a picture of one model as PyTorch runs it, and as ONNX files, floating point and of eight bits.

.venv/bin/python bench/onnx_files.py WEIGHTS [--image 224] [--rounds 9]

Pictures of noise, batches of 1 and 16, all in turn, medians.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from vitrail.machine import keep_memory
from vitrail.shrink.int8 import quantize_onnx
from vitrail.weights import read
from vitrail.weights.onnx import OnnxModel, save_onnx


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=9)
    a = parser.parse_args()
    keep_memory()
    weights = read(a.weights).adapted(image=a.image)
    weights = weights if weights.config.classes else weights.adapted(classes=10)
    with tempfile.TemporaryDirectory() as folder:
        whole, small = Path(folder) / "whole.onnx", Path(folder) / "small.onnx"
        save_onnx(weights, whole)
        quantize_onnx(whole, small)
        models = {"PyTorch": weights.model().float()}
        models |= {name: OnnxModel(path, weights.config) for name, path in (("ONNX", whole), ("8 bits", small))}
        print("| batch | " + " | ".join(models) + " |\n| ---: |" + " ---: |" * len(models))
        for batch in (1, 16):
            images, seen = torch.rand(batch, weights.config.channels, a.image, a.image), {name: [] for name in models}
            with torch.inference_mode():
                for _ in range(a.rounds + 2):
                    for name, model in models.items():
                        began = time.perf_counter()
                        model(images, shortest=True)
                        seen[name].append(1e3 * (time.perf_counter() - began) / batch)
            print(f"| {batch} | " + " | ".join(f"{statistics.median(one[2:]):.1f}" for one in seen.values()) + " |")
        print(f"megabytes: {whole.stat().st_size / 1e6:.1f}, {small.stat().st_size / 1e6:.1f}")


if __name__ == "__main__":
    main()
