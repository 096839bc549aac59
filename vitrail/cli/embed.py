"""``vitrail embed``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Force, Json, Normalisation, Unread, print_json
from vitrail.terminal.console import say, tell
from vitrail.terminal.lines import line_groups
from vitrail.terminal.progress import counted, working

if TYPE_CHECKING:
    from vitrail.tasks.task import Trained

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
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compute feature vectors: what the model's head is given, one row per picture or line of text.

    The file holds `features` (pictures x width), `files`, and `folders` (the name of each file's folder); or `features`
    and `lines`.
    """
    with working("Starting ..."):
        import numpy as np

        from vitrail.errors import InputError
        from vitrail.files import check_free, make_folder, whole
        from vitrail.machine import keep_memory
        from vitrail.runs import Run
        from vitrail.tasks.pictures.predictor import Predictor, inputs_of

        if out.suffix != ".npz":
            raise InputError(f"{str(out)!r} should end with .npz; give another --out.")
        check_free(out, force=force)
        keep_memory()
        opened = Run(run)
        weights = opened.answering(normalise=normalise)
    if weights.family != "vit":
        _lines(opened.trained(weights), inputs, out, pool or "mean", as_json=as_json)
        return
    if pool is not None:
        raise InputError(f"--pool is of text, and {run!r} takes pictures; leave it out.")
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
    make_folder(out.parent)
    with whole(out) as aside, aside.open("wb") as file:
        folders = [Path(name).resolve().parent.name for name in files]
        np.savez(file, features=np.stack(rows), files=np.array(files), folders=np.array(folders))
    if as_json:
        print_json(
            {
                "out": str(out),
                "pictures": len(rows),
                "width": len(rows[0]),
                "set aside": len(unread.lines),
                "unread": unread.lines,
            }
        )
    else:
        tell(f"{len(rows):,} pictures as vectors of {len(rows[0]):,} numbers in {out}")
    unread.finish()


def _lines(trained: "Trained", inputs: list[str], out: Path, pool: str, *, as_json: bool) -> None:
    """Lines of text as vectors."""
    import numpy as np

    from vitrail.data.text import Undecodable
    from vitrail.errors import InputError, unknown
    from vitrail.files import make_folder, whole
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
    make_folder(out.parent)
    with whole(out) as aside, aside.open("wb") as file:
        np.savez(file, features=np.stack(vectors), lines=np.array([line[:LETTERS] for line in there]))
    if as_json:
        print_json({"out": str(out), "lines": len(there), "width": len(vectors[0]), "cut": cut})
    else:
        tell(f"{len(there):,} lines as vectors of {len(vectors[0]):,} numbers in {out}")
