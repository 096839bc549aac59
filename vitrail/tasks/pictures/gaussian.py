"""Gaussians fitted to pictures, and what is said of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.data import Normalise, Pictures, unit
from vitrail.families.gaussian.config import GaussianConfig
from vitrail.families.gaussian.fit import fit
from vitrail.families.gaussian.model import Gaussian
from vitrail.tasks.sections import Figure, Gallery, Section
from vitrail.weights import Weights

TOGETHER = 4_096  # pictures
SHOWN, DRAWN = 20, 3  # classes in a report, and pictures drawn from each


@dataclass(frozen=True, eq=False)
class FittedGaussians:
    """The weights, and a line on how they were found."""

    weights: Weights
    said: str


def fit_gaussians(
    config: GaussianConfig, pictures: Pictures, normalise: Normalise, names: tuple[str, ...]
) -> FittedGaussians:
    """Fit a Gaussian for each class to pictures as they are."""

    def some() -> Iterator[tuple[Tensor, Tensor]]:
        order = pictures.rows.split(TOGETHER)
        for rows, labels in zip(order, pictures.labels.split(TOGETHER), strict=True):
            yield normalise(unit(pictures.store[rows])).flatten(1), labels

    fitted = fit(config, some, config.shrinkage)
    shrunk = [fraction for fraction in fitted.shrinkage if fraction]
    summary = f"fitted in closed form: {config.classes} means, {_SPREADS[config.covariance]}"
    if shrunk and config.shrinkage is None:
        fraction = f"{shrunk[0]:.2g}" if len(shrunk) == 1 else f"{min(shrunk):.2g} to {max(shrunk):.2g}"
        which = "the covariance is" if len(fitted.shrinkage) == 1 else f"{len(shrunk)} covariances are"
        summary += (
            f"; {which} singular, and shrunk by {fraction} towards as much variance in all directions (Ledoit-Wolf)"
        )
    return FittedGaussians(Weights("", "vitrail", "gaussian", config, fitted.state, normalise, names), summary)


_SPREADS = {"shared": "one covariance", "own": "a covariance each", "diagonal": "variances each"}


def sections(model: Gaussian, normalise: Normalise, names: tuple[str, ...], summary: str) -> list[Section]:
    """What the classes look like: the mean of each, and pictures drawn from its Gaussian."""
    draw = torch.Generator().manual_seed(0)

    def figures(pictures: Tensor, numbers: list[int], caption: str) -> list[Figure]:
        pixels = (255 * normalise.undone(pictures.float())).round().clamp(0, 255).to(torch.uint8)
        return [
            Figure(one, names[number], f"{100 * float(model.prior[number]):.3g} % of the pictures", caption)
            for one, number in zip(pixels, numbers, strict=True)
        ]

    with torch.no_grad():
        shown = list(range(min(len(names), SHOWN)))
        means = figures(model.pictured(model.mean[shown]), shown, "mean")
        some = [number for number in shown for _ in range(DRAWN)]
        drawn = figures(torch.cat([model.drawn(number, DRAWN, draw) for number in shown]), some, "drawn")
    return [
        Gallery(title="The mean of each class", note=f"{summary[0].upper()}{summary[1:]}.", figures=means, wide=True),
        Gallery(
            title="Drawn from each class",
            note="Pictures as likely as those of the class, if its pixels were as its Gaussian has them.",
            figures=drawn,
            wide=True,
        ),
    ]
