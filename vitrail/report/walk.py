"""A walk through one attention layer as a page that can be projected, and as numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.files import make_folder
from vitrail.lens.packing import letters
from vitrail.lens.walkthrough import Stage
from vitrail.report.drawing import COLOURS, DIVERGING, ramp
from vitrail.report.page import picture, write_page


def walk_numbers(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """All steps with their numbers; minus infinity is None, which JSON can say."""
    return [
        {
            "name": stage.name,
            "formula": stage.formula,
            "words": stage.words,
            "made_of": list(stage.made_of),
            "rows": list(stage.rows),
            "values": [[None if value == float("-inf") else value for value in row] for row in stage.values.tolist()],
        }
        for stage in stages
    ]


def write_walk(path: Path, stages: Sequence[Stage], title: str, pixels: Tensor | None = None) -> None:
    """Write the page: one step at a time, with the numbers that each number is made of."""
    make_folder(path.parent)
    shown = [
        {
            "name": stage.name,
            "formula": stage.formula,
            "words": stage.words,
            "madeOf": stage.made_of,
            "how": stage.how,
            "rows": stage.rows,
            "columns": stage.columns,
            "shape": list(stage.values.shape),
        }
        for stage in stages
    ]
    write_page(
        path,
        "walk.html",
        title=title,
        picture=None if pixels is None else picture(pixels),
        facts={"steps": shown, "colours": ramp(COLOURS), "diverging": ramp(DIVERGING)},
        blocks=[letters(stage.values.numpy().astype("<f4")) for stage in stages],
    )
