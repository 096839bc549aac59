"""What all pictures have in common: colours even to the eye, panels that share a scale, files that are whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitrail.files import whole

COLOURS, DIVERGING = "viridis", "PuOr_r"  # even to the eye, also in grey and to the colour-blind
PANEL = 40  # pixels of a panel on a sheet, at least
GAP = 3  # pixels between two of them
TITLES = 24  # panels in a row, beyond which only some are named


def ramp(name: str) -> list[list[int]]:
    """The 256 colours of a map, for a page."""
    return (255 * mpl.colormaps[name](np.arange(256))[:, :3]).round().astype(int).tolist()


def sheet(axes: Axes, panels: Any, rows: Sequence[str], columns: Sequence[str], **how: Any) -> Any:
    """Draw panels (rows columns y x), or (rows columns y x 3), as one image on one scale, without smoothing."""
    down, across = panels.shape[2:4]
    large = -(-PANEL // max(down, across))  # pixels of a number
    sides = (down * large, across * large)
    corners = [np.arange(count) * (side + GAP) for count, side in zip(panels.shape[:2], sides, strict=True)]
    size = [starts[-1] + side for starts, side in zip(corners, sides, strict=True)]
    image = np.full((*size, *panels.shape[4:]), np.nan if panels.ndim == 4 else 1.0)  # noqa: PLR2004
    for row, y in enumerate(corners[0]):
        for column, x in enumerate(corners[1]):
            enlarged = panels[row, column].repeat(large, 0).repeat(large, 1)
            image[y : y + sides[0], x : x + sides[1]] = enlarged
    drawn = axes.imshow(image, interpolation="nearest", **how)
    for axis, names, starts, side in zip((axes.yaxis, axes.xaxis), (rows, columns), corners, sides, strict=True):
        step = -(-len(names) // TITLES) if names else 1
        axis.set_ticks((starts + side / 2)[::step] if names else [], list(names)[::step])
    axes.tick_params(length=0, labelsize=8, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    return drawn


def sheet_figure(panels: Any, widest: float = 14.0, each: float = 1.6) -> tuple[Figure, Axes]:
    """A figure for such a sheet, as large as its panels need."""
    rows, columns, down, across = panels.shape[:4]
    wide = min(widest, each * columns)
    tall = min(3 * widest, wide * rows * down / (columns * across))
    figure = Figure(figsize=(wide + 1.6, tall + 0.8), layout="constrained")
    return figure, figure.subplots()


def save_figure(figure: Figure, path: Path) -> None:
    """Write it as a PNG; letters that the font lacks are boxes."""
    with whole(path) as aside, catch_warnings():
        filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(aside, dpi=150, format="png", bbox_inches="tight", pad_inches=0.1)
