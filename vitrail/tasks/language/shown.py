"""What is shown of a model of a language: in a report, and by ``vitrail evaluate``."""

from vitrail.tasks.language.measured import LanguageScores
from vitrail.tasks.sections import Card


def cards(found: LanguageScores) -> list[Card]:
    """The numbers that a report opens with."""
    if found.nats is not None:
        return [
            Card(f"{found.nats:.4f}", f"{found.part} nats a character"),
            Card(f"{found.bits:.4f}", "bits a character"),
            Card(f"{found.perplexity:,.1f}", "perplexity of a token"),
        ]
    told = [] if found.follows is None else [Card(f"{found.follows:.1%}", "told whether texts follow")]
    return [
        Card(f"{found.loss:.4f}", f"{found.part} nats a hidden token"),
        Card(f"{found.accuracy:.1%}", "hidden tokens said right"),
        *told,
    ]


def lines(found: LanguageScores) -> list[str]:
    """The numbers, one in a line."""
    named = {
        "nats": (found.nats, "{:.4f} a character"),
        "bits": (found.bits, "{:.4f} a character"),
        "loss": (found.loss, "{:.4f} nats a token"),
        "perplexity": (found.perplexity, "{:,.2f} of a token"),
        "accuracy": (found.accuracy, "{:.2%} of the likeliest tokens are right"),
        "follows": (found.follows, "{:.2%} told right"),
    }
    shown = [f"{name:<12} {form.format(value)}" for name, (value, form) in named.items() if value is not None]
    return [
        *shown,
        f"             {found.tokens:,} tokens asked for, of {found.characters:,} characters ({found.part})",
    ]


def headline(found: LanguageScores) -> str:
    """The result in a line."""
    if found.nats is not None:
        return (
            f"{found.part} {found.nats:.4f} nats a character ({found.bits:.3f} bits), perplexity of a token "
            f"{found.perplexity:,.1f} ({found.tokens:,} tokens)"
        )
    told = "" if found.follows is None else f", {found.follows:.1%} told whether texts follow"
    return (
        f"{found.part} {found.loss:.4f} nats a hidden token, {found.accuracy:.1%} right{told} ({found.tokens:,} tokens)"
    )
