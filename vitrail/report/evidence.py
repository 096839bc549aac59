"""What speaks for an answer, as a page, a picture and numbers: of models without attention."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from vitrail.files import Output, write_json
from vitrail.lens.evidence import Evidence
from vitrail.report.drawing import COLOURS, DIVERGING, save_figure
from vitrail.report.page import as_seen, picture, write_page

TOP = 5


def write_evidence(
    folder: Path | Output,
    name: str,
    pixels: Tensor,
    evidence: Evidence,
    *,
    labels: Sequence[str],
    title: str,
    source: str = "",
    truth: str | None = None,
) -> dict[str, Any]:
    """Write NAME.html, NAME.json and NAME-METHOD.png; the numbers."""
    names = [*labels, *(str(number) for number in range(len(labels), len(evidence.probabilities)))]
    likeliest = evidence.probabilities.topk(min(TOP, len(names))).indices.tolist()
    facts: dict[str, Any] = {
        "name": name,
        "model": title,
        "source": source or name,
        "truth": truth,
        "label": {
            "name": names[evidence.label],
            "index": evidence.label,
            "probability": float(evidence.probabilities[evidence.label]),
        },
        "random": {"gap": None},
        "against": None if evidence.other is None else names[evidence.other],
        "answers": [{"label": names[one], "probability": float(evidence.probabilities[one])} for one in likeliest],
        "methods": [
            {
                "name": evidence.method,
                "about": evidence.about,
                "unit": evidence.unit,
                "gap": None,
                "grid": list(evidence.values.shape),
                "map": evidence.values.flatten().tolist(),
            }
        ],
    }
    write_json(folder / f"{name}.json", facts)
    _draw(folder / f"{name}-{evidence.method}.png", pixels, evidence, facts)
    write_page(folder / f"{name}.html", "evidence.html", facts=facts, method=facts["methods"][0], shown=picture(pixels))
    return facts


def _draw(path: Path, pixels: Tensor, evidence: Evidence, facts: dict[str, Any]) -> None:
    """The picture, the map, and one over the other: nothing is smoothed."""
    down, across = pixels.shape[1:]
    figure = Figure(figsize=(11.5, 0.7 + 3.5 * min(2.0, down / across)), layout="constrained")
    panels, extent = figure.subplots(1, 3), (0, across, down, 0)
    against = "" if evidence.other is None else f" against {facts['against']}"
    titles = (f"{facts['label']['name']}, {facts['label']['probability']:.1%}", "both", f"{evidence.method}{against}")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=11, parse_math=False)
        axes.set_axis_off()
    for axes in panels[:2]:
        axes.imshow(as_seen(pixels), cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="nearest")
    values = evidence.values.numpy()
    most = float(abs(values).max()) or 1.0
    signed = evidence.other is not None
    scale = {"cmap": DIVERGING if signed else COLOURS, "vmin": -most if signed else 0, "vmax": most}
    panels[1].imshow(values, alpha=0.6, extent=extent, interpolation="nearest", **scale)
    drawn = panels[2].imshow(values, extent=extent, interpolation="nearest", **scale)
    figure.colorbar(drawn, ax=panels[2], label=evidence.unit, fraction=0.046)
    save_figure(figure, path)
