"""A word in several texts, followed through the layers, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from vitrail.lens.vectors import Followed
from vitrail.report.drawing import save_figure

PLANES = 4  # layers of which the plane is drawn, at most
LETTERS = 48  # of a text beside its line


def draw_followed(path: Path, followed: Followed, word: str, texts: Sequence[str]) -> None:
    """How alike the word is to itself in other texts after each layer, and where it stands."""
    similar, plane = followed.similarity, followed.plane()
    depth, count = len(similar) - 1, len(texts)
    chosen = sorted({round(number * depth / (PLANES - 1)) for number in range(PLANES)})
    figure = Figure(figsize=(5 + 3.2 * len(chosen), 4.6), layout="constrained")
    axes = figure.subplots(1, 1 + len(chosen), width_ratios=[1.6, *[1] * len(chosen)])
    first = axes[0]
    for one in range(count):
        for other in range(one):
            line = similar[:, one, other].tolist()
            first.plot(range(depth + 1), line, marker="o", markersize=3, label=f"{other + 1} and {one + 1}")
    first.set(xlabel="layer", ylabel="cosine", ylim=(None, 1.02))
    first.set_title(f"“{word}” beside itself", parse_math=False)
    if count <= PLANES + 1:
        first.legend(fontsize=8)
    for axis, layer in zip(axes[1:], chosen, strict=True):
        points = plane[layer]
        axis.scatter(points[:, 0], points[:, 1], s=20)
        for number, (x, y) in enumerate(points.tolist(), 1):
            axis.annotate(str(number), (x, y), textcoords="offset points", xytext=(4, 4), fontsize=9)
        axis.set(title="the embedding" if layer == 0 else f"layer {layer}", xticks=[], yticks=[])
        axis.margins(0.25)
    named = "\n".join(
        f"{number}  {text[:LETTERS]}{'...' * (len(text) > LETTERS)}" for number, text in enumerate(texts, 1)
    )
    figure.supxlabel(named, fontsize=8, ha="left", x=0.02, parse_math=False)
    save_figure(figure, path)
