"""``vitrail explain``."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Force, Json, Normalisation, Unread, from_one, parse_size, print_json
from vitrail.errors import InputError
from vitrail.terminal.console import printable, say, tell
from vitrail.terminal.progress import counting, working

if TYPE_CHECKING:
    from vitrail.tasks.pictures.predictor import Input, Predictor

TOKENS = 16_384  # of a picture that is explained, at most
FEW = 20  # pictures up to which the index is written after each; then after so many
LETTERS = 100  # bytes of the name of a file that is written, of the 255 that systems allow


def explain(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="Picture files, folders, or - for standard input.", metavar="PICTURE"),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Folder to write pages, PNG and JSON files to.", metavar="DIR")],
    text: Annotated[
        list[str] | None, typer.Option("--text", help="A sentence, for a model of text. Repeatable.", metavar="TEXT")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help="What is said of it, one for each. Default: the model's own.", metavar="TEXT"),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="attention, rollout, relevance or gradcam. Repeatable. Default: all.", metavar="NAME"),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Layer of attention and gradcam, counted from 1. Default: the last.", min=1, metavar="N"),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(help="Head of attention, counted from 1. Default: the mean of all.", min=1, metavar="N"),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--class", help="Class to explain. Default: the most probable.", metavar="NAME")
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            "--steps",
            help="Steps of the deletion and insertion curves that measure each method; 0 skips them.",
            min=0,
            metavar="N",
        ),
    ] = 20,
    size: Annotated[
        str | None,
        typer.Option(help="Image size: 224, or 224x320 (height x width). Default: the model's own.", metavar="N"),
    ] = None,
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Explain predictions: an interactive page per picture or sentence, overlays as PNG, numbers as JSON."""
    if text:
        _alone(inputs)
        _sentences(run, text, target, out, force=force, as_json=as_json)
        return
    if not inputs:
        raise InputError("name pictures to explain, or give sentences to a model of text with --text.")
    with working("Starting ..."):
        from vitrail.files import Output
        from vitrail.lens import methods
        from vitrail.machine import keep_memory
        from vitrail.report.explain import write_index
        from vitrail.runs import Run
        from vitrail.tasks.pictures.predictor import Predictor, inputs_of

        keep_memory()
        for name in method or ():
            methods[name]  # a name it does not know is an error
        sides = None if size is None else parse_size("--size", size)
        predictor = Predictor.of(Run(run).weights(normalise=normalise), size=sides, inside=True)
        wanted = None if label is None else _index(predictor.labels, label)
        explained = _explainer(predictor, wanted, method, layer, head, steps)
        pictures = _apart(list(inputs_of(inputs)), out)
        output = Output(out, force=force)
    for note in predictor.notes:
        say(f"note: {note}")
    title = f"{Path(run).name}: {predictor.model.summary()}"
    if (layer or head) and method and not set(method) & {"attention", "gradcam"}:
        say(f"note: --layer and --head are of attention and gradcam; {', '.join(method)} goes through all of them.")
    written: dict[str, dict[str, Any]] = {}
    unread = Unread()
    index = None
    for one, pixels in predictor.decoded(pictures):
        if isinstance(pixels, str):
            unread.add(one.name, pixels)
            print_json({"file": one.name, "error": pixels}) if as_json else None
            continue
        name = _free(Path(one.name).stem if one.name != "-" else "picture", written)
        source = printable(Path(one.name).name) if one.name != "-" else name
        facts = {"source": source, "truth": _truth(one.name, predictor.labels), "title": title}
        with explained(one.name, pixels) as write:
            written[name] = write(output, name, labels=predictor.labels, **facts)
            if len(pictures) > 1 and (len(written) <= FEW or len(written) % FEW == 0):  # there at any moment
                index = write_index(output, written, unread.lines)
        _say(one.name, written[name], out / f"{name}.html", as_json=as_json)
    if index is not None:
        say(f"all of them: {write_index(output, written, unread.lines)}")
    unread.finish()


def _explainer(
    predictor: "Predictor",
    wanted: int | None,
    method: list[str] | None,
    layer: int | None,
    head: int | None,
    steps: int,
) -> Callable[[str, Any], AbstractContextManager[Callable[..., dict[str, Any]]]]:
    """What looks at a picture, and gives what writes down what was seen."""
    from vitrail.families import ViT
    from vitrail.lens import explain as explain_picture
    from vitrail.lens.evidence import evidence
    from vitrail.report.evidence import write_evidence
    from vitrail.report.explain import write_explanation

    if not isinstance(predictor.model, ViT):
        if method or layer or head:
            raise InputError(f"{predictor.weights.path!r} has no attention; leave --method, --layer and --head out.")

        @contextmanager
        def plain(_: str, pixels: Any) -> Iterator[Callable[..., dict[str, Any]]]:
            with working("Drawing ..."):
                explanation = evidence(predictor.model, predictor.image(pixels), wanted)
                yield lambda output, name, **facts: write_evidence(output, name, pixels, explanation, **facts)

        return plain
    model = predictor.attending
    _check_tokens(predictor.size, model.config.patch)
    layer_index, head_index = _site(model.config, layer, head)

    @contextmanager
    def attending(name: str, pixels: Any) -> Iterator[Callable[..., dict[str, Any]]]:
        explanation = explain_picture(
            model,
            predictor.image(pixels),
            label=wanted,
            names=method,
            layer=layer_index,
            head=head_index,
            steps=steps,
            progress=counting(f"{printable(name)}: "),
        )
        with working("Drawing ..."):
            yield lambda output, name, **facts: write_explanation(
                output, name, pixels, explanation, model=model, **facts
            )

    return attending


