"""``vitrail embed``."""

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.console import Force, Json, Normalisation, Unread, print_json
from vitrail.terminal.console import say, tell
from vitrail.terminal.progress import working


def embed(
    run: Annotated[str, typer.Argument(help="A run directory, or weights.", metavar="RUN|WEIGHTS")],
    inputs: Annotated[list[str], typer.Argument(help="Picture files, or folders.", metavar="FOLDER...")],
    out: Annotated[Path, typer.Option(help="NPZ file to write.", metavar="FILE")] = Path("features.npz"),
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compute feature vectors: what the model's head is given, one row per picture.

    The file holds `features` (pictures x width), `files`, and `folders` (the name of each file's folder).
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
        predictor = Predictor.of(Run(run).weights(normalise=normalise), head=False)
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
