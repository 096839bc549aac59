"""What is shown of labels: in a report, and by ``vitrail evaluate``."""

from collections.abc import Sequence

from vitrail.data.tagged import Tagged
from vitrail.tasks.sections import Card, Confusion, Section, Table
from vitrail.tasks.tags.scores import TagScores

FEW = 30  # classes that a confusion is drawn of
WORST, WIDTH = 12, 160  # sentences that are shown, and their letters


def cards(scores: TagScores) -> list[Card]:
    """The numbers that a report opens with."""
    spans = [] if scores.spans is None else [Card(f"{scores.spans:.2%}", "F1 of spans")]
    return [
        Card(f"{scores.accuracy:.2%}", f"{scores.part} accuracy"),
        Card(f"{scores.macro:.2%}", "mean F1 of the classes"),
        *spans,
    ]


def class_table(scores: TagScores) -> Table:
    """Each class, the most frequent first."""
    order = sorted(scores.classes, key=lambda one: -one.count)
    return Table(
        title="Classes",
        columns=("class", f">{scores.unit}", ">precision", ">recall", ">F1"),
        rows=[(one.name, f"{one.count:,}", *map(_percent, (one.precision, one.recall, one.f1))) for one in order],
    )


def sections(tagged: Tagged, predicted: Sequence[Sequence[int]], scores: TagScores) -> list[Section]:
    """Each class, how they are confused, and where the mistakes are."""
    names = scores.names
    mistakes = []
    for row, truth in enumerate(tagged.labels):
        wrong = [index for index, label in enumerate(truth) if names[predicted[row][index]] != label]
        if wrong:
            mistakes.append((len(wrong) / len(truth), row, wrong))
    between = "" if scores.unit == "characters" else " "
    rows = []
    for _, row, wrong in sorted(mistakes, key=lambda one: (-one[0], one[1]))[:WORST]:
        sentence, truth = tagged.sentences[row], tagged.labels[row]
        mistake = "; ".join(
            f"{sentence[index]!r}: {names[predicted[row][index]]}, not {truth[index]}" for index in wrong[:4]
        )
        if tagged.whole:
            mistake = f"{names[predicted[row][0]]}, not {truth[0]}"
        rows.append((f"{tagged.places[row]:,}", between.join(sentence)[:WIDTH], mistake))
    shown: list[Section] = [class_table(scores)]
    if len(names) <= FEW:
        note = f"Rows: the {scores.part} {scores.unit}; columns: the answers."
        shown.append(Confusion(title="Confusion", note=note, counts=scores.confusion, names=names))
    shown.append(
        Table(
            title="Mistakes",
            note="Where the largest fraction is wrong: mistakes of the model, or of who labelled them.",
            columns=(">line", "text", "said"),
            rows=rows,
            empty="Every label is as it was given.",
            wide=True,
        )
    )
    return shown


def lines(scores: TagScores) -> list[str]:
    """The numbers, one in a line."""
    spans = [] if scores.spans is None else [f"F1 of spans  {scores.spans:.2%}"]
    return [
        f"accuracy     {scores.accuracy:.2%}",
        f"mean F1      {scores.macro:.2%}",
        *spans,
        f"loss         {scores.loss:.4f} nats",
        f"             {scores.tested:,} {scores.unit} ({scores.part})",
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
