"""``vitrail translate``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Json, TopK, TopP, print_json
from vitrail.progress import NAMED
from vitrail.terminal.console import printable, say
from vitrail.terminal.lines import line_groups
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.tasks.translate.translator import Translation


def translate(
    run: Annotated[str, typer.Argument(help="A run directory.", metavar="RUN")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="A sentence, a file of lines, or - for standard input. Default: -.", metavar="TEXT|FILE"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="beam, greedy, sample; parallel of a parallel model. Default: beam.", metavar="NAME"),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Sequences that are gone on with. Default: 5.", min=1, metavar="N")
    ] = None,
    nbest: Annotated[int, typer.Option(help="Translations of each line.", min=1, metavar="N")] = 1,
    penalty: Annotated[
        float | None, typer.Option(help="Power of the length that scores are divided by. Default: 1.", metavar="X")
    ] = None,
    passes: Annotated[
        int | None, typer.Option(help="Passes of a parallel model. Default: 4.", min=1, metavar="N")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Lengths that it tries side by side. Default: 5.", min=1, metavar="N")
    ] = None,
    length: Annotated[
        float | None, typer.Option(help="Times the length that it predicts. Default: 1.", metavar="X")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling. Default: 1.", metavar="X")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of sampling. Default: 0.", min=0, metavar="N")] = None,
    as_json: Json = False,
) -> None:
    """Translate lines of text, in their order: one line per line; with --nbest, score and translation."""
    with working("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.runs import open_run
        from vitrail.tasks.translate.translator import Decoding, Translator

        keep_memory()
        given: dict[str, Any] = {"method": method, "beam": beam, "nbest": nbest, "penalty": penalty, "passes": passes}
        given |= {"candidates": candidates, "length": length, "temperature": temperature}
        given |= {"top_k": top_k, "top_p": top_p, "seed": seed}
        how = Decoding(**{name: value for name, value in given.items() if value is not None})
        opened = open_run(run)
        trained = opened.trained(opened.answering())
        translator = Translator.of(trained)
        how = how.checked(translator.model.config)
    for note in trained.weights.remarks:
        say(f"note: {note}")
    shown = _Shown(nbest, as_json=as_json)
    for lines in line_groups(inputs or ["-"], "translated"):
        for one in translator.translations(lines, how):
            shown.add(one)
    shown.finish()


class _Shown:
    """Translations as they come, and what is said of them: of each kind the first ten."""

    def __init__(self, nbest: int, *, as_json: bool) -> None:
        self.nbest, self.as_json = nbest, as_json
        self.number = self.failed = self.noted = 0

    def add(self, one: "Translation") -> None:
        self.number += 1
        self.failed += bool(one.error)
        self.noted += bool(one.notes)
        if one.error and self.failed <= NAMED:
            say(f"line {self.number:,}: {one.error}")
        for note in one.notes if self.noted <= NAMED else ():
            say(f"line {self.number:,}: {note}")
        if self.as_json:
            translations = [{"text": text, "score": score} for text, score in one.hypotheses]
            print_json(
                {"source": one.source, "translations": translations, **({"error": one.error} if one.error else {})}
            )
        elif self.nbest == 1:
            typer.echo(printable(one.text))
        else:
            for text, score in one.hypotheses or [("", 0.0)]:
                typer.echo(printable(f"{score:.4f}\t{text}"))

    def finish(self) -> None:
        if self.noted > NAMED:
            say(f"vitrail: {self.noted:,} lines have characters that were never seen in training.")
        if self.failed:
            say(f"vitrail: {self.failed:,} of {self.number:,} lines could not be translated, and are empty.")
            raise typer.Exit(1)
