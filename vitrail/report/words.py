"""A sentence, seen through, as a page and as numbers."""

from base64 import b64encode
from pathlib import Path
from typing import Any, cast

import numpy as np

from vitrail.files import Output, finite, write_json
from vitrail.lens.words import Attended, Reading
from vitrail.report.drawing import COLOURS, DIVERGING, ramp
from vitrail.report.page import write_page

EXACT = 2_000_000  # weights of a page up to which they are kept as they are


def write_reading(
    folder: Path | Output, name: str, reading: Reading, *, source: str, written: str, title: str, reference: str = ""
) -> dict[str, Any]:
    """Write NAME.html and NAME.json; the numbers."""
    facts: dict[str, Any] = {"name": name, "model": title, "source": source, "written": written, "reference": reference}
    facts |= {
        "groups": [
            {
                "name": group.name,
                "about": group.about,
                "rows": list(group.rows),
                "columns": list(group.columns),
                "layers": group.patterns.shape[0],
                "heads": group.patterns.shape[1],
            }
            for group in reading.groups
        ],
        "places": list(reading.places),
        "asked": reading.asked,
        "notes": list(reading.notes),
        "said": list(reading.said),
        "probabilities": reading.probabilities.tolist(),
        "lens": [
            [[{"token": token, "probability": p} for token, p in place] for place in layer] for layer in reading.lens
        ],
    }
    facts["wrote"] = None
    if reading.written is not None and reading.rest is not None:
        facts["wrote"] = {"parts": reading.written.tolist(), "rest": reading.rest.tolist()}
    facts = cast("dict[str, Any]", finite(facts))
    whole = sum(group.patterns.numel() for group in reading.groups) <= EXACT
    attention = {group.name: group.patterns.tolist() for group in reading.groups} if whole else None  # too many to read
    write_json(folder / f"{name}.json", {**facts, "attention": attention})
    shown = {**facts, "exact": whole, "colours": ramp(COLOURS), "diverging": ramp(DIVERGING)}
    blocks = {group.name: _letters(group, whole=whole) for group in reading.groups}
    write_page(folder / f"{name}.html", "words.html", facts=shown, blocks=blocks)
    return facts


def _letters(group: Attended, *, whole: bool) -> str:
    """Weights as numbers of four bytes, or where there are many as fractions of 1 in one byte."""
    weights = group.patterns.numpy()
    data = weights.astype("<f4") if whole else np.round(weights * 255).astype("u1")
    return b64encode(data.tobytes()).decode()
