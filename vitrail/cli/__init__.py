"""The command line: ``vitrail VERB``. Results go to stdout, progress and messages to stderr.

No module here imports torch before its verb runs, so that help is quick.
"""

import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Annotated

import typer

import vitrail
from vitrail.cli import (
    compare,
    convert,
    embed,
    evaluate,
    explain,
    export,
    figures,
    generate,
    models,
    predict,
    recipes,
    shrink,
    tag,
    train,
    translate,
    walk,
    words,
)
from vitrail.errors import InputError
from vitrail.machine import wait_briefly
from vitrail.terminal.console import say

app = typer.Typer(
    name="vitrail",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # panels take half as long again, and half of a narrow terminal
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
# With what each does in so few words that they fit a narrow terminal.
VERBS: dict[Callable[..., None], str] = {
    train.train: "Train a model on your data.",
    evaluate.evaluate: "Measure a model on labelled data.",
    predict.predict: "Label pictures.",
    translate.translate: "Translate lines of text.",
    tag.tag: "Label words or texts.",
    generate.generate: "Write text, or fill in words.",
    explain.explain: "Show where a model looks, and why.",
    figures.figures: "Draw what a model has learned.",
    walk.walk: "Follow one attention layer step by step.",
    words.words: "Find near words, and follow one.",
    embed.embed: "Turn pictures or text into vectors.",
    convert.convert: "Move weights between formats and sizes.",
    shrink.shrink: "Make a model smaller and faster.",
    export.export: "Write a model as an ONNX file.",
    compare.compare: "Set models beside each other.",
    models.models: "List the models.",
    recipes.recipes: "List the built-in recipes.",
}
KINDS = {compare.compare: compare.Greedy}  # verbs that read their words in a way of their own
for verb, what in VERBS.items():
    app.command(short_help=what, cls=KINDS.get(verb))(verb)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(vitrail.__version__)
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and stop.")
    ] = False,
) -> None:
    """A toolkit for Vision Transformers and the Transformers behind them."""


def main() -> None:
    """Exit status: 0 done, 1 failed with a message, 2 wrong usage."""
    wait_briefly()
    # What is wrong with a picture is said in our own words.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    try:
        app()
    except InputError as error:
        _await_the_first()
        say(f"vitrail: {error}")
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that went away
        _await_the_first()
        name = repr(os.fspath(error.filename)) if error.filename is not None else "a file"
        say(f"vitrail: {name} could not be read or written: {error.strerror or error}.")
        sys.exit(1)
    except Exception:
        _await_the_first()
        raise


def _await_the_first() -> None:
    """Of several processes that fail alike the first speaks, and the launcher ends the others meanwhile."""
    if os.environ.get("RANK", "0") != "0":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(5)
