"""A walk through one attention layer as a page that can be projected, and as numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.files import make_folder
from vitrail.lens.pack import letters
from vitrail.lens.walk import Step
from vitrail.report.drawing import COLOURS, DIVERGING, ramp
from vitrail.report.page import picture, write_page


def walk_numbers(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """All steps with their numbers; minus infinity is None, which JSON can say."""
    return [
        {
            "name": step.name,
            "formula": step.formula,
            "words": step.words,
            "made_of": list(step.made_of),
            "rows": list(step.rows),
            "values": [[None if value == float("-inf") else value for value in row] for row in step.values.tolist()],
        }
        for step in steps
    ]


def write_walk(path: Path, steps: Sequence[Step], title: str, pixels: Tensor | None = None) -> None:
    """Write the page: one step at a time, with the numbers that each number is made of."""
    make_folder(path.parent)
    shown = [
        {
            "name": step.name,
            "formula": step.formula,
            "words": step.words,
            "madeOf": step.made_of,
            "how": step.how,
            "rows": step.rows,
            "columns": step.columns,
            "shape": list(step.values.shape),
        }
        for step in steps
    ]
    write_page(
        path,
        "walk.html",
        title=title,
        picture=None if pixels is None else picture(pixels),
        facts={"steps": shown, "colours": ramp(COLOURS), "diverging": ramp(DIVERGING)},
        blocks=[letters(step.values.numpy().astype("<f4")) for step in steps],
    )
