"""``vitrail models``."""

from typing import Annotated

import typer

from vitrail.cli.console import Json, print_json
from vitrail.errors import unknown
from vitrail.terminal.console import results, table

FULL = 80  # columns that all of it takes


def models(
    pattern: Annotated[str, typer.Argument(help="Names to list, such as 'vit-b*'.")] = "*",
    as_json: Json = False,
) -> None:
    """List the models with their parameters and multiply-adds: of an image, or of a sentence of 32 tokens."""
    from vitrail.families.catalogue import models, presets, price, shape

    names = models(pattern)
    if not names:
        raise unknown("model", pattern, presets)
    rows = [(name, shape(name).model_dump(mode="json"), price(name)) for name in names]  # name, fields, cost
    if as_json:
        print_json([{"name": name, **config, **vars(cost)} for name, config, cost in rows])
        return
    console = results()
    fields = ("image", "channels", "width", "depth", "heads") if console.width >= FULL else ("width", "depth")
    listed = table("name", *(f">{field}" for field in fields), ">parameters", ">multiply-adds")
    for name, config, cost in rows:
        numbers = (str(config.get(field, "")) for field in fields)
        listed.add_row(name, *numbers, f"{cost.parameters:,}", f"{cost.multiply_adds / 1e9:,.3f} G")
    console.print(listed)
