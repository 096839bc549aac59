"""Weights from some classes of Fashion-MNIST, used for few pictures of the others: a frozen model, a tuned one, none.

.venv/bin/python bench/transfer.py --data FOLDER --work DIR

Five classes to learn from first (30,000 pictures), five others with 5, 20 and 60 pictures each, 200 of each of the
official test set to measure; every training as `vitrail train` does it unless told otherwise.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

from vitrail.data.idx import idx_parts, read_pair

SOURCE, TARGET = (0, 1, 2, 7, 8), (3, 4, 5, 6, 9)
SHOTS, TESTS = (5, 20, 60), 200


def part(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (m y x) and classes of one part of the data."""
    pixels, classes = read_pair(*idx_parts(data)[name])
    return pixels[:, 0].numpy(), classes.numpy()


def write_idx(data: Path, out: Path) -> None:
    """The source's classes, as the files of MNIST."""
    out.mkdir(parents=True, exist_ok=True)
    for name, prefix in (("train", "train"), ("test", "t10k")):
        pixels, classes = part(data, name)
        keep = np.isin(classes, SOURCE)
        labels = np.searchsorted(SOURCE, classes[keep])
        for array, what, axes in ((pixels[keep], "images-idx3", 3), (labels, "labels-idx1", 1)):
            head = bytes([0, 0, 8, axes]) + np.array(array.shape, ">u4").tobytes()
            (out / f"{prefix}-{what}-ubyte").write_bytes(head + array.astype(np.uint8).tobytes())


def few(data: Path, shots: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A few pictures of each of the target's classes, drawn anew for each seed; the same ones to test on."""
    chosen = {}
    for name, count, draw in (("train", shots, seed), ("test", TESTS, 0)):
        pixels, classes = part(data, name)
        random = np.random.default_rng(draw)
        rows = np.concatenate([random.permutation(np.flatnonzero(classes == one))[:count] for one in TARGET])
        chosen[name] = pixels[rows], classes[rows]
    return chosen


def write_pngs(chosen: dict[str, tuple[np.ndarray, np.ndarray]], out: Path) -> None:
    """A folder for each part and class."""
    for name, (pixels, classes) in chosen.items():
        for number, (picture, label) in enumerate(zip(pixels, classes, strict=True)):
            path = out / name / str(label) / f"{number:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(path)


def train(*words: object) -> tuple[float, float]:
    """Accuracy, and seconds from beginning to end."""
    command = [sys.executable, "-m", "vitrail", "train", *map(str, words), "--json"]
    began = time.perf_counter()
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(ran.stdout)["accuracy"], time.perf_counter() - began


def main() -> None:
    """Print a line for each number of pictures and each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=8, help="to learn the source in")
    parser.add_argument("--shots", type=int, nargs="*", default=list(SHOTS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--tune", nargs="*", default=[], help="more words for tuning, such as optim.lr=0.003")
    parser.add_argument("--only", choices=["freeze", "tune", "scratch"])
    options = parser.parse_args()
    source = options.work / "source"
    if not (source / "model.safetensors").exists():
        write_idx(options.data, options.work / "idx")
        words = ("fashion", "--data", options.work / "idx", "--out", source, "--epochs", options.epochs)
        print("source", train(*words), flush=True)
    ways: dict[str, list[object]] = {
        "freeze": ["--weights", source, "--freeze"],
        "tune": ["--weights", source, "--tune", *(w for one in options.tune for w in ("--set", one))],
        "scratch": [],
    }
    for shots in options.shots:
        for seed in options.seeds:
            chosen = few(options.data, shots, seed)
            folder = options.work / f"few-{shots}-{seed}"
            if not folder.exists():
                write_pngs(chosen, folder)
            x, y, tx, ty = (array.reshape(len(array), -1) for pair in chosen.values() for array in pair)
            plain = LogisticRegression(C=0.1, max_iter=500).fit(x / 255, y.ravel())
            found = {"pixels": (float((plain.predict(tx / 255) == ty.ravel()).mean()), 0.0)}
            for name, words in ways.items():
                if options.only in (None, name):
                    number = sum(1 for _ in options.work.glob("run-*"))
                    found[name] = train(folder, "--out", options.work / f"run-{number}", "--seed", seed, *words)
            print(shots, seed, *(f"{name} {a:.3f} ({s:.0f} s)" for name, (a, s) in found.items()), flush=True)


if __name__ == "__main__":
    main()
