"""``vitrail tag``."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Json, print_json
from vitrail.progress import NAMED
from vitrail.terminal.console import printable, results, say
from vitrail.terminal.lines import line_groups, whole_texts
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.tasks.tags.tagger import Tagger, Tags

STYLES = ("bold blue", "default", "green", "bright_black", "magenta", "cyan", "yellow", "red")
USUAL = {"keyword": 0, "name": 1, "string": 2, "comment": 3, "number": 4, "operator": 5, "space": 1}


def tag(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with labels.", metavar="RUN")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="A sentence, a file of lines, or - for standard input. Default: -.", metavar="TEXT|FILE"),
    ] = None,
    spaces: Annotated[
        bool, typer.Option("--split", help="Words are what stands between spaces, and no signs are apart.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Label words: a word and its label per line, or in colour; a text and its label, if texts have one."""
    with working("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.runs import open_run
        from vitrail.tasks.tags.tagger import Tagger

        keep_memory()
        trained = open_run(run).trained()
        tagger = Tagger.of(trained)
    for note in trained.weights.remarks:
        say(f"note: {note}")
    shown = _Shown(tagger, as_json=as_json)
    for lines in _texts(tagger, inputs or ["-"]):
        for one in tagger.tagged(lines, spaces=spaces):
            shown.add(one)
    shown.finish()


def _texts(tagger: "Tagger", inputs: list[str]) -> Iterator[list[str]]:
    """Lines that are looked at together; of a model of characters, whole files."""
    if not tagger.characters:
        yield from line_groups(inputs, "labelled")
    else:
        yield from ([text] for text in whole_texts(inputs, "labelled"))


class _Shown:
    """Labels as they come, and what is said of them."""

    def __init__(self, tagger: "Tagger", *, as_json: bool) -> None:
        self.tagger, self.as_json, self.console = tagger, as_json, results()
        self.number = self.failed = self.noted = 0
        names = sorted(set(tagger.labels) - set(USUAL))
        self.styles = {name: STYLES[one] for name, one in USUAL.items()}
        self.styles |= {name: STYLES[number % len(STYLES)] for number, name in enumerate(names)}

    def add(self, one: "Tags") -> None:
        self.number += 1
        if one.error:
            self.failed += 1
            if self.failed <= NAMED:
                say(f"line {self.number:,}: {one.error}")
        self.noted += bool(one.notes)
        for note in one.notes if self.noted <= NAMED else ():
            say(f"line {self.number:,}: {note}")
        if self.as_json:
            tags = [{"word": word, "label": label, "probability": p} for word, label, p in self._joined(one)]
            print_json({"text": one.text, "labels": tags, **({"error": one.error} if one.error else {})})
        elif self.console.is_terminal and not self.tagger.whole:
            self._coloured(one)
        else:
            rows = [f"{_plain(word)}\t{label}\n" for word, label, _ in self._joined(one)]
            sys.stdout.write(printable("".join(rows)) + ("" if self.tagger.whole else "\n"))

    def _joined(self, one: "Tags") -> "list[tuple[str, str, float]]":
        """Words; of characters, those that follow one another and have one label."""
        if not self.tagger.characters:
            return one.words
        joined: list[tuple[str, str, float]] = []
        for word, label, p in one.words:
            if joined and joined[-1][1] == label:
                joined[-1] = (joined[-1][0] + word, label, min(joined[-1][2], p))
            else:
                joined.append((word, label, p))
        return joined

    def _coloured(self, one: "Tags") -> None:
        from rich.text import Text

        line = Text()
        for word, label, _ in self._joined(one):
            style = self.styles[label]
            line.append(printable(word), style)
            if not self.tagger.characters:
                line.append(f"/{label} ", "dim")
        self.console.print(line, end="" if self.tagger.characters else "\n")

    def finish(self) -> None:
        if self.failed:
            say(f"vitrail: {self.failed:,} of {self.number:,} lines have no labels.")
            raise typer.Exit(1)


def _plain(word: str) -> str:
    return word.replace("\n", "\\n").replace("\t", "\\t")
