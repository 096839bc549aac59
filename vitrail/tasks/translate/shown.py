"""What is shown of translations: in a report, and by ``vitrail evaluate``."""

from collections.abc import Sequence

import numpy as np

from vitrail.data.pairs import Pairs
from vitrail.tasks.sections import Card, Section, Table
from vitrail.tasks.translate.scores import TranslationScores, sentence_scores

SAMPLES, WORST = 12, 12


def cards(scores: TranslationScores) -> list[Card]:
    """The numbers that a report opens with."""
    return [
        Card(f"{scores.bleu.value:.2f}", f"{scores.part} BLEU"),
        Card(f"{scores.chrf.value:.2f}", f"{scores.part} chrF"),
        Card(f"{scores.exact:.1%}", "exact match"),
    ]


def sections(pairs: Pairs, hypotheses: Sequence[str], scores: TranslationScores) -> list[Section]:
    """Some translations, the worst, and BLEU by length."""
    drawn = np.random.default_rng(0).permutation(len(pairs))[:SAMPLES]
    each = sentence_scores(hypotheses, pairs.targets)
    worst = sorted(range(len(pairs)), key=lambda row: (each[row], row))[:WORST]
    worst = [row for row in worst if hypotheses[row] != pairs.targets[row]]
    return [
        Table(
            title="Samples",
            note=f"Drawn at random from the {scores.part} part; decoded by {scores.method}.",
            columns=("source", "translation", "reference"),
            rows=[(pairs.sources[row], hypotheses[row], pairs.targets[row]) for row in sorted(drawn.tolist())],
            wide=True,
        ),
        Table(
            title="Worst",
            note="Those with the lowest chrF: mistakes, or references that say it another way.",
            columns=(">line", ">chrF", "source", "translation", "reference"),
            rows=[
                (f"{pairs.lines[row]:,}", f"{each[row]:.1f}", pairs.sources[row], hypotheses[row], pairs.targets[row])
                for row in worst
            ],
            empty="Every sentence is as its reference has it.",
            wide=True,
        ),
        length_table(scores),
    ]


def length_table(scores: TranslationScores) -> Table:
    """BLEU by the length of the reference."""
    return Table(
        title="By length",
        note="BLEU of the sentences whose references have so many words.",
        columns=("words", ">sentences", ">BLEU"),
        rows=[(one.words, f"{one.count:,}", f"{one.bleu:.2f}") for one in scores.lengths],
    )


def lines(scores: TranslationScores) -> list[str]:
    """The numbers, one in a line, with what they were computed by."""
    loss = [] if scores.loss is None else [f"loss         {scores.loss:.4f} nats a token"]
    return [
        f"BLEU         {scores.bleu}",
        f"             {scores.signature}",
        f"chrF         {scores.chrf}",
        f"             {scores.chrf_signature}",
        f"exact match  {scores.exact:.2%}",
        *loss,
        f"             {scores.tested:,} sentences ({scores.part}), {scores.method}",
    ]
