"""What labels are worth beside others: accuracy, and precision, recall and F1 of each class; of spans, if they are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

SPAN = re.compile(r"^(?:[BIES]-.+|O)$")
Spans = set[tuple[int, int, int, str]]


@dataclass(frozen=True)
class TagClass:
    """One class: how many there are, the fraction of its answers that are right (precision), and of its words that are
    answered so (recall), and their harmonic mean; None where there is no such answer, or no such word.
    """

    name: str
    count: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class TagScores:
    """All numbers of a measurement."""

    part: str
    unit: str  # what has a label: words, characters, texts
    tested: int
    accuracy: float
    macro: float  # mean of F1 over the classes that there are
    loss: float
    classes: list[TagClass]
    confusion: list[list[int]]  # rows: the class; columns: the answer
    spans: float | None = None  # F1 of whole spans, of labels such as B-PER, I-PER, O
    names: list[str] = field(default_factory=list)


def score(
    predicted: Sequence[Sequence[int]],
    truth: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    part: str,
    unit: str,
    loss: float,
) -> TagScores:
    """What labels said of sentences are worth, given those that are true; of a label that was never learned, -1."""
    from sklearn.metrics import (  # noqa: PLC0415  # a second, for those who measure
        confusion_matrix,
        precision_recall_fscore_support,
    )

    ours, theirs = (np.array([label for some in every for label in some]) for every in (predicted, truth))
    numbers = list(range(len(names)))
    precision, recall, f1, support = precision_recall_fscore_support(theirs, ours, labels=numbers, zero_division=np.nan)
    there = [number for number in numbers if support[number]]
    plain = precision_recall_fscore_support(theirs, ours, labels=there or numbers, zero_division=0)[2]
    return TagScores(
        part=part,
        unit=unit,
        tested=len(theirs),
        accuracy=float((ours == theirs).mean()),
        macro=float(np.mean(plain)),
        loss=loss,
        classes=[
            TagClass(name, int(count), *(None if np.isnan(one) else float(one) for one in some))
            for name, count, *some in zip(names, support, precision, recall, f1, strict=True)
        ],
        confusion=confusion_matrix(theirs, ours, labels=numbers).tolist(),
        spans=_span_f1(predicted, truth, names) if len(names) > 1 and all(map(SPAN.match, names)) else None,
        names=list(names),
    )


def _span_f1(predicted: Sequence[Sequence[int]], truth: Sequence[Sequence[int]], names: Sequence[str]) -> float:
    """2 p r / (p + r) of spans that are right as a whole (Tjong Kim Sang and De Meulder 2003)."""
    ours, theirs = (
        spans([[names[label] if label >= 0 else "O" for label in some] for some in every])
        for every in (predicted, truth)
    )
    return 2 * len(ours & theirs) / max(1, len(ours) + len(theirs))


def spans(sentences: Sequence[Sequence[str]]) -> Spans:
    """The spans that labels tell, as sentence, first word, the one after the last, and kind."""
    spans: Spans = set()
    for row, labels in enumerate(sentences):
        first, kind = 0, ""
        for index, label in enumerate([*labels, "O"]):
            mark, _, name = label.partition("-")
            if kind and (mark in ("O", "B", "S") or name != kind):
                spans.add((row, first, index, kind))
                kind = ""
            if mark != "O" and not kind:
                first, kind = index, name
            if mark in ("E", "S") and kind:
                spans.add((row, first, index + 1, kind))
                kind = ""
    return spans
