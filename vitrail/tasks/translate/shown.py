"""What is shown of translations: in a report, and by ``vitrail evaluate``."""

from collections.abc import Sequence

import numpy as np

from vitrail.data.pairs import Pairs
from vitrail.tasks.sections import Card, Section, Table
from vitrail.tasks.translate.scores import TranslationScores, sentence_scores

SAMPLES, WORST = 12, 12


def cards(found: TranslationScores) -> list[Card]:
    """The numbers that a report opens with."""
    return [
        Card(f"{found.bleu.value:.2f}", f"{found.part} BLEU"),
        Card(f"{found.chrf.value:.2f}", f"{found.part} chrF"),
        Card(f"{found.exact:.1%}", "exact match"),
    ]


def sections(pairs: Pairs, said: Sequence[str], found: TranslationScores) -> list[Section]:
    """Some translations, the worst, and BLEU by length."""
    drawn = np.random.default_rng(0).permutation(len(pairs))[:SAMPLES]
    each = sentence_scores(said, pairs.targets)
    worst = sorted(range(len(pairs)), key=lambda row: (each[row], row))[:WORST]
    worst = [row for row in worst if said[row] != pairs.targets[row]]
    return [
        Table(
            title="Samples",
            note=f"Drawn at random from the {found.part} part; decoded by {found.method}.",
            columns=("source", "translation", "reference"),
            rows=[(pairs.sources[row], said[row], pairs.targets[row]) for row in sorted(drawn.tolist())],
            wide=True,
        ),
        Table(
            title="Worst",
            note="Those with the lowest chrF: mistakes, or references that say it another way.",
            columns=(">line", ">chrF", "source", "translation", "reference"),
            rows=[
                (f"{pairs.lines[row]:,}", f"{each[row]:.1f}", pairs.sources[row], said[row], pairs.targets[row])
                for row in worst
            ],
            empty="Every sentence is as its reference has it.",
            wide=True,
        ),
        length_table(found),
    ]


def length_table(found: TranslationScores) -> Table:
    """BLEU by the length of the reference."""
    return Table(
        title="By length",
        note="BLEU of the sentences whose references have so many words.",
        columns=("words", ">sentences", ">BLEU"),
        rows=[(one.words, f"{one.count:,}", f"{one.bleu:.2f}") for one in found.lengths],
    )


def lines(found: TranslationScores) -> list[str]:
    """The numbers, one in a line, with what they were computed by."""
    loss = [] if found.loss is None else [f"loss         {found.loss:.4f} nats a token"]
    return [
        f"BLEU         {found.bleu}",
        f"             {found.signature}",
        f"chrF         {found.chrf}",
        f"             {found.chrf_signature}",
        f"exact match  {found.exact:.2%}",
        *loss,
        f"             {found.tested:,} sentences ({found.part}), {found.method}",
    ]
