"""``vitrail embed``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Force, Json, Normalisation, Unread, print_json
from vitrail.terminal.console import say, tell
from vitrail.terminal.lines import line_groups
from vitrail.terminal.progress import counted, working

if TYPE_CHECKING:
    from vitrail.tasks.task import Trained
    from vitrail.weights import Weights

LETTERS = 1_000  # of a line that are kept beside its vector: an array has room for the longest in every row


def embed(
    run: Annotated[str, typer.Argument(help="A run directory, or weights.", metavar="RUN|WEIGHTS")],
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Picture files, or folders; of a model of text, files of lines, or a line.", metavar="INPUT"
        ),
    ],
    out: Annotated[Path, typer.Option(help="NPZ file to write.", metavar="FILE")] = Path("features.npz"),
    pool: Annotated[
        str | None,
        typer.Option(help="Of text: mean (of all tokens), or first (the token a BERT answers by).", metavar="HOW"),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option(
            help="Write each vector as so many bits instead, such as 1024: smaller, and near ones are still near.",
            min=8,
            metavar="N",
        ),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(help="Print the nearest of a file that embed wrote, and write none.", metavar="FILE.npz"),
    ] = None,
    top: Annotated[int, typer.Option(help="With --search: how many are printed.", min=1, metavar="K")] = 5,
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compute feature vectors: what the model's head is given, one row per picture or line of text.

    The file holds `features` (pictures x width), `files`, and `folders` (the name of each file's folder); or `features`
    and `lines`; with --bits `codes` (pictures x bits / 8) instead of features, and the `mean` they were made with.
    """
    with working("Starting ..."):
        from vitrail.errors import InputError
        from vitrail.files import check_free
        from vitrail.machine import keep_memory
        from vitrail.runs import Run
        from vitrail.shrink.library import Library

        library = None if search is None else Library.read(search)
        if library is None and out.suffix != ".npz":
            raise InputError(f"{str(out)!r} should end with .npz; give another --out.")
        if library is None:
            check_free(out, force=force)
        if bits is not None and (bits % 8 or library is not None):
            why = "is for a file that is written" if library is not None else "is no multiple of 8, such as 1024"
            raise InputError(f"--bits {bits} {why}; leave it out, or choose another.")
        keep_memory()
        opened = Run(run)
        weights = opened.answering(normalise=normalise)
    if weights.pictures and pool is not None:
        raise InputError(f"--pool is of text, and {run!r} takes pictures; leave it out.")
    pictures = weights.pictures
    features = _pictures(weights, inputs) if pictures else _lines(opened.trained(weights), inputs, pool or "mean")
    if library is not None:
        _show(features, library.nearest(features.vectors, min(top, len(library))), as_json=as_json)
    else:
        Library.of(features.names, features.vectors, features.kind, bits, features.more).write(out)
        _tell(features, out, bits, as_json=as_json)
    if features.unread is not None:
        features.unread.finish()


@dataclass(frozen=True, eq=False)
class Found:
    """Vectors of what was given, by names."""

    kind: str  # files, or lines
    names: list[str]
    vectors: Any  # (m w)
    more: dict[str, Any]
    cut: int = 0  # lines that were too long
    unread: Unread | None = None


def _show(features: Found, nearest: list[list[tuple[str, float]]], *, as_json: bool) -> None:
    """What is near to each, a line each."""
    for name, some in zip(features.names, nearest, strict=True):
        if as_json:
            print_json({"of": name, "nearest": [{"name": other, "similarity": one} for other, one in some]})
        else:
            tell(f"{name}  {'  '.join(f'{other} {one:.3f}' for other, one in some)}")


def _tell(features: Found, out: Path, bits: int | None, *, as_json: bool) -> None:
    """What was written."""
    count, width = features.vectors.shape
    if as_json:
        about: dict[str, Any] = {"out": str(out), ("pictures" if features.kind == "files" else "lines"): count}
        about |= {"width": width, **({} if bits is None else {"bits": bits})}
        lost = (
            {}
            if features.unread is None
            else {"set aside": len(features.unread.lines), "unread": features.unread.lines}
        )
        print_json({**about, **(lost if features.kind == "files" else {"cut": features.cut})})
        return
    what = "pictures" if features.kind == "files" else "lines"
    how = f"vectors of {width:,} numbers" if bits is None else f"{bits:,} bits each"
    tell(f"{count:,} {what} as {how} in {out}")


def _pictures(weights: "Weights", inputs: list[str]) -> Found:
    """Pictures as vectors."""
    import numpy as np

    from vitrail.errors import InputError
    from vitrail.tasks.pictures.predictor import Predictor, inputs_of

    with working("Starting ..."):
        predictor = Predictor.of(weights, head=False)
    for note in predictor.notes:
        say(f"note: {note}")
    rows, files, unread = [], [], Unread()
    for one, vector in predictor.features(inputs_of(inputs)):
        if isinstance(vector, str):
            unread.add(one.name, vector)
        else:
            rows.append(vector.numpy())
            files.append(one.name)
    if not rows:
        raise InputError("no picture could be read, so there is nothing to write; check the paths.")
    folders = np.array([Path(name).resolve().parent.name for name in files])
    return Found("files", files, np.stack(rows), {"folders": folders}, unread=unread)


def _lines(trained: "Trained", inputs: list[str], pool: str) -> Found:
    """Lines of text as vectors."""
    import numpy as np

    from vitrail.data.text import Undecodable
    from vitrail.errors import InputError, unknown
    from vitrail.tasks.language.writer import Reader

    if pool not in ("mean", "first"):
        raise unknown("pool", pool, ("mean", "first"))
    reader = Reader.of(trained)
    lines = [line for some in line_groups(inputs, "embedded") for line in some]
    there = [line for line in lines if line.strip() and not isinstance(line, Undecodable)]
    if not there:
        raise InputError("no line has a word on it, so there is nothing to write.")
    if len(there) < len(lines):
        say(f"note: {len(lines) - len(there):,} of {len(lines):,} lines are empty or not UTF-8, and left out")
    vectors, cut = [], 0
    for vector, long in counted("lines", reader.vectors(there, first=pool == "first"), len(there)):
        vectors.append(vector.numpy())
        cut += long
    if cut:
        most = reader.model.config.length
        say(f"note: {cut:,} lines are longer than the {most:,} tokens that the model takes, and cut")
    return Found("lines", [line[:LETTERS] for line in there], np.stack(vectors), {}, cut)
