"""The papers' experiments on digits, Fashion-MNIST and solar cells: what docs/experiments.md shows.

.venv/bin/python bench/experiments.py WORK [NAME ...]        # all of them take about two hours on two cores

Each is a `vitrail compare`, and goes on where it was stopped. Its figure goes into docs/experiments, its numbers into
bench/results/compare, a line for each cell, and its table is printed.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from photos import split_table

from vitrail.report.compare_table import table_of

ROOT = Path(__file__).parent.parent
FIGURES, NUMBERS = ROOT / "docs" / "experiments", ROOT / "bench" / "results" / "compare"
# Fashion-MNIST's models are smaller than its recipe's, so that two cores train many of them.
SMALL = "--set model.width=48 --set model.depth=3 --set model.hidden=96"
COMMANDS = {
    "norms-digits": "norms digits --seeds 5 --minutes 26",
    "models-digits": "models digits --fractions 0.03 0.1 0.3 1 --seeds 3",
    "models-fashion": f"models fashion --fractions 0.003 0.03 0.1 --seeds 3 --minutes 15 {SMALL} "
    "--only ViT --only 'residual*' --only 'hybrid, as many parameters'",
    "models-cells": "models cells.csv --image 32 --fractions 0.3 1 --seeds 3 --minutes 10 --only ViT "
    "--only 'residual*'",
    "generative-digits": "generative digits --fractions 0.03 0.1 0.3 1 --seeds 5",
    "generative-fashion": f"generative fashion --fractions 0.003 0.01 0.03 0.1 --seeds 3 --minutes 6 {SMALL} "
    "--set model.stem=patch",
    "positions-digits": "positions digits --fractions 0.3 1 --seeds 5",
    "patches-digits": "patches digits --seeds 3",
    "depth-digits": "depth digits --seeds 3",
    "kernels-digits": "kernels digits --seeds 3",
}


def run(name: str, work: Path) -> Path:
    """Run an experiment, or what is left of it; its folder."""
    words = shlex.split(COMMANDS[name])
    if "cells.csv" in words:
        words[words.index("cells.csv")] = str(split_table("cells", 0, work))
    folder = work / name
    subprocess.run([sys.executable, "-m", "vitrail", "compare", *words, "--out", str(folder)], check=True)
    return folder


def keep(name: str, folder: Path) -> None:
    """Keep its figures and numbers, and print its table."""
    for home in (FIGURES, NUMBERS):
        home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "compare.png", FIGURES / f"{name}.png")
    for picture in folder.glob("positions-*.png"):
        shutil.copyfile(picture, FIGURES / f"{name}{picture.name.removeprefix('positions')}")
    shutil.copyfile(folder / "compare.csv", NUMBERS / f"{name}.csv")
    state = json.loads((folder / "compare.json").read_text())
    columns, rows = table_of(state)
    print(f"\n## {name}\n\n    vitrail compare {COMMANDS[name]}\n")
    print("| " + " | ".join(column.lstrip(">") for column in columns) + " |")
    print("| " + " | ".join("---:" if column.startswith(">") else "---" for column in columns) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print("\n" + "\n".join(f"- {sentence}" for sentence in state["sentences"]), flush=True)


def main() -> None:
    """Run and keep what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--keep", action="store_true", help="keep what is there, and run nothing")
    a = parser.parse_args()
    a.work.mkdir(parents=True, exist_ok=True)
    for name in a.names or COMMANDS:
        keep(name, a.work / name if a.keep else run(name, a.work))


if __name__ == "__main__":
    main()
