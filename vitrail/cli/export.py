"""``vitrail export``."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.console import Force, Json, print_json
from vitrail.errors import unknown
from vitrail.terminal.console import say, tell
from vitrail.terminal.progress import working

FORMATS = ("onnx",)


def export(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write. Default: model.onnx, or model.int8.onnx, in RUN.", metavar="FILE"),
    ] = None,
    name: Annotated[str, typer.Option("--format", help="Format: onnx.", metavar="F")] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights and activations of eight bits: smaller, and faster in batches.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model that labels pictures as a file that runs without Vitrail, with its labels and how pictures are
    normalised inside; `predict`, `evaluate` and `embed` take such a file too.
    """
    if name.lower() not in FORMATS:
        raise unknown("format", name, FORMATS)
    with working("Starting ..."):
        from vitrail.files import check_free
        from vitrail.runs import Run
        from vitrail.shrink.int8 import quantize_onnx
        from vitrail.weights.onnx import save_onnx

        folder = Path(run) if Path(run).is_dir() else Path()
        target = out or folder / ("model.int8.onnx" if int8 else "model.onnx")
        check_free(target, force=force, option="--out")
        weights = Run(run).weights()
    for note in weights.remarks:
        say(f"note: {note}")
    with working(f"Writing {target} ..."), tempfile.TemporaryDirectory() as aside:
        first = Path(aside) / target.name if int8 else target
        free = save_onnx(weights, first)
        if int8:
            quantize_onnx(first, target)
    if weights.normalise is None:
        say("note: nothing says how pictures are normalised; mean 0.5 and std 0.5 are assumed")
    if not free:
        side = " x ".join(map(str, weights.config.size))
        say(f"note: it takes pictures of {side} pixels alone: a part of the model is not free in size as ONNX has it")
    size = target.stat().st_size
    if as_json:
        print_json({"run": run, "to": str(target), "format": "onnx", "int8": int8, "free": free, "bytes": size})
        return
    tell(f"{run} written to {target} ({size / 1e6:.1f} MB{', 8 bits' * int8})")
