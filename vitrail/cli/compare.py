"""``vitrail compare``."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from vitrail.cli.console import Json, parse_size, print_json
from vitrail.terminal.console import WIDE, results, say, table, tell
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from rich.table import Table

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


class Greedy(TyperCommand):
    """--fractions takes all numbers that follow it: ``--fractions 0.01 0.1 1``."""

    def parse_args(self, ctx: "typer.Context", args: list[str]) -> list[str]:  # type: ignore[override]
        """With one --fractions before each of them."""
        words, taking = list[str](), False
        for word in args:
            if taking and _is_number(word):
                if words[-1] != "--fractions":
                    words.append("--fractions")
            else:
                taking = word == "--fractions"
            words.append(word)
        return super().parse_args(ctx, words)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="positions, norms, models, generative, kernels, patches, heads, depth or augment, and then data or a "
            "built-in recipe (default: digits); or recipes, a.toml b.toml; or data of which --vary varies something.",
            metavar="WHAT",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each cell.", min=1, metavar="N")] = 3,
    fractions: Annotated[
        list[float] | None,
        typer.Option(help="Parts of the pictures to train on: 0.01 0.1 1. Default: all of them.", metavar="F ..."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="A field of the recipe and its values: model.depth=2,4,6. Repeatable.", metavar="FIELD=A,B"),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time for all of it; epochs are cut for it.", min=0.1, metavar="N")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to begin with instead of the recipe's.", metavar="NAME")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Weights that all cells start from.", metavar="PATH")] = None,
    image: Annotated[
        str | None, typer.Option(help="Size of pictures for all models: 64, or 64x96.", metavar="N")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training data, in all cells.", min=1, metavar="N")
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Set any field of all recipes.", metavar="FIELD=VALUE")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Arms to run, by name: 'ViT*'. Repeatable. Default: all.", metavar="ARM"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Cells at a time. Default: as many as there are cores.", min=1, metavar="N")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: runs/compare- and what is compared.", metavar="OUT")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run cells anew that other code or other data have made.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Set models beside each other on your own data: every cell is an ordinary run, and means, intervals and paired
    tests say what differs and what is noise. The same command goes on where it was stopped.
    """
    with working("Starting ..."):
        from vitrail.compare.comparison import Comparison
        from vitrail.compare.request import Request
        from vitrail.compare.store import PAGE
        from vitrail.config import assignments as settings_of

    sides = None if image is None else parse_size("--image", image)
    fields = {"model.name": model, "weights.path": weights, "model.image": sides, "train.epochs": epochs}
    settings = settings_of({name: value for name, value in fields.items() if value is not None})
    request = Request(
        tuple(what or ()),
        seeds,
        tuple(fractions or ()),
        tuple(vary or ()),
        minutes,
        (*settings, *(assignments or ())),
        tuple(only or ()),
        workers,
        again,
    )
    comparison = Comparison(request, out)
    try:
        state = comparison.run()
    except KeyboardInterrupt:
        say(f"vitrail: stopped, and what is done is kept; go on with:\n  {comparison.command}")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(state)
    else:
        _show(state)
        page = comparison.folder / PAGE
        if page.is_file():
            say(f"page: {shlex.quote(str(page))}")
    if state["failed"] or not state["finished"]:
        raise typer.Exit(1)


def _lines(columns: list[str], rows: list[list[str]]) -> "Table":
    lines = table(*columns)
    for row in rows:
        lines.add_row(*row)
    return lines


def _show(state: Mapping[str, Any]) -> None:
    """The means as a table, and what they say; in a terminal that is too narrow for it, as two of more rows."""
    from vitrail.report.compare_table import narrow_tables_of, table_of

    console, wide = results(), _lines(*table_of(state))
    fits = console.measure(wide, options=console.options.update(width=WIDE)).maximum <= console.width
    for one in [wide] if fits else [_lines(*narrow) for narrow in narrow_tables_of(state)]:
        console.print(one)
    for sentence in state["sentences"]:
        tell(sentence)
