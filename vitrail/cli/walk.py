"""``vitrail walk``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Force, Json, Normalisation, from_one, print_json
from vitrail.terminal.console import printable, results, say, tell
from vitrail.terminal.progress import counted, working

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from vitrail.core import Mask, Sublayer
    from vitrail.lens.walkthrough import Stage
    from vitrail.runs import Run
    from vitrail.tasks.pictures.predictor import Predictor

ROWS, COLUMNS = 8, 8  # of a matrix, shown in a terminal
TERMS = 4  # of a sum that are written out
MOST = 400  # tokens


def walk(
    run: Annotated[
        str | None,
        typer.Option(help="Run directory, or weights. Default: an example of four small vectors.", metavar="RUN"),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Layer of the run, counted from 1. Default: the first.", min=1, metavar="N"),
    ] = None,
    head: Annotated[int, typer.Option(help="Head, counted from 1.", min=1, metavar="N")] = 1,
    picture: Annotated[
        str | None, typer.Option(help="Picture to use. Default: the first of the run's test pictures.", metavar="FILE")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Text to use, of a model of text.", metavar="TEXT")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Apply a causal mask.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write an HTML page that shows one step at a time, instead of printing.", metavar="FILE"),
    ] = None,
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show one attention layer step by step with its numbers, in the terminal or on a page.

    Queries, keys, scores, scaling, mask, softmax, values, weighted sum, concatenated heads, output, residual.
    """
    with working("Starting ..."):
        from vitrail.core import CAUSAL, NONE
        from vitrail.errors import InputError
        from vitrail.files import check_free
        from vitrail.lens.walkthrough import example
        from vitrail.lens.walkthrough import walk as walk_through
        from vitrail.report.walk import walk_numbers, write_walk

    if out is not None:
        check_free(out, force=force)
    given = [
        name for name, value in (("--layer", layer), ("--picture", picture), ("--text", text)) if value is not None
    ]
    if picture is not None and text is not None:
        raise InputError("--picture and --text are both given; a model takes one of them.")
    if run is None and given:
        raise InputError(f"{given[0]} is of a run, and none is given; add --run RUN.")
    if run is None:
        sublayer, x = example()
        stages = walk_through(sublayer, x, head=head - 1, mask=CAUSAL if causal else NONE)
        title, pixels = f"Attention on four small vectors, head {head}, step by step", None
    else:
        site = _layer(run, layer or 1, picture, normalise) if text is None else _text_layer(run, layer or 1, text)
        mask = site.mask & CAUSAL if causal else site.mask
        stages = walk_through(site.sublayer, site.x, head=head - 1, mask=mask, tokens=site.names)
        title = f"Attention in layer {layer or 1}, head {head} of {Path(run).name}, on {printable(site.source)}"
        title += ", with a mask that the model does not have" if causal else ""
        pixels = site.pixels
    if out is not None:
        write_walk(out, stages, title, pixels)
    if as_json:
        print_json({"title": title, "steps": walk_numbers(stages)})
    elif out is None:
        _print(title, stages)
    else:
        tell(str(out))


@dataclass(frozen=True)
class _Site:
    """A layer of a run, what comes into it on a picture, and what the tokens are called."""

    sublayer: "Sublayer"
    x: "Tensor"
    mask: "Mask"
    names: tuple[str, ...]
    pixels: "Tensor | None"
    source: str


def _text_layer(path: str, layer: int, text: str) -> _Site:
    """A layer of a model of text, of what reads it."""
    import torch

    from vitrail.errors import InputError
    from vitrail.lens import record
    from vitrail.runs import open_run

    run = open_run(path)
    read = run.task.read(run.trained(), text)
    blocks = list(getattr(read.model, "encoder", read.model.blocks))
    number = from_one("layer", layer, len(blocks))
    sublayer = blocks[number].attention
    if sublayer is None:
        raise InputError(f"layer {layer} has no attention to walk through; choose another.")
    if len(read.names) > MOST:
        raise InputError(f"{len(read.names):,} tokens are too many to walk through; {MOST} at most.")
    with torch.no_grad(), record(read.model) as trace:
        read.model(read.inputs)
    name = f"encoder.{number}.attention"
    x = trace.residual("encoder")[trace.sublayers().index(name), 0]
    names = tuple(one.strip() or "␣" for one in read.names)
    return _Site(sublayer, x, trace.visit(name).mask, names, None, f"“{text[:60]}”")


