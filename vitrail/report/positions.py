"""How a model is told where patches are, as a picture: a panel for each patch, with what it has to do with others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.lens import position_bias, position_similarity
from vitrail.report.drawing import COLOURS, DIVERGING, save_figure, sheet, sheet_figure
from vitrail.report.page import embedded

COSINE = {"cmap": COLOURS, "vmin": -1, "vmax": 1}


@dataclass(frozen=True)
class Positions:
    """A picture of positions, and the numbers that it shows (y x v u)."""

    figure: Figure
    numbers: Any
    title: str
    words: str


def draw_positions(model: ViT) -> Positions:
    """How alike positions are; or, where they are added to the scores, how much."""
    if model.config.position == "relative":
        bias = position_bias(model).numpy()
        limit = float(np.abs(bias).max())
        return Positions(
            _panels(bias, "added to the score", cmap=DIVERGING, vmin=-limit, vmax=limit),
            bias,
            "Positions: what they add to the scores",
            "Each panel is one patch's place, and shows what is added to its score for every other patch, a mean over "
            "the heads.",
        )
    alike = position_similarity(model).numpy()
    return Positions(
        _panels(alike, "cosine similarity", **COSINE),
        alike,
        "Positions: how alike they are",
        "Each panel is one patch's place, and shows how alike its position is to that of every other patch.",
    )


@dataclass(frozen=True)
class Drawn:
    """A picture that was written, as a page shows it."""

    name: str
    address: str


def draw_arms(models: Mapping[str, tuple[str, Any]], folder: Path) -> list[Drawn]:
    """Write a picture of the positions of each model, positions-KEY.png, KEY being its key, with what the model is
    called; a model that has none is left out.
    """
    drawn = []
    for key, (name, model) in models.items():
        try:
            positions = draw_positions(model)
        except InputError:
            continue
        path = folder / f"positions-{key}.png"
        save_figure(positions.figure, path)
        drawn.append(Drawn(name, embedded(path)))
    return drawn


def _panels(numbers: Any, label: str, **how: Any) -> Figure:
    figure, axes = sheet_figure(numbers, widest=9.0, each=1.2)
    names = [[str(number + 1) for number in range(count)] for count in numbers.shape[:2]]
    drawn = sheet(axes, numbers, *names, **how)
    axes.set_xlabel("patch across")
    axes.set_ylabel("patch down")
    figure.colorbar(drawn, ax=axes, label=label, fraction=0.04, aspect=30)
    return figure
