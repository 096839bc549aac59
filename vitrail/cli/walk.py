"""``vitrail walk``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Json, Normalisation, messages, print_json, printable, results, say, tell
from vitrail.cli.explain import counted_from_one

if TYPE_CHECKING:
    from rich.table import Table

    from vitrail.lens.walk import Step

ROWS, COLUMNS = 8, 8  # of a matrix, shown in a terminal
TERMS = 4  # of a sum that are written out
MOST = 400  # tokens


def walk(
    run: Annotated[
        str | None, typer.Option(help="A run directory, or weights; four small vectors unless given.", metavar="RUN")
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Which layer of the run, counted from 1; the first unless given.", min=1, metavar="N"),
    ] = None,
    head: Annotated[int, typer.Option(help="Which head, counted from 1.", min=1, metavar="N")] = 1,
    picture: Annotated[
        str | None, typer.Option(help="What the run looks at; its first test picture unless given.", metavar="FILE")
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Let no token see those after it.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write a page that shows one step at a time, instead.", metavar="FILE")
    ] = None,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Walk through one attention layer, step by step with the real numbers, in the terminal or on a page to project.

    x, W_Q, q, k, scores, scaling, mask, softmax, v, sum, heads joined, W_O, residual: of four small vectors, or of any
    layer of a run.
    """
    with messages().status("Starting ..."):
        from vitrail.core import CAUSAL, NONE
        from vitrail.errors import InputError
        from vitrail.lens.walk import example
        from vitrail.lens.walk import walk as walk_through
        from vitrail.report.walk import walk_numbers, write_walk

    given = [name for name, value in (("--layer", layer), ("--picture", picture)) if value is not None]
    if run is None and given:
        raise InputError(f"{given[0]} is of a run, and none is given; add --run RUN.")
    if run is None:
        sublayer, x = example()
        steps = walk_through(sublayer, x, head=head - 1, mask=CAUSAL if causal else NONE)
        title, pixels = f"Attention on four small vectors, head {head}, step by step", None
    else:
        site = _layer(run, layer or 1, picture, normalise)
        mask = site.mask & CAUSAL if causal else site.mask
        steps = walk_through(site.sublayer, site.x, head=head - 1, mask=mask, tokens=site.names)
        title = f"Attention in layer {layer or 1}, head {head} of {Path(run).name}, on {printable(site.source)}"
        title += ", with a mask that the model does not have" if causal else ""
        pixels = site.pixels
    if out is not None:
        write_walk(out, steps, title, pixels)
    if as_json:
        print_json({"title": title, "steps": walk_numbers(steps)})
    elif out is None:
        _print(title, steps)
    else:
        tell(str(out))


@dataclass(frozen=True)
class _Site:
    """A layer of a run, what comes into it on a picture, and what the tokens are called."""

    sublayer: Any
    x: Any
    mask: Any
    names: tuple[str, ...]
    pixels: Any
    source: str


def _layer(run: str, layer: int, picture: str | None, normalise: str | None) -> _Site:
    import torch

    from vitrail.errors import InputError
    from vitrail.lens import Tokens, record
    from vitrail.serve import Predictor

    predictor = Predictor.of(run, head=False, normalise=normalise)
    for note in predictor.notes:
        say(f"note: {note}")
    model: Any = predictor.model
    place = counted_from_one("layer", layer, len(model.encoder))
    source, pixels = _picture(run, picture, predictor)
    image = predictor.image(pixels)
    with torch.no_grad(), record(model) as trace:
        model(image)
    tokens = Tokens.of(model, trace, image)
    if tokens.count > MOST:
        raise InputError(f"{tokens.count:,} tokens are too many to walk through; {MOST} at most.")
    name = f"encoder.{place}.attention"
    x = trace.residual("encoder")[2 * place, 0]
    return _Site(model.get_submodule(name), x, trace.visit(name).mask, tokens.names(), pixels, source)


def _picture(run: str, picture: str | None, predictor: Any) -> tuple[str, Any]:
    """What a picture is called, and its bytes."""
    from vitrail.cli.evaluate import own
    from vitrail.cli.predict import sources_of
    from vitrail.errors import InputError

    if picture is None:
        pictures, _ = own(run, predictor, "give a picture with --picture FILE")
        return pictures.files[0], pictures.images[0]
    found = list(predictor.decoded(sources_of([picture])))
    if not found:
        raise InputError(f"{picture!r} holds no picture.")
    source, pixels = found[0]
    if isinstance(pixels, str):
        raise InputError(f"{source.name}: {pixels}")
    return Path(source.name).name, pixels


def _print(title: str, steps: "list[Step]") -> None:
    from rich.text import Text

    console = results()
    console.print(Text(printable(title), style="bold"))
    named = {step.name: step for step in steps}
    for number, step in enumerate(steps, 1):
        size = "   {} x {}".format(*step.values.shape)
        console.print(Text(f"\n{number}. ", "dim").append(step.formula, "bold cyan").append(size, "dim"))
        console.print(Text(printable(step.words)))
        console.print(_matrix(step, console.width))
        if len(step.values) > ROWS:
            console.print(Text(f"  .. {len(step.values) - ROWS} rows more", style="dim"))
        said = _written_out(step, named)
        if said:
            console.print(Text(f"  {said}", style="green"))


def _matrix(step: "Step", width: int) -> "Table":
    """The first rows and columns of a matrix, as many as fit."""
    from rich.table import Table

    headers = [name.removeprefix("patch ").replace(", ", ",") for name in step.columns]
    named = max((len(name) for name in step.rows[:ROWS]), default=0)
    each = 2 + max([8, *(len(name) for name in headers[:COLUMNS])])
    total = step.values.shape[1]
    columns = min(total, COLUMNS, max(1, (width - named - 6) // each))
    shown = Table(box=None, show_header=bool(headers), pad_edge=False, header_style="dim", padding=(0, 1))
    shown.add_column("", style="dim", no_wrap=True)
    for column in range(columns):
        shown.add_column(headers[column] if headers else "", justify="right", no_wrap=True)
    for row, values in enumerate(step.values[:ROWS, :columns].tolist()):
        name = step.rows[row] if step.rows else ""
        shown.add_row(name, *map(_number, values), *([".."] if total > columns else []))
    return shown


def _written_out(step: "Step", named: "dict[str, Step]") -> str:
    """The first number of a step as the sum that it is."""
    parts = [named[name].values for name in step.made_of]
    result = f"{step.name}[1, 1] = {{}} = {_number(step.values[0, 0])}"
    if step.how in ("product", "transposed"):
        column = parts[1][0] if step.how == "transposed" else parts[1][:, 0]
        terms = [f"{_factor(a)}·{_factor(b)}" for a, b in zip(parts[0][0], column, strict=True)]
        terms = [*terms[:TERMS], *([f".. ({len(terms)} terms)"] if len(terms) > TERMS else [])]
        return result.format(" + ".join([*terms, *(_factor(part[0, 0]) for part in parts[2:])]))
    if step.how == "sum":
        return result.format(f"{_factor(parts[0][0, 0])} + {_factor(parts[1][0, 0])}")
    if step.name == "t":
        return result.format(step.formula.split(" = ")[1].replace("s", _factor(parts[0][0, 0]), 1))
    if step.name == "A":
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