def _alone(pictures: list[str] | None) -> None:
    for one in pictures or ():
        raise InputError(f"{one!r} is given and --text too; explain pictures or sentences, one or the other.")


def _sentences(run: str, texts: list[str], targets: list[str] | None, out: Path, *, force: bool, as_json: bool) -> None:
    """A page of which word looks at which, for each sentence."""
    with working("Starting ..."):
        from vitrail.files import Output
        from vitrail.report.words import write_reading
        from vitrail.runs import open_run

        if targets is not None and len(targets) != len(texts):
            raise InputError(f"{len(targets)} --target and {len(texts)} --text were given; give one for each, or none.")
        opened = open_run(run)
        trained = opened.trained()
        seen_through = opened.task.reading(trained)
        output, written = Output(out, force=force), dict[str, Any]()
    title = f"{Path(run).name}: {trained.weights.model().summary()}"
    for one, target in zip_longest(texts, targets or []):
        name = _free("-".join(re.findall(r"\w+", one)[:6]) or "sentence", written)
        with working("Looking ..."):
            reading, answer = seen_through(one, target)
            written[name] = write_reading(output, name, reading, source=one, written=answer, title=title)
        page = out / f"{name}.html"
        print_json({"text": one, "page": str(page), **written[name]}) if as_json else tell(f"{one}  {answer}  {page}")


def _say(file: str, facts: dict[str, Any], page: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"file": file, "page": str(page), **facts})
        return
    gap = ""
    if facts["random"]["gap"] is not None:
        best = max(facts["methods"], key=lambda one: one["gap"])
        largest = f"largest gap: {best['name']} {best['gap']:+.3f}"
        gap = f"  {largest}" if best["gap"] > facts["random"]["spread"] else "  no gap is beyond a random order's"
    tell(f"{file}  {facts['label']['name']} {facts['label']['probability']:.1%}{gap}  {page}")


def _site(config: Any, layer: int | None, head: int | None) -> tuple[int | None, int | None]:
    """The layer and the head that are asked for, by their indices."""
    number = None if layer is None else from_one("layer", layer, config.depth)
    heads = config.layers[-1 if number is None else number][0]
    if number is not None and not heads:
        raise InputError(f"layer {layer} has no attention to look at; choose another --layer.")
    return number, None if head is None else from_one("head", head, heads or config.most_heads)


def _truth(file: str, labels: tuple[str, ...]) -> str | None:
    """The class of a picture, where its folder has the name of one."""
    folder = Path(file).resolve().parent.name
    return folder if file != "-" and folder in labels else None


def _apart(inputs: "list[Input]", out: Path) -> "list[Input]":
    """Pictures to explain, none of which is where the pages go: they might be written over."""
    inside = [one.name for one in inputs if one.name != "-" and Path(one.name).parent.resolve() == out.resolve()]
    if inside:
        raise InputError(f"{inside[0]!r} is in {str(out)!r}, where the pages would go; choose another --out.")
    return inputs


def _index(labels: tuple[str, ...], label: str) -> int:
    """The number of a class, by its name."""
    from vitrail.errors import unknown

    if label in labels:
        return labels.index(label)
    alike = [number for number, name in enumerate(labels) if name.lower() == label.lower()]
    if len(alike) != 1:
        raise unknown("class", label, labels)
    return alike[0]


def _check_tokens(size: tuple[int, int], patch: int) -> None:
    """So many that their patterns can be looked at."""
    count = (size[0] // patch) * (size[1] // patch)
    if count > TOKENS:
        raise InputError(
            f"{size[0]} x {size[1]} pixels are {count:,} patches of {patch}, where {TOKENS:,} can be looked at; choose "
            f"a smaller --size."
        )


def _free(name: str, taken: dict[str, Any]) -> str:
    """A name for the files of a picture: of letters that every system knows, not too long, and not yet taken."""
    from vitrail.report.explain import INDEX

    name = name.encode("utf-8", "replace").decode().replace("?", "_").encode()[:LETTERS].decode("utf-8", "ignore")
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(one for one in names if one not in taken and one != INDEX)
