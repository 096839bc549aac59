"""``vitrail shrink``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.console import Json, print_json
from vitrail.terminal.console import results, say, table, tell
from vitrail.terminal.progress import working

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


def shrink(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN|WEIGHTS")],
    data: Annotated[
        list[str] | None,
        typer.Argument(help="What to measure and to learn on. Default: the run's own data.", metavar="DATA"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Run directory to write.", metavar="SMALL")] = Path("small"),
    ways: Annotated[
        list[str] | None,
        typer.Option(
            "--way",
            help="image, patches, layers, heads, neurons, distil, factor, merge, tickets or quantize, with an amount "
            "if you like: layers=4, heads=0.5, quantize=int8; several in one step are joined by a plus. Repeatable, "
            "taken in this order. Default: chosen.",
            metavar="WAY",
        ),
    ] = None,
    max_drop: Annotated[
        float,
        typer.Option(help="Points of the headline number (accuracy, BLEU) that may be lost.", min=0, metavar="P"),
    ] = 0.5,
    speedup: Annotated[
        float | None, typer.Option(help="Stop when it is so many times as fast.", min=1, metavar="N")
    ] = None,
    compression: Annotated[
        float | None, typer.Option(help="Stop when it is so many times smaller on disk.", min=1, metavar="N")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Time for all of it.", min=0.1, metavar="N")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set any field of the recipe by which what is left learns again.", metavar="FIELD=VALUE"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it was interrupted.")] = False,
    as_json: Json = False,
) -> None:
    """Make a trained model smaller and faster, step by step, and say what that did on this machine: each step is
    measured beside the original, and undone if it loses too much or gains nothing.
    """
    with working("Starting ..."):
        from vitrail.shrink.asked import Asked
        from vitrail.shrink.shown import table_of
        from vitrail.shrink.shrinking import Shrinking
        from vitrail.shrink.steps import Goals
        from vitrail.training import Interrupted

        goals = Goals(max_drop, speedup, compression, minutes)
        asked = Asked(run, tuple(data or ()), goals, tuple(ways or ()), tuple(assignments or ()))
        shrinking = Shrinking(asked, out)
    try:
        shrinking.run(resume=resume)
    except (Interrupted, KeyboardInterrupt):
        say(f"vitrail: stopped, and what is done is kept; go on with:\n  {shrinking.command} --resume")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        from vitrail.files import read_json

        print_json(read_json(out / "shrink.json"))
        return
    columns, rows = table_of(shrinking.history, shrinking.metric)
    lines = table(*columns)
    for row in rows:
        lines.add_row(*row)
    results().print(lines)
    tell(shrinking.summary())
    say(f"page: {shlex.quote(str(out / 'shrink.html'))}")
