"""Which explanation to trust: deletion and insertion of every method over many test pictures of a run.

.venv/bin/python bench/explain.py RUN --pictures 500

The likeliest class of each picture is explained, right or wrong. Areas under deletion (smaller is better) and insertion
(larger is better), in the mean over the pictures; the gap between them with its standard error; and how often a method
has the largest gap of all. In random order the gap is 0; how far one random order lies from that is in brackets.
"""

import argparse

import torch

from vitrail.data import unit
from vitrail.lens import curves, methods, random_curves
from vitrail.machine import keep_memory
from vitrail.report.figures import spread
from vitrail.runs import Run
from vitrail.tasks.pictures.predictor import Predictor


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--pictures", type=int, default=500)
    options = parser.parse_args()
    keep_memory()
    run = Run(options.run)
    predictor = Predictor.of(run.weights())
    model = predictor.model
    test = run.evaluation_set(weights=predictor.weights).pictures
    images = predictor.normalise(unit(test[spread(len(test), options.pictures)].images))
    with torch.no_grad():
        labels = torch.cat([model(some).argmax(1) for some in images.split(64)])
    areas: dict[str, list[torch.Tensor]] = {name: [] for name in methods}
    random, spreads = [], []
    maps = {name: torch.cat([methods[name](model, *few) for few in _some(images, labels)]) for name in methods}
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        for name in methods:
            areas[name].append(torch.tensor(curves(model, image, maps[name][number], label).areas))
        in_random_order = random_curves(model, image, tuple(maps["rollout"].shape[1:]), label)
        random.append(in_random_order.areas[0])
        spreads.append(in_random_order.spread)
    every = torch.stack([torch.stack(rows) for rows in areas.values()])  # (methods, pictures, 2)
    gaps = every[..., 1] - every[..., 0]
    best = gaps.argmax(0)
    print(f"{len(images)} pictures")
    print("| | deletion | insertion | gap | best of a picture |\n| --- | ---: | ---: | ---: | ---: |")
    for number, name in enumerate(methods):
        deletion, insertion = every[number].mean(0).tolist()
        error = float(gaps[number].std() / len(images) ** 0.5)
        first = float((best == number).float().mean())
        print(f"| {name} | {deletion:.3f} | {insertion:.3f} | {gaps[number].mean():+.3f} ± {error:.3f} | {first:.0%} |")
    area, single = torch.tensor(random).mean(), torch.tensor(spreads).square().mean().sqrt()
    print(f"| random order | {area:.3f} | {area:.3f} | 0 ({single:.3f}) | |")


def _some(images: torch.Tensor, labels: torch.Tensor) -> zip:
    return zip(images.split(64), labels.split(64), strict=True)


if __name__ == "__main__":
    main()
