"""What is shown of a model of a language: in a report, and by ``vitrail evaluate``."""

import numpy as np
import torch

from vitrail.families import Model
from vitrail.tasks.language.examples import Tokens
from vitrail.tasks.language.measured import HiddenText, LanguageScores
from vitrail.tasks.language.writer import Writer, Writing
from vitrail.tasks.sections import Card, Table

SAMPLES, PROMPT = 4, 32  # texts that are gone on with in a report, and how many tokens each has


def cards(scores: LanguageScores) -> list[Card]:
    """The numbers that a report opens with."""
    if scores.nats is not None:
        return [
            Card(f"{scores.nats:.4f}", f"{scores.part} nats a character"),
            Card(f"{scores.bits:.4f}", "bits a character"),
            Card(f"{scores.perplexity:,.1f}", "perplexity of a token"),
        ]
    pairs = [] if scores.follows is None else [Card(f"{scores.follows:.1%}", "told whether texts follow")]
    return [
        Card(f"{scores.loss:.4f}", f"{scores.part} nats a hidden token"),
        Card(f"{scores.accuracy:.1%}", "hidden tokens said right"),
        *pairs,
    ]


def lines(scores: LanguageScores) -> list[str]:
    """The numbers, one in a line."""
    named = {
        "nats": (scores.nats, "{:.4f} a character"),
        "bits": (scores.bits, "{:.4f} a character"),
        "loss": (scores.loss, "{:.4f} nats a token"),
        "perplexity": (scores.perplexity, "{:,.2f} of a token"),
        "accuracy": (scores.accuracy, "{:.2%} of the likeliest tokens are right"),
        "follows": (scores.follows, "{:.2%} told right"),
    }
    shown = [f"{name:<12} {form.format(value)}" for name, (value, form) in named.items() if value is not None]
    return [
        *shown,
        f"             {scores.tokens:,} tokens asked for, of {scores.characters:,} characters ({scores.part})",
    ]


def headline(scores: LanguageScores) -> str:
    """The result in a line."""
    if scores.nats is not None:
        return (
            f"{scores.part} {scores.nats:.4f} nats a character ({scores.bits:.3f} bits), perplexity of a token "
            f"{scores.perplexity:,.1f} ({scores.tokens:,} tokens)"
        )
    pairs = "" if scores.follows is None else f", {scores.follows:.1%} told whether texts follow"
    return (
        f"{scores.part} {scores.loss:.4f} nats a hidden token, {scores.accuracy:.1%} right{pairs} "
        f"({scores.tokens:,} tokens)"
    )


def continued(writer: Writer, held: Tokens, part: str) -> Table:
    """Texts that the model was not trained on, gone on with."""
    words, rows = writer.words, []
    size = min(PROMPT, writer.model.config.length // 2)
    for start in np.linspace(0, max(0, len(held) - 3 * size), SAMPLES).astype(int).tolist():
        prompt = held[start : start + size].tolist()
        text = "".join(writer.written(prompt, Writing(tokens=3 * size, seed=start)))
        rows.append((words.text(prompt), text, words.text(held[start + size : start + 3 * size].tolist())))
    return Table(
        title="Texts gone on with",
        note=f"From the {part} part; drawn at temperature {Writing().temperature:g}.",
        columns=("given", "written", "what stands there"),
        rows=rows,
        wide=True,
    )


def filled(model: Model, held: HiddenText) -> Table:
    """Words that are hidden in a text that the model was not trained on, filled in."""
    words, names, rows = held.words, held.words.names(), []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        inputs, targets, _ = held.windows.batch(np.zeros(1, dtype=np.int64), torch.device("cpu"))
        targets = targets[0] if isinstance(targets, tuple) else targets
        tokens, probabilities = inputs[0][0].tolist(), model(inputs)[0].softmax(-1)
    for index in (targets[0] >= 0).nonzero()[:, 0].tolist()[: 3 * SAMPLES]:
        before, after = map(words.text, (tokens[max(0, index - 12) : index], tokens[index + 1 : index + 8]))
        best = probabilities[index].topk(3)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        likely = ", ".join(f"{names[token].strip()!r} {p:.0%}" for token, p in pairs)
        rows.append((f"{before} [?]{after}", likely, names[int(targets[0, index])]))
    return Table(
        title="Hidden words",
        note=f"From the {held.part} part: the three likeliest at some places.",
        columns=("text", "said", "what stands there"),
        rows=rows,
        wide=True,
    )
