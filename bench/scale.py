"""How time and memory of one attention grow with the tokens: each kind beside fused full attention, and peers'.

.venv/bin/python bench/scale.py [--kinds local star ...] [--lengths 1024 2048 ...] [--training] [--out FILE.json]
.venv-peers/bin/python bench/scale.py --peers          # with local-attention and reformer-pytorch, in their environment

One layer's kernel, 4 heads of 32 numbers, batch 1, a window of 128 each way, two threads. All systems take turns;
medians of the rounds. Memory is what a process of its own has at its peak, beyond what it had before. Exponents are
fitted over the lengths from 2,048 on; "pays" is the first length from which a kind is faster than full attention.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.core import Graph, kernels
from vitrail.machine import keep_memory

HEADS, WIDTH, WINDOW = 4, 32, 128


@kernels.add("powers")
class Powers(Graph):
    """A rule of one's own: tokens a power of two away, and itself (LogSparse, Li et al. 2019)."""

    def sees(self, i: Tensor, j: Tensor, places: Any) -> Tensor:  # noqa: ARG002
        away = (i - j).abs()
        return (away & (away - 1)) == 0


KINDS: dict[str, Any] = {
    "full": "softmax",
    "local": {"name": "local", "window": WINDOW},
    "bigbird": "bigbird",
    "star": "star",
    "hashing": "hashing",
    "linear": "linear",
    "lowrank": {"name": "lowrank", "length": 65_536},
    "graph": "powers",
    "strided": "strided",
    "fixed": "fixed",
    "axial": "axial",
}


def system(name: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """One kind, or a peer's."""
    if name == "local-attention":
        from local_attention import LocalAttention

        peer = LocalAttention(
            window_size=WINDOW,
            look_backward=1,
            look_forward=1,
            causal=False,
            autopad=True,
            exact_windowsize=True,
            use_rotary_pos_emb=False,
        )
        return lambda q, k, v: peer(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)).view_as(v)
    if name == "reformer-pytorch":
        from reformer_pytorch.reformer_pytorch import LSHAttention

        lsh = LSHAttention(bucket_size=64, n_hashes=2, causal=False)
        return lambda q, _, v: lsh(q.flatten(0, 1), v.flatten(0, 1))[0].view_as(v)
    return kernels.make(KINDS[name])


def once(call: Callable[[Tensor, Tensor, Tensor], Tensor], length: int, *, training: bool) -> float:
    """Seconds of one pass."""
    q, k, v = (torch.randn(1, HEADS, length, WIDTH, requires_grad=training) for _ in range(3))
    began = time.perf_counter()
    with torch.set_grad_enabled(training):
        z = call(q, k, v)
        if training:
            z.sum().backward()
    return time.perf_counter() - began


def peak(name: str, length: int, training: bool) -> float:
    """Megabytes at the peak of a pass, beyond those before."""
    call = system(name)
    once(call, 256, training=training)
    before = highest(afresh=True)
    once(call, length, training=training)
    return highest() - before


def apart(function: Callable[..., Any], *given: Any) -> Any:
    """What a function gives in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *given).result()


def highest(*, afresh: bool = False) -> float:
    """Megabytes that this process had at its peak, so far or from now on (Linux)."""
    if afresh:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def exponent(lengths: list[int], values: list[float]) -> float:
    """Of a power law through the points from 2,048 tokens on."""
    points = [(n, value) for n, value in zip(lengths, values, strict=True) if n >= 2048 and value > 0]
    if len(points) < 2:
        return float("nan")
    return float(np.polyfit(*np.log(np.array(points).T), 1)[0])


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 2048, 4096, 8192, 16_384])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    keep_memory()
    names = [
        "full",
        *(name for name in a.kinds if name != "full"),
        *(["local-attention", "reformer-pytorch"] * a.peers),
    ]
    calls = {name: system(name) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for length in a.lengths:
        seen: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(a.rounds + 1):
            for name in np.random.default_rng([length, turn]).permutation(names).tolist():
                seconds = once(calls[name], length, training=a.training)
                seen[name] += [seconds] if turn else []
        for name in names:
            times[name].append(statistics.median(seen[name]))
    sizes = {} if a.no_memory else {n: [apart(peak, n, length, a.training) for length in a.lengths] for n in names}
    print(
        "| kind |"
        + "".join(f" {length:,} |" for length in a.lengths)
        + " exponent | of memory | pays from | at the end |"
    )
    print("| --- |" + " ---: |" * (len(a.lengths) + 4))
    result = {}
    for name in names:
        faster = [full / own for full, own in zip(times["full"], times[name], strict=True)]
        pays = next(
            (
                n
                for n, _ in zip(a.lengths, faster, strict=True)
                if all(r > 1 for m, r in zip(a.lengths, faster, strict=True) if m >= n)
            ),
            None,
        )
        grown = exponent(a.lengths, sizes[name]) if sizes else float("nan")
        cells = "".join(f" {1e3 * seconds:,.1f} |" for seconds in times[name])
        last = f"{exponent(a.lengths, times[name]):.2f} | {grown:.2f} | {pays or '-'} | {faster[-1]:.1f} times |"
        print(f"| {name} |{cells} {last}")
        result[name] = {"seconds": times[name], "megabytes": sizes.get(name), "pays": pays}
    if a.out is not None:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        a.out.write_text(json.dumps({"lengths": a.lengths, "training": a.training, "kinds": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
