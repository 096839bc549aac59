"""``vitrail words``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Force, Json, print_json
from vitrail.errors import InputError
from vitrail.terminal.console import results, say, table, tell
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.tasks.language.vectors import WordVectors


def words(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a tokenizer.", metavar="RUN")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="A word, or words such as 'king - man + woman'; with --follow, texts.", metavar="WORDS"),
    ],
    follow: Annotated[
        str | None,
        typer.Option(help="A word to follow through the layers, in each of the texts.", metavar="WORD"),
    ] = None,
    top: Annotated[int, typer.Option(help="Words to show.", min=1, metavar="K")] = 10,
    out: Annotated[Path | None, typer.Option(help="PNG file to draw a followed word to.", metavar="FILE")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the words nearest to a word, or to a sum of words; or follow a word through texts and layers."""
    with working("Starting ..."):
        from vitrail.files import check_free
        from vitrail.runs import open_run
        from vitrail.tasks.language.vectors import WordVectors

        if out is not None:
            if follow is None:
                raise InputError("--out is the picture of a followed word; add --follow WORD, or leave it out.")
            check_free(out, force=force)
        vectors = WordVectors.of(open_run(run).trained())
    if follow is not None:
        _follow(vectors, follow, inputs, out, as_json=as_json)
        return
    for query in inputs:
        nearest, notes = vectors.ask(query, top)
        for note in notes:
            say(f"note: {note}")
        if as_json:
            print_json({"query": query, "nearest": [{"word": word, "cosine": value} for word, value in nearest]})
            continue
        tell(query)
        for word, value in nearest:
            tell(f"  {value:.3f}  {word}")


def _follow(vectors: "WordVectors", word: str, texts: list[str], out: Path | None, *, as_json: bool) -> None:
    with working("Reading ..."):
        followed = vectors.followed(word, texts)
        similar, moved = followed.similarity, followed.moved
    if as_json:
        facts = {"word": word, "texts": texts, "similarity": similar.tolist(), "moved": moved.tolist()}
        print_json({**facts, "picture": None if out is None else str(out)})
    else:
        for number, text in enumerate(texts, 1):
            tell(f"{number}  {text}")
        pairs = [(one, other) for other in range(len(texts)) for one in range(other)]
        lines = table("layer", *(f">{one + 1} and {other + 1}" for one, other in pairs), ">moved")
        for layer, values in enumerate(similar):
            cells = [f"{values[one, other]:.3f}" for one, other in pairs]
            lines.add_row("embedding" if layer == 0 else str(layer), *cells, f"{moved[layer].mean():.3f}")
        results().print(lines)
        tell(f"cosines of {word!r} between the texts; moved: beside what came in, mean of the texts")
    if out is not None:
        from vitrail.files import make_folder
        from vitrail.report.follow import draw_followed

        make_folder(out.parent)
        draw_followed(out, followed, word, texts)
        say(f"picture: {out}")
