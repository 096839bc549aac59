"""``vitrail export``."""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Force, Json, print_json
from vitrail.errors import unknown
from vitrail.terminal.console import say, tell
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.runs import Run
    from vitrail.weights import Weights

FORMATS = ("onnx",)


def export(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, of text a folder. Default: in RUN, model.onnx, model.int8.onnx, or onnx.",
            metavar="FILE",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--format", help="Format: onnx.", metavar="F")] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights and activations of eight bits: smaller, and faster in batches.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model as a file that runs without Vitrail: one that labels pictures with its labels and how pictures are
    normalised inside, which `predict`, `evaluate` and `embed` take too; one of text as a step with what it remembers.
    """
    if name.lower() not in FORMATS:
        raise unknown("format", name, FORMATS)
    with working("Starting ..."):
        from vitrail.files import check_free
        from vitrail.runs import Run

        opened = Run(run)
        weights = opened.weights()
        folder = opened.path if opened.path.is_dir() else Path()
        pictures = weights.pictures
        target = out or folder / (("model.int8.onnx" if int8 else "model.onnx") if pictures else "onnx")
        check_free(target, force=force, option="--out")
    for note in weights.remarks:
        say(f"note: {note}")
    with working(f"Writing {target} ..."):
        free = _pictures(weights, target, int8=int8) if pictures else None
        files = [target] if pictures else _text(opened, weights, target, int8=int8)
    size = sum(file.stat().st_size for file in files)
    if as_json:
        about = {"run": run, "to": str(target), "format": "onnx", "int8": int8, "bytes": size}
        print_json({**about, **({"free": free} if pictures else {"files": [str(file) for file in files]})})
        return
    several = f": {', '.join(file.name for file in files)}" * (not pictures)
    tell(f"{run} written to {target} ({size / 1e6:.1f} MB{', 8 bits' * int8}){several}")


def _pictures(weights: "Weights", target: Path, *, int8: bool) -> bool:
    """A model that labels pictures; whether it takes them of any size."""
    from vitrail.shrink.int8 import quantize_onnx
    from vitrail.weights.onnx import save_onnx

    with tempfile.TemporaryDirectory() as aside:
        first = Path(aside) / target.name if int8 else target
        free = save_onnx(weights, first)
        if int8:
            quantize_onnx(first, target)
    if weights.normalise is None:
        say("note: nothing says how pictures are normalised; mean 0.5 and std 0.5 are assumed")
    if not free:
        side = " x ".join(map(str, weights.config.size))
        say(f"note: it takes pictures of {side} pixels alone: a part of the model is not free in size as ONNX has it")
    return free


def _text(run: "Run", weights: "Weights", target: Path, *, int8: bool) -> list[Path]:
    """A model of text, as a folder of files, with its tokenizer."""
    from vitrail.files import make_folder
    from vitrail.shrink.int8 import quantize_onnx
    from vitrail.weights.onnx_steps import save_steps

    with tempfile.TemporaryDirectory() as aside:
        files = save_steps(weights, Path(aside) if int8 else make_folder(target))
        if int8:
            for file in files:
                quantize_onnx(file, make_folder(target) / file.name)
    for file in sorted(run.origin.path.glob("*tokenizer.json")) if run.origin.path.is_dir() else ():
        shutil.copyfile(file, target / file.name)
    return [target / file.name for file in files]
