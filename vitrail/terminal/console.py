"""Two consoles: results on stdout, everything else on stderr."""

from typing import Literal

from rich.console import Console
from rich.table import Table

WIDE = 10_000  # columns of what goes into a file or a pipe, where there is no screen to fit: a line is a line


def results() -> Console:
    """Where results go."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, emoji=False, width=WIDE)


def messages() -> Console:
    """Where progress and messages go."""
    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(message: str) -> None:
    """Print a message as it is."""
    messages().print(printable(message), markup=False)


def tell(result: str) -> None:
    """Print a result as it is."""
    results().print(printable(result), markup=False)


def printable(text: str) -> str:
    """A text in which what is no character, as in some file names, is written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def table(*columns: str) -> Table:
    """A plain table; a column whose name begins with > is flush right, and one that ends with ... is text in lines."""
    plain = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        text = column.endswith("...")
        plain.add_column(
            column.removeprefix(">").removesuffix("..."), justify=justify, no_wrap=not text, overflow="fold"
        )
    return plain
