"""``vitrail explain``."""

from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from vitrail.cli.console import Json, Normalisation, messages, print_json, printable, say, tell
from vitrail.cli.predict import sources_of

if TYPE_CHECKING:
    from vitrail.serve.predictor import Source

TOKENS = 16_384  # of a picture that is explained, at most
LETTERS = 100  # of the name of a file that is written


def explain(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Pictures, folders of them, or - for one on standard input.", metavar="PICTURE"),
    ],
    out: Annotated[Path, typer.Option(help="Where the pages, pictures and numbers go.", metavar="DIR")],
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="attention, rollout, relevance or gradcam; may be repeated. All unless given.", metavar="NAME"
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Of attention and gradcam, counted from 1; the last unless given.", min=1, metavar="N"),
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="Of attention, counted from 1; the mean of all unless given.", min=1, metavar="N")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", help="The class to explain; the likeliest unless given.", metavar="NAME")
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            help="Of deletion and insertion, which tell how true an explanation is; 0 leaves them out, and is faster.",
            min=0,
            metavar="N",
        ),
    ] = 20,
    size: Annotated[
        str | None, typer.Option(help="Pixels of a side, or DOWNxACROSS; the model's own unless given.", metavar="N")
    ] = None,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Show where answers come from: a page to explore for each picture, overlays as PNG, numbers as JSON."""
    with messages().status("Starting ..."):
        from vitrail.files import make_folder
        from vitrail.lens import explain as explain_picture
        from vitrail.lens import methods
        from vitrail.machine import keep_memory
        from vitrail.report.explain import write_explanation, write_index
        from vitrail.serve import Predictor

        keep_memory()
        for name in method or ():
            methods[name]  # a name it does not know is an error
        predictor = Predictor.of(run, normalise=normalise, size=None if size is None else _sides(size))
        config = predictor.config
        _check_tokens(predictor.size, config.patch)
        wanted = None if label is None else _index(predictor.labels, label)
        place = None if layer is None else counted_from_one("layer", layer, config.depth)
        number = None if head is None else counted_from_one("head", head, config.heads)
        sources = _apart(list(sources_of(inputs)), out)
    for note in predictor.notes:
        say(f"note: {note}")
    shape = f"{config.depth} layers of {config.heads} heads, width {config.width}, patches of {config.patch} pixels"
    model = f"{Path(run).name}: {shape}"
    if (layer or head) and method and not set(method) & {"attention", "gradcam"}:
        say(f"note: --layer and --head are of attention and gradcam; {', '.join(method)} goes through all of them.")
    written: dict[str, dict[str, Any]] = {}
    unread: list[str] = []
    for source, pixels in predictor.decoded(sources):
        if isinstance(pixels, str):
            unread.append(printable(f"{source.name}: {pixels}"))
            print_json({"file": source.name, "error": pixels}) if as_json else say(f"{source.name}: {pixels}")
            continue
        name = _free(Path(source.name).stem if source.name != "-" else "picture", written)
        make_folder(out)
        doing = f"Explaining {printable(source.name)}"
        with messages().status(f"{escape(doing)} ...") as status:

            def tell_next(what: str, doing: str = doing, status: Any = status) -> None:
                status.update(f"{escape(doing)}: {what} ...")

            found = explain_picture(
                predictor.model,
                predictor.image(pixels),
                label=wanted,
                names=method,
                layer=place,
                head=number,
                steps=steps,
                tell=tell_next,
            )
            written[name] = write_explanation(out, name, pixels, found, labels=predictor.labels, model=model)
        _say(source.name, written[name], out / f"{name}.html", as_json=as_json)
    if len(written) > 1:
        say(f"all of them: {write_index(out, written, unread)}")
    if unread:
        say(f"vitrail: {len(unread)} of the pictures could not be read.")
        raise typer.Exit(1)


def _say(file: str, facts: dict[str, Any], page: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": file, "page": str(page), **facts})
        return
    gap = ""
    if facts["random"]["gap"] is not None:
        best = max(facts["methods"], key=lambda one: one["gap"])
        found = f"largest gap: {best['name']} {best['gap']:+.3f}"
        gap = f"  {found}" if best["gap"] > facts["random"]["spread"] else "  no gap is beyond a random order's"
    tell(f"{file}  {facts['label']['name']} {facts['label']['probability']:.1%}{gap}  {page}")


def _apart(sources: "list[Source]", out: Path) -> "list[Source]":
    """Pictures to explain, none of which is where the pages go: they might be written over."""
    from vitrail.errors import InputError

    if not sources:
        raise InputError("there is no picture to explain; the folder is empty.")
    inside = [
        source.name for source in sources if source.name != "-" and Path(source.name).parent.resolve() == out.resolve()
    ]
    if inside:
        raise InputError(f"{inside[0]!r} is in {str(out)!r}, where the pages would go; choose another --out.")
    return sources


def counted_from_one(what: str, number: int, count: int) -> int:
    """A layer or a head as people count them, by its place in a list."""
    from vitrail.errors import InputError

    if number > count:
        raise InputError(f"{what} {number} is not there; there are {count}, counted from 1.")
    return number - 1


def _index(labels: tuple[str, ...], label: str) -> int:
    """The place of a class, by its name."""
    from vitrail.errors import unknown

    if label in labels:
        return labels.index(label)
    alike = [place for place, name in enumerate(labels) if name.lower() == label.lower()]
    if len(alike) != 1:
        raise unknown("class", label, labels)
    return alike[0]


def _sides(size: str) -> tuple[int, int]:
    """32 or 32x48 as pixels down and across."""
    from vitrail.errors import InputError

    sides = size.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):  # noqa: PLR2004
        raise InputError(f"--size {size!r} is no size; give the pixels of a side (224), or down and across (224x320).")
    return int(sides[0]), int(sides[-1])


def _check_tokens(size: tuple[int, int], patch: int) -> None:
    """So many that their patterns can be looked at."""
    from vitrail.errors import InputError

    count = (size[0] // patch) * (size[1] // patch)
    if count > TOKENS:
        raise InputError(
            f"{size[0]} x {size[1]} pixels are {count:,} patches of {patch}, where {TOKENS:,} can be looked at; choose "
            f"a smaller --size."
        )


def _free(name: str, taken: dict[str, Any]) -> str:
    """A name for the files of a picture: of letters that every system knows, not too long, and not yet taken."""
    from vitrail.report.explain import INDEX

    name = name.encode("utf-8", "replace").decode().replace("?", "_")[:LETTERS]
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(one for one in names if one not in taken and one != INDEX)
