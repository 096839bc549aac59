"""The figures of the ViT paper from any ViT: its filters, its positions, how far its heads look; and over time."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.files import Output, whole, write_json
from vitrail.lens import attention_distance, filter_components, position_similarity, uniform_distance
from vitrail.report.drawing import COLOURS, DIVERGING, save_figure, sheet, sheet_figure
from vitrail.report.page import embedded, write_page
from vitrail.report.positions import COSINE, draw_positions
from vitrail.runs import Run

ACROSS = 7  # filters in a row
FIRST = 8  # filters shown at each step of a training
MOMENTS = 8  # steps of a training that are shown


@dataclass(frozen=True)
class Drawn:
    """A figure that was made: its file, and what it shows."""

    file: str
    title: str
    words: str


@dataclass
class Figures:
    """Figures of one model, written one by one into a folder; what cannot be drawn of it is a note."""

    folder: Path | Output
    drawn: list[Drawn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    arrays: dict[str, Any] = field(default_factory=dict)

    def unless(self, make: Callable[[], None]) -> None:
        """Make a figure, or note why the model has none such."""
        try:
            make()
        except InputError as error:
            self.notes.append(str(error))

    def filters(self, model: ViT) -> None:
        """The principal components of the patch filters."""
        components, fractions = filter_components(model)
        panels, how = _components(components.numpy())
        count = len(panels)
        columns = min(ACROSS, count)
        rows = -(-count // columns)
        blank = np.full((rows * columns - count, *panels.shape[1:]), 1.0 if panels.ndim == 4 else np.nan)  # noqa: PLR2004
        grid = np.concatenate([panels, blank]).reshape(rows, columns, *panels.shape[1:])
        figure, axes = sheet_figure(grid)
        drawn = sheet(axes, grid, (), (), **how)
        if how:
            figure.colorbar(drawn, ax=axes, label="weight of a pixel", fraction=0.04, aspect=30)
        words = (
            f"The {count} directions in which the filters of the patch embedding differ most, the strongest first, row "
            f"by row; together {float(fractions.sum()):.1%} of their variance. "
            + ("All on one scale." if how else "Each as a picture on its own scale; grey is zero.")
        )
        self._save(figure, "filters", "Patch filters: principal components", words)
        self.arrays |= {"filters": components.numpy(), "filters_variance": fractions.numpy()}

    def positions(self, model: ViT) -> None:
        """How alike the positions are."""
        drawn = draw_positions(model)
        self._save(drawn.figure, "positions", drawn.title, drawn.words)
        self.arrays["positions"] = drawn.numbers

    def distance(self, model: ViT, images: Tensor) -> None:
        """How far each head looks, by depth."""
        far = attention_distance(model, images).mean(1).cpu().numpy()  # (l h)
        config = model.config
        grid = (images.shape[-2] // config.patch, images.shape[-1] // config.patch)
        even = uniform_distance(grid, config.patch)
        figure = Figure(figsize=(7, 4.4), layout="constrained")
        axes = figure.subplots()
        for layer, values in enumerate(far, 1):
            axes.scatter([layer] * len(values), values, s=26, color=mpl.colormaps[COLOURS](0.25), alpha=0.8)
        there = ~np.isnan(far).all(1)  # layers that have attention
        axes.plot(np.arange(1, len(far) + 1)[there], np.nanmean(far[there], 1), color="0.35", label="mean of the heads")
        axes.axhline(even, color="0.35", linestyle=":", label="if it looked everywhere alike")
        axes.set(
            xlabel="layer", ylabel="mean attention distance (pixels)", ylim=(0, 1.1 * max(even, float(np.nanmax(far))))
        )
        axes.set_xlim(0.5, len(far) + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
        words = f"A dot for each head, over {len(images)} pictures of {images.shape[-2]} x {images.shape[-1]} pixels."
        self._save(figure, "distance", "Attention distance by depth", words)
        self.arrays |= {"distance": far, "distance_uniform": np.array(even)}

    def importance(self, sensitivity: Tensor, without: Tensor | None, count: int) -> None:
        """How much each head matters, by gradient and by ablation."""
        measures = {"by gradient: E |z dL/dz|": sensitivity.numpy()}
        self.arrays["importance_gradient"] = sensitivity.numpy()
        if without is not None:
            measures["by ablation: loss without it, less loss"] = without.numpy()
            self.arrays["importance_ablation"] = without.numpy()
        figure = Figure(figsize=(6.2, (1.2 + 0.4 * len(sensitivity)) * len(measures)), layout="constrained")
        for axes, (title, values) in zip(
            figure.subplots(len(measures), squeeze=False)[:, 0], measures.items(), strict=True
        ):
            limit, signed = float(np.nanmax(np.abs(values))) or 1.0, bool((values < 0).any())
            scale = {"cmap": DIVERGING, "vmin": -limit} if signed else {"cmap": COLOURS, "vmin": 0}
            drawn = axes.imshow(values, vmax=limit, aspect="auto", **scale)
            axes.set_xticks(range(values.shape[1]), _numbers(values.shape[1]))
            axes.set_yticks(range(values.shape[0]), _numbers(values.shape[0]))
            axes.set(title=title, xlabel="head", ylabel="layer")
            figure.colorbar(drawn, ax=axes, label="nats of the loss")
        words = f"How much each head matters to the loss on {count} pictures (Michel et al. 2019)."
        self._save(figure, "importance", "What each head is worth", words)

    def over_time(self, kept: dict[int, Run], images: Tensor | None) -> None:
        """The same while it was trained, from models that were kept along the way."""
        steps = list(kept)
        shown = {steps[round(number)] for number in np.linspace(0, len(steps) - 1, MOMENTS)}
        filters, alike, far = {}, {}, {}
        for step, run in kept.items():
            try:
                model = run.weights().model()
            except InputError as error:
                self.notes.append(str(error))
                continue
            if not isinstance(model, ViT):
                continue
            if step in shown:
                with suppress(InputError):  # noted of the last one already
                    filters[step] = filter_components(model, FIRST)[0].numpy()
                with suppress(InputError):
                    alike[step] = position_similarity(model).numpy()
            if images is not None:
                with suppress(InputError):
                    far[step] = attention_distance(model, images).nanmean((1, 2)).cpu().numpy()
        self.arrays["steps"] = np.array(steps)
        if filters:
            self._filters_over_time(filters)
        if alike:
            self._positions_over_time(alike)
        if far and images is not None:
            self._distance_over_time(far, len(images), float(self.arrays["distance_uniform"]))

    def _filters_over_time(self, filters: dict[int, Any]) -> None:
        panels, how = _components(np.concatenate(list(filters.values())))
        grid = panels.reshape(len(filters), -1, *panels.shape[1:])
        figure, axes = sheet_figure(grid, each=1.2)
        drawn = sheet(axes, grid, _steps(filters), _numbers(grid.shape[1]), **how)
        if how:
            figure.colorbar(drawn, ax=axes, label="weight of a pixel", fraction=0.04, aspect=30)
        words = "The first principal components at several steps of the training; their order and sign are free."
        self._save(figure, "filters-over-time", "Patch filters over time", words)
        self.arrays["filters_over_time"] = np.stack(list(filters.values()))

    def _positions_over_time(self, alike: dict[int, Any]) -> None:
        down, across = next(iter(alike.values())).shape[:2]
        patches = [(0, 0), (down // 4, across // 4), (down // 2, across // 2), (down - 1, across // 2)]
        grid = np.stack([[one[y, x] for one in alike.values()] for y, x in patches])
        figure, axes = sheet_figure(grid, each=1.2)
        drawn = sheet(axes, grid, [f"patch {y + 1}, {x + 1}" for y, x in patches], _steps(alike), **COSINE)
        figure.colorbar(drawn, ax=axes, label="cosine similarity", fraction=0.04, aspect=30)
        words = "How alike the position of four of the patches is to all others, at several steps of the training."
        self._save(figure, "positions-over-time", "Positions over time", words)
        self.arrays["positions_over_time"] = grid

    def _distance_over_time(self, far: dict[int, Any], pictures: int, even: float) -> None:
        lines = np.stack(list(far.values()), 1)  # (l s)
        depth = len(lines)
        figure = Figure(figsize=(7, 4.4), layout="constrained")
        axes = figure.subplots()
        colours = ListedColormap(
            mpl.colormaps[COLOURS](np.linspace(0, 0.9, depth))
        )  # its brightest is hardly seen on white
        for layer, line in enumerate(lines):
            axes.plot(list(far), line, marker="o", markersize=3, color=colours(layer))
        norm = BoundaryNorm(np.arange(depth + 1) + 0.5, depth)
        bar = figure.colorbar(mpl.cm.ScalarMappable(norm, colours), ax=axes, label="layer")
        bar.set_ticks(range(1, depth + 1, -(-depth // 12)))
        axes.axhline(even, color="0.35", linestyle=":", label="if it looked everywhere alike")
        axes.set(xlabel="step of the training", ylabel="mean attention distance (pixels)")
        axes.legend(frameon=False)
        words = f"A line for each layer, averaged over its heads and {pictures} pictures."
        self._save(figure, "distance-over-time", "Attention distance over time", words)
        self.arrays["distance_over_time"] = lines.T

    def finish(self, name: str, about: dict[str, Any]) -> Path:
        """Write the numbers, and a page with all figures."""
        with whole(self.folder / "figures.npz") as aside, aside.open("wb") as file:
            np.savez_compressed(file, **self.arrays)
        small = ("filters_variance", "distance", "importance_gradient", "importance_ablation", "steps")
        numbers = {key: self.arrays[key].tolist() for key in (*small, "distance_over_time") if key in self.arrays}
        files = [one.file for one in self.drawn]
        write_json(self.folder / "figures.json", {**about, **numbers, "files": files, "notes": self.notes})
        pictures = {one.file: embedded(self.folder / one.file) for one in self.drawn}
        fields = {"name": name, "drawn": self.drawn, "pictures": pictures, "notes": self.notes}
        return write_page(self.folder / "figures.html", "figures.html", **fields)

    def _save(self, figure: Figure, name: str, title: str, words: str) -> None:
        save_figure(figure, self.folder / f"{name}.png")
        self.drawn.append(Drawn(f"{name}.png", title, words))


def spread(count: int, most: int) -> Tensor:
    """At most so many numbers of a list, evenly spread."""
    return torch.linspace(0, count - 1, min(count, most)).round().long()


def _components(components: Any) -> tuple[Any, dict[str, Any]]:
    """Filters (k c p p) as panels, and how they are coloured: as pictures, where they have three channels."""
    if components.shape[1] == 3:  # noqa: PLR2004
        limits = np.abs(components).max((1, 2, 3), keepdims=True)
        return (components / limits / 2 + 0.5).transpose(0, 2, 3, 1), {}
    panels = components.mean(1)
    limit = float(np.abs(panels).max())
    return panels, {"cmap": DIVERGING, "vmin": -limit, "vmax": limit}


def _steps(by_step: dict[int, Any]) -> list[str]:
    return [f"step {step:,}" for step in by_step]


def _numbers(count: int) -> list[str]:
    return [str(number + 1) for number in range(count)]
