"""``vitrail generate``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Force, Json, TopK, TopP, print_json
from vitrail.errors import InputError
from vitrail.terminal.console import printable, say, tell
from vitrail.terminal.lines import whole_texts
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.runs import Run
    from vitrail.tasks.task import Trained


def generate(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a tokenizer.", metavar="RUN")],
    prompt: Annotated[
        str | None,
        typer.Option(help="Text to go on from; - reads standard input. Default: the start of a text.", metavar="TEXT"),
    ] = None,
    fill: Annotated[
        list[str] | None,
        typer.Option(help="Text with [MASK] where a BERT should say a word. Repeatable.", metavar="TEXT"),
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens at most. Default: 200.", min=1, metavar="N")] = None,
    count: Annotated[int | None, typer.Option(help="Texts to write. Default: 1.", min=1, metavar="N")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of sampling; 0 takes the likeliest token. Default: 0.8.", min=0, metavar="X")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. Default: 0.", min=0, metavar="N")] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Of a model of pixels: complete the upper halves of test pictures.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="PNG file, of a model of pixels. Default: pictures.png.", metavar="FILE")
    ] = None,
    force: Force = False,
    top: Annotated[int | None, typer.Option(help="Words per [MASK]. Default: 5.", min=1, metavar="K")] = None,
    as_json: Json = False,
) -> None:
    """Write text that follows a prompt, as it comes; say the words that [MASK] hides; or draw pictures."""
    with working("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.runs import open_run

        keep_memory()
        opened = open_run(run)
        trained = opened.trained()
    for note in trained.weights.remarks:
        say(f"note: {note}")
    given = {"tokens": tokens, "count": count, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    options = {name: value for name, value in given.items() if value is not None}
    pixels = trained.recipe is not None and trained.recipe.task == "pixels"
    if pixels:
        for name, value in (("--prompt", prompt), ("--fill", fill), ("--tokens", tokens), ("--top", top)):
            if value is not None:
                raise InputError(f"{name} is of text, and {run!r} is a model of pixels; leave it out.")
        _draw(opened, options, out or Path("pictures.png"), half=half, force=force, as_json=as_json)
        return
    if half or out is not None:
        raise InputError(f"--half and --out are of a model of pixels, and {run!r} writes text; leave them out.")
    if fill:
        for name in [*options, *(["prompt"] if prompt is not None else [])]:
            raise InputError(f"--{name.replace('_', '-')} is of text that is gone on with; leave it out with --fill.")
        _fill(trained, fill, top or 5, as_json=as_json)
    elif top is not None:
        raise InputError("--top is of words that [MASK] hides; add --fill, or leave it out.")
    else:
        _write(trained, prompt, options, as_json=as_json)


def _draw(opened: "Run", options: dict[str, Any], out: Path, *, half: bool, force: bool, as_json: bool) -> None:
    import torch

    from vitrail.decode import Drawing
    from vitrail.files import check_free
    from vitrail.tasks.language.writer import Writing
    from vitrail.tasks.pixels.examples import TestPixels
    from vitrail.tasks.pixels.painter import Painter, grid, write_picture
    from vitrail.terminal.progress import counted

    check_free(out, force=force)
    painter, count = Painter.of(opened.trained()), options.get("count", 16)
    how = Writing(**{"temperature": 1.0, "count": count, **options})
    generator = torch.Generator().manual_seed(how.seed)
    drawing = Drawing(how.temperature, how.top_k, how.top_p, generator)
    given = torch.zeros(count, 0, dtype=torch.long)
    pictures: list[torch.Tensor] = []
    if half:
        test = opened.evaluation_set(None, counted)
        if not isinstance(test, TestPixels):
            raise InputError(f"{opened.name!r} has no pictures to complete.")
        whole = test.rows.pixels[:count].long()
        given = whole[:, : whole.shape[1] // 2]
        hidden = torch.cat([given, torch.zeros_like(whole[:, given.shape[1] :])], 1)
        pictures += [painter.pictures(hidden)]
    with working("Drawing ..."):
        pictures += [painter.pictures(painter.draw(given, drawing))]
    if half:
        pictures += [painter.pictures(whole)]
        sheet = grid(torch.stack(pictures, 1).flatten(0, 1), 3 * max(1, round((len(given) / 3) ** 0.5)))
    else:
        sheet = grid(pictures[0], max(1, round(count**0.5)))
    write_picture(out, sheet)
    if as_json:
        print_json({"out": str(out), "pictures": len(given), "half": half})
    else:
        tell(f"{len(given):,} pictures in {out}" + ", each as given, completed, and as it is" * half)


def _fill(trained: "Trained", texts: list[str], top: int, *, as_json: bool) -> None:
    from vitrail.tasks.language.writer import Filler

    filler = Filler.of(trained)
    for text in texts:
        for note in filler.unknown(text.replace("[MASK]", "")):
            say(f"note: {note}")
        places = filler.fill(text, top)
        if as_json:
            fillings = [[{"word": word, "probability": p} for word, p in one.words] for one in places]
            print_json({"text": text, "masks": fillings})
            continue
        tell(text)
        for one in places:
            tell("  " + "  ".join(f"{word} {p:.1%}" for word, p in one.words))


def _write(trained: "Trained", prompt: str | None, options: dict[str, Any], *, as_json: bool) -> None:
    from vitrail.families.bert.config import BERTConfig
    from vitrail.tasks.language.writer import Writer, Writing

    if isinstance(trained.weights.config, BERTConfig):
        raise InputError(f"{trained.weights.path!r} is a bert, which fills words in; give a text with --fill.")
    writer, how = Writer.of(trained), Writing(**options)
    text = "".join(whole_texts(["-"], "read")).removesuffix("\n") if prompt == "-" else prompt or ""
    start, notes = writer.start(text)
    for note in notes:
        say(f"note: {note}")
    if how.count == 1 and not as_json:
        sys.stdout.write(printable(text))
        for piece in writer.written(start, how):
            sys.stdout.write(printable(piece))
            sys.stdout.flush()
        sys.stdout.write("\n")
        return
    for number, one in enumerate(writer.texts(start, how)):
        if as_json:
            print_json({"prompt": text, "text": one})
        else:
            sys.stdout.write(f"{'---' + chr(10) if number else ''}{printable(text + one)}\n")
