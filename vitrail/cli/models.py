"""``vitrail models``."""

from typing import Annotated

import typer

from vitrail.cli.console import Json, messages, print_json, results, table
from vitrail.errors import unknown


def models(
    pattern: Annotated[str, typer.Argument(help="Names to list, such as 'vit-b*'.")] = "*",
    as_json: Json = False,
) -> None:
    """List the models with their parameters and multiply-adds per image."""
    with messages().status("Counting ..."):
        from vitrail.families import configure, cost, models, presets

        names = models(pattern)
        if not names:
            raise unknown("model", pattern, presets)
        rows = [(name, configure(name).model_dump(mode="json"), cost(configure(name))) for name in names]
    if as_json:
        print_json([{"name": name, **config, **vars(price)} for name, config, price in rows])
        return
    listed = table("name", ">image", ">channels", ">width", ">depth", ">heads", ">parameters", ">multiply-adds")
    for name, config, price in rows:
        shape = (str(config[field]) for field in ("image", "channels", "width", "depth", "heads"))
        listed.add_row(name, *shape, f"{price.parameters:,}", f"{price.multiply_adds / 1e9:,.3f} G")
    results().print(listed)
