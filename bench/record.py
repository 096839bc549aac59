"""What it costs to look inside: a forward pass while q, k, v and z are recorded, beside a plain one.

.venv-peers/bin/python bench/record.py --rounds 15

The peers' ways to see the attention are measured beside it: Hugging Face with output_attentions, which needs its eager
attention, and vit-pytorch's Recorder; each as a ratio to the same library's plain pass. All in one process, in an order
drawn anew each round.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))

SHAPES = {  # width, depth, heads, batch
    "ti/16, batch 1": (192, 12, 3, 1),
    "ti/16, batch 16": (192, 12, 3, 16),
    "b/16, batch 1": (768, 12, 12, 1),
    "b/16, batch 8": (768, 12, 12, 8),
}


def systems(width: int, depth: int, heads: int, images: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Ways to run a pass, by name."""
    import stub  # noqa: F401
    from transformers import ViTConfig, ViTModel
    from vit_pytorch import ViT
    from vit_pytorch.recorder import Recorder

    import vitrail as vt

    ours = vt.build("vit", patch=16, width=width, depth=depth, heads=heads, classes=1000).eval()

    def recorded() -> None:
        with vt.record(ours):
            ours(images)

    def hf(kind: str) -> Any:
        shape = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads}
        return ViTModel(ViTConfig(**shape, intermediate_size=4 * width, attn_implementation=kind)).eval()

    def vit_pytorch() -> Any:
        shape = {"image_size": 224, "patch_size": 16, "num_classes": 1000, "dim": width, "depth": depth}
        return ViT(**shape, heads=heads, dim_head=width // heads, mlp_dim=4 * width).eval()

    fused, eager, theirs, recorder = hf("sdpa"), hf("eager"), vit_pytorch(), Recorder(vit_pytorch())
    return {
        "vitrail": lambda: ours(images),
        "vitrail, recorded": recorded,
        "hf": lambda: fused(images),
        "hf, output_attentions": lambda: eager(images, output_attentions=True),
        "vit-pytorch": lambda: theirs(images),
        "vit-pytorch, Recorder": lambda: recorder(images),
    }


def main() -> None:
    """Print medians of the times, and of the ratios round by round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    from vitrail.machine import keep_memory

    keep_memory()
    print("| | vitrail recorded / plain | hf with attentions / plain | vit-pytorch Recorder / plain |")
    print("| --- | ---: | ---: | ---: |")
    with torch.no_grad():
        for name, (width, depth, heads, batch) in SHAPES.items():
            torch.manual_seed(0)
            ways = systems(width, depth, heads, torch.randn(batch, 3, 224, 224))
            times: dict[str, list[float]] = {way: [] for way in ways}
            for round_ in range(options.rounds + 1):
                for way in random.sample(list(ways), len(ways)):
                    began = time.perf_counter()
                    ways[way]()
                    if round_:  # the first is to warm up
                        times[way].append(time.perf_counter() - began)
            pairs = list(ways)
            cells = []
            for plain, seen in zip(pairs[::2], pairs[1::2], strict=True):
                ratios = [b / a for a, b in zip(times[plain], times[seen], strict=True)]
                cells.append(f"{statistics.median(ratios):.2f} ({1000 * statistics.median(times[plain]):.1f} ms plain)")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
