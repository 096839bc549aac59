"""An explanation as a page, as pictures and as numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from vitrail.families import ViT
from vitrail.files import Output, finite, write_json
from vitrail.lens import Curves, Explanation, methods
from vitrail.lens.packing import Packed, letters, pack
from vitrail.report.charts import Line, line_chart
from vitrail.report.drawing import COLOURS, DIVERGING, ramp, save_figure, sheet, sheet_figure
from vitrail.report.page import as_seen, picture, write_page

INDEX = "index"  # the name of the page of all pictures, which no picture may have
TOP = 5
ABOUT = {  # in words, and the unit
    "attention": ("Where {who} looks, in layer {layer}, {head}.", "fraction of the attention"),
    "rollout": (
        "Attention followed through all layers, as if each kept half of what it had (Abnar and Zuidema 2020).",
        "fraction of the answer, all tokens together 1",
    ),
    "relevance": (
        "Attention through all layers, counted where more of it would raise the answer (Chefer et al. 2021).",
        "relevance, without a unit",
    ),
    "gradcam": (
        "Patches whose features push the answer up, in layer {layer} (Selvaraju et al. 2017).",
        "logits, to first order",
    ),
}
LINES = (("first", ""), ("second", "7 3"), ("third", "2 3"), ("fourth", "9 3 2 3"), ("fifth", "4 2"))  # of each method
PAGE = 24_000_000  # letters of a page
NOTED = 0.001  # a fraction of a row shown elsewhere that is worth saying


def write_explanation(
    folder: Path | Output,
    name: str,
    pixels: Tensor,
    explanation: Explanation,
    *,
    labels: Sequence[str],
    model: ViT,
    title: str,
    source: str = "",
    truth: str | None = None,
) -> dict[str, Any]:
    """Write NAME.html, NAME.json and a PNG for each method and for all heads; the numbers.

    The source is what the picture is called, and the truth its class, where that is known.
    """
    facts = {**numbers(name, explanation, labels, title), "source": source or name, "truth": truth}
    write_json(folder / f"{name}.json", facts)
    _write_page(folder / f"{name}.html", facts, pixels, explanation, model)
    for method, values in explanation.maps.items():
        _overlay(folder / f"{name}-{method}.png", pixels, values.numpy(), facts, method)
    _heads(folder / f"{name}-heads.png", explanation, facts)
    return facts


def write_index(folder: Path | Output, written: dict[str, dict[str, Any]], unread: Sequence[str] = ()) -> Path:
    """index.html: all pictures that were explained, and how far each method is right on average."""
    names = list(dict.fromkeys(one["name"] for facts in written.values() for one in facts["methods"]))
    rows = []
    for method in names:
        measured = [one["gap"] for facts in written.values() for one in facts["methods"] if one["name"] == method]
        gaps = np.array([gap for gap in measured if gap is not None])
        if len(gaps) > 1:
            rows.append({"name": method, "gap": gaps.mean(), "error": gaps.std(ddof=1) / len(gaps) ** 0.5})
    rows.sort(key=lambda row: -row["gap"])
    shown = rows[0]["name"] if rows else names[0]
    by_method = {name: {one["name"]: one["gap"] for one in facts["methods"]} for name, facts in written.items()}
    fields = {"written": written, "methods": rows, "shown": shown, "gaps": by_method, "unread": unread}
    return write_page(folder / f"{INDEX}.html", "explained.html", **fields)


def numbers(name: str, e: Explanation, labels: Sequence[str], model: str) -> dict[str, Any]:
    """All numbers, by name."""
    names = [*labels, *(str(number) for number in range(len(labels), len(e.probabilities)))]
    likeliest = e.probabilities.topk(min(TOP, len(names))).indices.tolist()
    layers, heads = e.attended.shape[:2]
    who = _answering(e)
    details = {
        "who": who["name"],
        "layer": e.layer + 1,
        "head": "the mean of its heads" if e.head is None else f"head {e.head + 1}",
    }
    facts = {
        "name": name,
        "model": model,
        "label": {"name": names[e.label], "index": e.label, "probability": float(e.probabilities[e.label])},
        "answers": [
            {"label": names[number], "probability": float(e.probabilities[number])}
            for number in [*likeliest, *([] if e.label in likeliest else [e.label])]
        ],
        "size": [side * e.tokens.patch for side in e.tokens.grid],
        "grid": list(e.tokens.grid),
        "patch": e.tokens.patch,
        "prefix": list(e.tokens.prefix),
        "tokens": e.tokens.count,
        "layers": layers,
        "heads": heads,
        "by_layer": (~e.attended.isnan().any(-1)).sum(1).tolist(),
        "layer": e.layer + 1,
        "head": None if e.head is None else e.head + 1,
        "answering": who,
        "methods": [
            {
                "name": method,
                "about": ABOUT[method][0].format(**details) if method in ABOUT else "",
                "formula": (methods[method].__doc__ or "").split("\n\n")[0].strip(),
                "unit": ABOUT[method][1] if method in ABOUT else "importance",
                "map": values.flatten().tolist(),
                **_curves(e.curves.get(method)),
            }
            for method, values in e.maps.items()
        ],
        "random": {**_curves(e.random), "spread": None if e.random is None else e.random.spread},
        "attention": e.attended.tolist(),
        "lens": [
            {
                "after": f"layer {layer}" if layer else "the embedding",
                "label": names[int(row.argmax())],
                "probability": float(row.max()),
                "explained": float(row[e.label]),
            }
            for layer, row in enumerate(e.lens)
        ],
        "distance": None if e.distance is None else e.distance.tolist(),
        "writes": None
        if e.writes is None
        else {
            "heads": e.writes.heads[0, :, :, e.label].tolist(),
            "feed_forward": e.writes.feed_forward[0, :, e.label].tolist(),
            "embedding": float(e.writes.embedding[0, e.label]),
            "biases": float(e.writes.biases[0, e.label]),
            "logit": float(e.writes.logits[0, e.label]),
        },
        "notes": list(e.notes),
    }
    return cast("dict[str, Any]", finite(facts))


def _answering(e: Explanation) -> dict[str, Any]:
    """Which token the head is given: its number, or -1 where it is the mean of several."""
    rows = e.tokens.answer.nonzero()[:, 0].tolist()
    if rows == [0] and e.tokens.prefix:
        return {"token": rows[0], "name": f"the {e.tokens.prefix[rows[0]]} token"}
    first = [name for row, name in enumerate(e.tokens.prefix) if row in rows]
    if len(rows) > len(first):
        return {"token": -1, "name": f"{'the class token and ' if first else ''}the mean of the patches"}
    return {"token": -1, "name": f"the {' and '.join(first)} tokens"}


def _curves(one: Curves | None) -> dict[str, Any]:
    if one is None:
        return dict.fromkeys(("deletion", "insertion", "gap", "curves"))
    lines = {name: getattr(one, name).tolist() for name in ("fractions", "deletion", "insertion")}
    return {"deletion": one.areas[0], "insertion": one.areas[1], "gap": one.gap, "curves": lines}


def _write_page(path: Path, facts: dict[str, Any], pixels: Tensor, e: Explanation, model: ViT) -> None:
    there = e.attended[~e.attended.isnan().any(-1)]
    image, answer = picture(pixels), letters(there.numpy().astype("<f4"))
    packed = pack(model, e.trace, e.tokens, budget=max(1, (PAGE - len(image) - len(answer)) * 3 // 4))
    shown = {name: value for name, value in facts.items() if name != "attention"} | {
        "patterns": {"kind": packed.kind, "about": packed.about, "note": _note(packed, e)},
        "groups": None if e.tokens.groups is None else e.tokens.groups[0].tolist(),
        "colours": ramp(COLOURS),
        "diverging": ramp(DIVERGING),
    }
    write_page(
        path,
        "explain.html",
        facts=shown,
        picture=image,
        blocks={"answer": answer, **packed.blocks},
        deletion=_chart(e, "deletion"),
        insertion=_chart(e, "insertion"),
    )


def _note(packed: Packed, e: Explanation) -> str:
    queries = packed.about.get("queries")
    sentences = []
    if queries is not None and len(queries) < e.tokens.count:
        sentences.append(f"Kept for {len(queries)} of {e.tokens.count} tokens; of the others the nearest one is shown.")
    mean, most = packed.error
    if most >= NOTED:
        sentences.append(
            f"To keep the page small, some of the attention of a token is shown elsewhere than it is: {mean:.1%} on "
            f"average, {most:.1%} at most; of {_answering(e)['name']} it is exact."
        )
    return " ".join(sentences)


def _chart(e: Explanation, name: str) -> Any:
    if e.random is None:
        return ""
    lines = {**e.curves, "random order": e.random}
    most = max(float(line.max()) for one in lines.values() for line in (one.deletion, one.insertion))
    looks = [*(LINES[number % len(LINES)] for number in range(len(e.curves))), ("soft", "1 3")]
    drawn = [
        Line(method, list(zip(one.fractions.tolist(), getattr(one, name).tolist(), strict=True)), *look)
        for (method, one), look in zip(lines.items(), looks, strict=True)
    ]
    done = "taken away" if name == "deletion" else "put back"
    return line_chart(drawn, f"fraction of the patches {done}", percent=True, span=(0.0, most))


def _overlay(path: Path, pixels: Tensor, values: Any, facts: dict[str, Any], method: str) -> None:
    """The picture, the map, and one over the other, patch by patch: nothing is smoothed."""
    down, across = facts["size"]
    extent = (0, across, down, 0)
    image = as_seen(pixels)
    figure = Figure(figsize=(11.5, 0.7 + 3.5 * min(2.0, down / across)), layout="constrained")
    panels = figure.subplots(1, 3)
    one = next(one for one in facts["methods"] if one["name"] == method)
    gap = "" if one["gap"] is None else f", gap {one['gap']:+.3f}"
    chosen = {"attention": f", layer {facts['layer']}", "gradcam": f", layer {facts['layer']}"}.get(method, "")
    chosen += f", head {facts['head']}" if method == "attention" and facts["head"] else ""
    titles = (f"{facts['label']['name']}, {facts['label']['probability']:.1%}", "both", method + chosen + gap)
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=11, parse_math=False)
        axes.set_axis_off()
    for axes in panels[:2]:
        axes.imshow(image, cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="nearest")
    most = float(values.max())
    most = most if most > 0 else 1.0
    scale = {"cmap": COLOURS, "vmin": 0, "vmax": most, "extent": extent, "interpolation": "nearest"}
    panels[1].imshow(values, alpha=0.6, **scale)
    drawn = panels[2].imshow(values, **scale)
    bar = figure.colorbar(drawn, ax=panels[2], label=one["unit"], fraction=0.046)
    bar.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]
    save_figure(figure, path)


def _heads(path: Path, e: Explanation, facts: dict[str, Any]) -> None:
    """What the answering token attends to, every head of every layer on one scale."""
    maps = np.stack([e.tokens.on_patches(one[None])[0].numpy() for one in e.attended])  # NaN: a head that is not there
    figure, axes = sheet_figure(maps)
    most = np.nanmax(maps) if np.nanmax(maps) > 0 else 1
    scale = PowerNorm(0.5, vmin=0, vmax=most)  # lest one large weight leave all others dark
    rows = [f"layer {layer + 1}" for layer in range(maps.shape[0])]
    drawn = sheet(axes, maps, rows, [f"head {head + 1}" for head in range(maps.shape[1])], cmap=COLOURS, norm=scale)
    label = f"fraction of the attention of {facts['answering']['name']}, square-root scale"
    figure.colorbar(drawn, ax=axes, label=label, fraction=0.04, aspect=30)
    save_figure(figure, path)
