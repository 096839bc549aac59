"""Tokens a second of training a GPT: ours, and plain PyTorch as nanoGPT has it, on the same text.

.venv/bin/python bench/language.py [--text FILE] [--batch 12] [--length 64] [--width 128] [--depth 4]
    [--heads 4] [--bf16]

Both have the same shape (learned positions, tied output, no dropout), both take a whole step: windows drawn, forward,
backward, gradients clipped, AdamW. Steps take turns; medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Batches
from vitrail.families import families
from vitrail.families.gpt.config import GPTConfig
from vitrail.machine import keep_memory
from vitrail.tasks.language.examples import Windows, continue_text
from vitrail.training.loop import Precision, fit
from vitrail.training.optim import adamw


class Block(nn.Module):
    """A block as it is taught: one map for queries, keys and values, fused attention, GELU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.maps, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        b, n, w = x.shape
        q, k, v = (one.view(b, n, self.heads, -1).transpose(1, 2) for one in self.maps(self.norm1(x)).split(w, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, n, w))
        return x + self.feed(self.norm2(x))


class Plain(nn.Module):
    """A GPT of such blocks."""

    def __init__(self, tokens: int, length: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        self.logits.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.logits(self.norm(self.blocks(x)))


def plain(tokens: Tensor, a: argparse.Namespace, count: int) -> Callable[[], None]:
    """One step as nanoGPT takes it."""
    torch.manual_seed(0)
    model = Plain(count, a.length, a.width, a.depth, a.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        starts = torch.randint(len(tokens) - a.length - 1, (a.batch,))
        x = torch.stack([tokens[i : i + a.length] for i in starts])
        y = torch.stack([tokens[i + 1 : i + 1 + a.length] for i in starts])
        with torch.autocast("cpu", torch.bfloat16) if a.bf16 else nullcontext():
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return step


def ours(tokens: Tensor, a: argparse.Namespace, count: int) -> Callable[[], None]:
    """One step as `vitrail train` takes it, with the same optimizer."""
    torch.manual_seed(0)
    shape = {"tokens": count, "length": a.length, "width": a.width, "depth": a.depth, "heads": a.heads}
    model = families["gpt"](GPTConfig(**shape, hidden=4 * a.width, norm_last=True))
    windows = Windows(tokens.numpy().astype(np.int32), a.length)
    batches = Batches(windows, a.batch, 1000, 0, 1, range(1), torch.device("cpu"))
    precision = Precision("bf16" if a.bf16 else "float32")
    steps: Iterator[object] = fit(
        model, continue_text, batches.starting(0), adamw(model, 1e-3, 0.01), lambda _: 1.0, precision=precision
    )
    return lambda: (next(steps), None)[1]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    for name, value in (("batch", 12), ("length", 64), ("width", 128), ("depth", 4), ("heads", 4), ("steps", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--bf16", action="store_true")
    a = parser.parse_args()
    keep_memory()
    count = 65
    tokens = torch.randint(count, (1_000_000,))
    if a.text is not None:
        text = a.text.read_text(encoding="utf-8")
        letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
        tokens, count = torch.tensor([letters[letter] for letter in text]), len(letters)
    systems = {"vitrail": ours(tokens, a, count), "plain": plain(tokens, a, count)}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(a.steps):
        for name, step in systems.items():
            began = time.perf_counter()
            step()
            if number >= 5:  # the first ones allocate
                times[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(some) for name, some in times.items()}
    for name, seconds in middle.items():
        print(f"{name:<8} {a.batch * a.length / seconds:10,.0f} tokens/s")
    print(f"vitrail is {middle['plain'] / middle['vitrail']:.2f} times as fast")


if __name__ == "__main__":
    main()
