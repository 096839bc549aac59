"""``vitrail convert``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Force, Json, Normalisation, parse_size, print_json
from vitrail.terminal.console import messages, say, table, tell
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.weights import Weights


def convert(
    source: Annotated[
        str, typer.Argument(help="Weights to read: a run, a file, a folder, or hf:owner/name.", metavar="FROM")
    ],
    target: Annotated[Path, typer.Argument(help="File to write; a folder for hf and vitrail.", metavar="TO")],
    name: Annotated[
        str,
        typer.Option("--format", help="vitrail, timm, hf, npz (Google's), torchvision or vit-pytorch.", metavar="F"),
    ] = "vitrail",
    image: Annotated[
        str | None, typer.Option(help="New image size: 384, or 224x384 (height x width).", metavar="PIXELS")
    ] = None,
    patch: Annotated[int | None, typer.Option(help="New patch size.", min=1, metavar="PIXELS")] = None,
    channels: Annotated[int | None, typer.Option(help="New number of channels.", min=1, metavar="N")] = None,
    classes: Annotated[
        int | None, typer.Option(help="New head for this many classes; 0 removes the head.", min=0, metavar="N")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Number of heads, if the file does not say. Default: width / 64.", metavar="N")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="Activation, if the file does not say: gelu, gelu-tanh, relu.", metavar="NAME")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Norms before or after, if names say nothing: pre, post.", metavar="NAME")
    ] = None,
    answers: Annotated[
        str | None, typer.Option(help="What answers, if names say nothing: class, mean.", metavar="NAME")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="TOML table of what the file calls the parts of a ViT.", metavar="FILE")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Labelled pictures to try on what no tensor says, and choose by.", metavar="FOLDER|CSV"),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict/--partial", help="Stop at tensors that the model has no use for, or skip them.")
    ] = True,
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert weights to another format, and optionally to another size."""
    with working("Starting ..."):
        from vitrail.families import count_parameters
        from vitrail.files import check_free
        from vitrail.weights import read, save
        from vitrail.weights.tokenizers import carry

    size = None if image is None else parse_size("--image", image)
    if not target.is_dir() or any(target.iterdir()):
        check_free(target, force=force, option="name")
    check_free(target.with_name(f"{target.name}.json"), force=force, option="name")
    stated = {"normalise": normalise, "heads": heads, "activation": activation, "order": order, "answers": answers}
    how: dict[str, Any] = {"strict": strict, "image": size, "channels": channels, "names": names, **stated}
    if data is None:
        with working(f"Reading {source} ..."):
            weights = read(source, **how)
    else:
        weights = _tried(source, data, how)
    with working(f"Changing {source} ..."):
        weights = weights.adapted(image=size, patch=patch, channels=channels, classes=classes)
    for note in weights.remarks:
        say(f"note: {note}")
    model = weights.model()
    with working(f"Writing {target} ..."):
        save(model, target, name, normalise=weights.normalise, labels=weights.labels, fit=weights.fit)
        left = carry(Path(source), target, name)
    for note in left:
        say(f"note: {note}")
    count = count_parameters(model)
    if as_json:
        fields = weights.config.model_dump(mode="json")
        print_json({"from": source, "was": weights.format, "to": str(target), "format": name, "model": fields})
        return
    tell(f"{source} ({weights.format}, {count:,} parameters) written to {target} ({name})")


def _tried(source: str, data: str, how: dict[str, Any]) -> "Weights":
    """Weights read in the way that labelled pictures score best with; what was tried goes to stderr."""
    from vitrail.tasks.pictures.tried import tried
    from vitrail.terminal.progress import counted

    weights, every, judge = tried(source, data, counted, **how)
    rows = table("tried", ">loss", ">accuracy")
    for one in sorted(every, key=lambda one: one.loss):
        words = ", ".join(f"{name} {value}" for name, value in one.stated.items())
        rows.add_row(words, f"{one.loss:.3f}", f"{one.accuracy:.1%}")
    messages().print(rows)
    say(f"the first is taken, judged by {judge}")
    return weights
