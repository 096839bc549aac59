"""What pre-training on pixels is worth with few labels: a linear probe on the layers of a run, beside the same network
from scratch and logistic regression on the pixels.

.venv/bin/vitrail train igpt --out runs/igpt
.venv/bin/python bench/igpt.py runs/igpt [--labels 100] [--draws 5] [--out bench/results/igpt]

For each draw of labelled training pictures: the layer of the probe and how much it is held back are chosen by
cross-validation on those labels alone; the network from scratch has the run's own shape, is trained on the same labels
with the same shifts, and is read at its end. All are tested on the run's own test pictures. Mean and spread over the
draws, as a table and a figure.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from vitrail.families import families, family_of
from vitrail.runs import Run
from vitrail.tasks.pixels.examples import begun, shifted
from vitrail.tasks.pixels.painter import CELLS, Painter, in_cells
from vitrail.tasks.pixels.task import PixelTask
from vitrail.training.optim import adamw, warmup_cosine

HELD = (0.001, 0.01, 0.1)  # C of scikit-learn
STEPS = 300


def search(features: np.ndarray, labels: np.ndarray) -> GridSearchCV:
    """The best linear classifier by cross-validation on these labels."""
    made = make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000))
    folds = StratifiedKFold(max(2, min(3, int(np.bincount(labels).min()))), shuffle=True, random_state=0)
    with threadpool_limits(1):  # small matrices
        return GridSearchCV(made, {"logisticregression__C": list(HELD)}, cv=folds).fit(features, labels)


def from_scratch(task: PixelTask, pixels: Tensor, labels: Tensor, tested: Tensor, seed: int) -> Tensor:
    """What the same network says, trained on the labels alone, read as the probe reads it, with a linear head."""
    torch.manual_seed(seed)
    model = families[family_of(task.config)](task.config)
    cells = min(CELLS, task.size[0]) * min(CELLS, task.size[1])
    head = nn.Linear(cells * task.config.width, len(task.parts.train.names))
    both = nn.ModuleList([model, head])
    optimizer, rate = adamw(both, 1e-3, 0.05, (0.9, 0.98)), warmup_cosine(STEPS, 30)

    def said(some: Tensor) -> Tensor:
        given = begun(some, len(task.palette)) if family_of(task.config) == "gpt" else some
        return head(in_cells(model.norm(model.stream(given)), task.size))

    for step in range(STEPS):
        rows = torch.randint(len(pixels), (min(32, len(pixels)),))
        some = shifted(pixels[rows].long(), task.size, task.recipe.data.shift)
        both.train()
        loss = F.cross_entropy(said(some), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * rate(step)
        optimizer.step()
    both.eval()
    with torch.no_grad():
        return torch.cat([said(some.long()) for some in tested.split(256)]).argmax(-1)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("bench/results/igpt"))
    a = parser.parse_args()
    run = Run(a.run)
    task = PixelTask.prepare(run.recipe)
    painter = Painter.of(run.trained())
    train, held = painter.features(task.train).numpy(), painter.features(task.held).numpy()
    labels, truth = task.parts.train.labels, task.parts.test.labels
    raw, raw_held = task.train.numpy().astype(float), task.held.numpy().astype(float)
    scores: dict[str, list[float]] = {"probe": [], "from scratch": [], "pixels": []}
    layers: list[list[float]] = []
    for draw in range(a.draws):
        rows, _ = train_test_split(np.arange(len(labels)), train_size=a.labels, stratify=labels, random_state=draw)
        some, given = labels[rows], labels[rows].numpy()
        found = [search(one[rows], given) for one in train]
        layers.append([one.score(other, truth.numpy()) for one, other in zip(found, held, strict=True)])
        best = int(np.argmax([one.best_score_ for one in found]))
        scores["probe"].append(layers[-1][best])
        scores["pixels"].append(search(raw[rows], given).score(raw_held, truth.numpy()))
        said = from_scratch(task, task.train[rows], some, task.held, draw)
        scores["from scratch"].append(float((said == truth).double().mean()))
        print(
            f"draw {draw}: " + ", ".join(f"{name} {each[-1]:.1%}" for name, each in scores.items()), f"(layer {best})"
        )
    for name, each in scores.items():
        print(f"{name:<14} {np.mean(each):.2%} ± {np.std(each, ddof=1):.2%}")
    means = np.mean(layers, 0)
    print("by layer       " + " ".join(f"{one:.1%}" for one in means))
    a.out.mkdir(parents=True, exist_ok=True)
    result = {"labels": a.labels, "scores": scores, "layers": layers, "run": run.result}
    (a.out / "probe.json").write_text(json.dumps(result, indent=1) + "\n")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    spread = np.std(layers, 0, ddof=1)
    axes.errorbar(range(len(means)), means, spread, marker="o", capsize=3, label="linear probe on each layer")
    for name, style in (("from scratch", "--"), ("pixels", ":")):
        words = "the same network from scratch" if name == "from scratch" else "logistic regression on the pixels"
        axes.axhline(float(np.mean(scores[name])), linestyle=style, color="grey", label=words)
    axes.set(xlabel="layer", ylabel="accuracy on test digits", title=f"{a.labels} labels, mean of {a.draws} draws")
    axes.legend()
    figure.savefig(a.out / "probe.svg")


if __name__ == "__main__":
    main()