def _layer(path: str, layer: int, picture: str | None, normalise: str | None) -> _Site:
    import torch

    from vitrail.errors import InputError
    from vitrail.lens import Tokens, record
    from vitrail.runs import Run
    from vitrail.tasks.pictures.predictor import Predictor

    run = Run(path)
    predictor = Predictor.of(run.weights(normalise=normalise), head=False, inside=True)
    for note in predictor.notes:
        say(f"note: {note}")
    model = predictor.attending
    number = from_one("layer", layer, len(model.blocks))
    sublayer = model.blocks[number].attention
    if sublayer is None:
        raise InputError(f"layer {layer} has no attention to walk through; choose another.")
    source, pixels = _picture(run, picture, predictor)
    image = predictor.image(pixels)
    with torch.no_grad(), record(model) as trace:
        model(image)
    tokens = Tokens.of(model, trace, image)
    if tokens.count > MOST:
        raise InputError(f"{tokens.count:,} tokens are too many to walk through; {MOST} at most.")
    name = f"encoder.{number}.attention"
    x = trace.residual("encoder")[trace.sublayers().index(name), 0]
    return _Site(sublayer, x, trace.visit(name).mask, tokens.names(), pixels, source)


def _picture(run: "Run", picture: str | None, predictor: "Predictor") -> "tuple[str, Tensor]":
    """What a picture is called, and its bytes."""
    from vitrail.errors import InputError
    from vitrail.tasks.pictures.examples import TestPictures
    from vitrail.tasks.pictures.predictor import inputs_of

    if picture is None:
        try:
            examples = run.evaluation_set(None, counted, weights=predictor.weights)
        except InputError as error:
            raise InputError(f"{error} Or give a picture with --picture FILE.") from None
        if not isinstance(examples, TestPictures):
            raise InputError(f"{run.name!r} takes no pictures.")
        return examples.pictures.files[0], examples.pictures.images[0]
    decoded = list(predictor.decoded(inputs_of([picture])))
    if not decoded:
        raise InputError(f"{picture!r} holds no picture.")
    one, pixels = decoded[0]
    if isinstance(pixels, str):
        raise InputError(f"{one.name}: {pixels}")
    return Path(one.name).name, pixels


def _print(title: str, stages: "list[Stage]") -> None:
    from rich.text import Text

    console = results()
    console.print(Text(printable(title), style="bold"))
    named = {stage.name: stage for stage in stages}
    for number, stage in enumerate(stages, 1):
        size = "   {} x {}".format(*stage.values.shape)
        console.print(Text(f"\n{number}. ", "dim").append(stage.formula, "bold cyan").append(size, "dim"))
        console.print(Text(printable(stage.words)))
        console.print(_matrix(stage, console.width))
        if len(stage.values) > ROWS:
            console.print(Text(f"  .. {len(stage.values) - ROWS} rows more", style="dim"))
        sum_of = _written_out(stage, named)
        if sum_of:
            console.print(Text(f"  {sum_of}", style="green"))


def _matrix(stage: "Stage", width: int) -> "Table":
    """The first rows and columns of a matrix, as many as fit."""
    from rich.table import Table

    headers = [name.removeprefix("patch ").replace(", ", ",") for name in stage.columns]
    named = max((len(name) for name in stage.rows[:ROWS]), default=0)
    each = 2 + max([8, *(len(name) for name in headers[:COLUMNS])])
    total = stage.values.shape[1]
    columns = min(total, COLUMNS, max(1, (width - named - 6) // each))
    shown = Table(box=None, show_header=bool(headers), pad_edge=False, header_style="dim", padding=(0, 1))
    shown.add_column("", style="dim", no_wrap=True)
    for column in range(columns):
        shown.add_column(headers[column] if headers else "", justify="right", no_wrap=True)
    for row, values in enumerate(stage.values[:ROWS, :columns].tolist()):
        name = stage.rows[row] if stage.rows else ""
        shown.add_row(name, *map(_number, values), *([".."] if total > columns else []))
    return shown


def _written_out(stage: "Stage", named: "dict[str, Stage]") -> str:
    """The first number of a step as the sum that it is."""
    parts = [named[name].values for name in stage.made_of]
    result = f"{stage.name}[1, 1] = {{}} = {_number(stage.values[0, 0])}"
    if stage.how in ("product", "transposed"):
        column = parts[1][0] if stage.how == "transposed" else parts[1][:, 0]
        terms = [f"{_factor(a)}·{_factor(b)}" for a, b in zip(parts[0][0], column, strict=True)]
        terms = [*terms[:TERMS], *([f".. ({len(terms)} terms)"] if len(terms) > TERMS else [])]
        return result.format(" + ".join([*terms, *(_factor(part[0, 0]) for part in parts[2:])]))
    if stage.how == "sum":
        return result.format(f"{_factor(parts[0][0, 0])} + {_factor(parts[1][0, 0])}")
    if stage.name == "t":
        return result.format(stage.formula.split(" = ")[1].replace("s", _factor(parts[0][0, 0]), 1))
    if stage.name == "A":
        row = parts[0][0]
        powers = [f"e^{_factor(value)}" for value in row[:TERMS]] + [".."] * (len(row) > TERMS)
        return result.format(f"e^{_factor(row[0])} / ({' + '.join(powers)})")
    return ""


def _number(value: Any) -> str:
    value = float(value)
    return "-∞" if value == float("-inf") else f"{value + 0.0:.3f}".replace("-0.000", "0.000")


def _factor(value: Any) -> str:
    """A number within a product or a sum."""
    number = _number(value)
    return f"({number})" if number.startswith("-") else number
