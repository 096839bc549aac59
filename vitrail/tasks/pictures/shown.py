"""What is said of labelled pictures: before a training, and in its report."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitrail.data import Aside, Found, Parts, Pictures
from vitrail.progress import NAMED, first_of
from vitrail.tasks.pictures.scores import Scores
from vitrail.tasks.sections import Bin, Card, Confusion, Figure, Gallery, Reliability, Section, Table

MISTAKES = 24
SQUARES = 30  # classes beyond which the confusion matrix is a list of its largest cells
PAIRS = 12
PHOTO, FEW = 64, 30_000  # pixels from which pictures are photos, and how many of them are few


def plan(found: Found, *, scratch: bool) -> list[tuple[str, str]]:
    """What was found, what of it is not used, and what would help."""
    by_size = sorted(zip(found.train, found.names, strict=True), key=lambda pair: (-pair[0], pair[1]))
    largest = ", ".join(f"{name} {count:,}" for count, name in by_size[:NAMED]) + ", ..." * (len(by_size) > NAMED)
    sizes = [f"{height} x {width}" for height, width in found.sizes]
    size = sizes[0] if len(set(sizes)) == 1 else f"{sizes[0]} to {sizes[2]}, the middle one {sizes[1]}"
    measured = f"{sum(found.held):,} to {'validate' if found.part == 'validation' else 'test'} on"
    both = f"{sum(found.train):,} pictures to train on, {measured}"
    lines = [("data", f"{found.layout}: {both}, of {size} pixels"), ("classes", f"{len(found.names)}: {largest}")]
    if by_size[0][0] > 3 * by_size[-1][0] > 0:
        times = by_size[0][0] / by_size[-1][0]
        unequal = f"{by_size[0][1]!r} has {times:.0f} times the pictures of {by_size[-1][1]!r}"
        lines.append(("balance", f"{unequal}: look at the accuracy of each class"))
    if scratch and min(found.sizes[1]) > PHOTO and sum(found.train) < FEW:
        few = f"{sum(found.train):,} photos teach little from scratch"
        lines.append(("hint", f"{few}; weights that others trained know much already: add --weights FILE"))
    lines += _set_aside(found.aside)
    if found.left:
        lines.append(("left", f"{found.left}, for the end: `vitrail evaluate RUN` measures on it"))
    return lines


def findings(parts: Parts, found: Found) -> list[tuple[str, str]]:
    """What came to light when the pictures were decoded."""
    known = {one.what for one in found.aside}
    lines = _set_aside([one for one in parts.aside if one.what not in known])
    if lines:
        lines.append(("data", f"{len(parts.train):,} pictures to train on, {len(parts.test):,} to measure on are left"))
    if leaks := parts.leaks:
        both = f"{len(leaks)} of the {parts.held} pictures are also trained on, so the accuracy will be too high:"
        lines.append(("warning", both))
        lines += _some([f"{one} is {other}" for one, other in leaks])
    return lines


def _set_aside(aside: Sequence[Aside]) -> list[tuple[str, str]]:
    some = _some([f"{one.what}: {one.why}" for one in aside])
    return [("set aside", f"{len(aside)}, all in data.json:"), *some] if aside else []


def _some(items: Sequence[str]) -> list[tuple[str, str]]:
    return [("", item) for item in first_of(items)]


def cards(scores: Scores) -> list[Card]:
    """The numbers that the report opens with."""
    top = [] if scores.top5 is None else [Card(f"{scores.top5:.2%}", "right among the first five")]
    return [
        Card(
            f"{scores.accuracy:.2%}",
            f"{scores.part} accuracy: {scores.correct:,} of {scores.tested:,}; {between(scores)} with 95 % confidence",
        ),
        *top,
        Card(f"{scores.loss:.3f}", f"{scores.part} loss"),
        Card(f"{scores.calibration:.2%}", "calibration error"),
    ]


def between(scores: Scores) -> str:
    """Where the accuracy on any number of such pictures would be."""
    low, high = scores.interval
    return f"{low:.1%} to {high:.1%}"


def sections(parts: Parts, scores: Scores, logits: Tensor) -> list[Section]:
    """What the answers were, and which pictures were not used."""
    return [
        *_leaks(parts.leaks, parts.held),
        _confusion(scores, parts.test.names),
        class_table(scores),
        Reliability(
            title="Calibration",
            note="On the line, answers are as often right as they are confident. Larger circles hold more pictures.",
            bins=[Bin(one.pictures, one.confidence, one.accuracy) for one in scores.bins],
            unit="pictures",
        ),
        Gallery(
            title="The most confident mistakes",
            wide=True,
            figures=mistakes(parts.test, logits),
            empty="There are none.",
        ),
        _aside(parts.aside),
    ]


def _leaks(leaks: Sequence[tuple[str, str]], held: str) -> list[Section]:
    if not leaks:
        return []
    return [
        Table(
            title=f"In both parts: {len(leaks):,}",
            note=f"These {held} pictures are also trained on, so the accuracy is too high.",
            wide=True,
            warning=True,
            columns=(held, "to train on"),
            rows=leaks[:200],
        )
    ]


def _confusion(scores: Scores, names: Sequence[str]) -> Section:
    if len(names) <= SQUARES:
        note = "Down: the class of the picture. Across: the answer."
        return Confusion(title="Confusion", note=note, counts=scores.confusion, names=names)
    table = torch.tensor(scores.confusion)
    table.fill_diagonal_(0)
    counts, cells = table.flatten().sort(descending=True, stable=True)
    pairs = [
        (names[cell // len(names)], names[cell % len(names)], f"{count:,}")
        for count, cell in zip(counts[:PAIRS].tolist(), cells[:PAIRS].tolist(), strict=True)
        if count
    ]
    note = "The classes most often taken for another."
    return Table(title="Confusion", note=note, columns=("class", "taken for", ">times"), rows=pairs)


def class_table(scores: Scores) -> Table:
    """Each class by itself."""
    rows = [(one.name, f"{one.pictures:,}", _percent(one.precision), _percent(one.recall)) for one in scores.classes]
    return Table(title="Each class", columns=("class", ">pictures", ">precision", ">recall"), rows=rows)


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.2%}"


def lines(scores: Scores) -> list[str]:
    """All classes together."""
    part = "all pictures" if scores.part == "all" else f"{scores.part} pictures"
    return [
        f"accuracy     {scores.accuracy:.2%} ({scores.correct:,} of {scores.tested:,} {part})",
        f"             {between(scores)} with 95 % confidence",
        *([] if scores.top5 is None else [f"top 5        {scores.top5:.2%}"]),
        f"loss         {scores.loss:.4f}",
        f"calibration  {scores.calibration:.2%} (expected error)",
    ]


def mistakes(test: Pictures, logits: Tensor, most: int = MISTAKES) -> list[Figure]:
    """The wrong answers that were most confident."""
    confidence, answer = logits.double().softmax(1).max(1)
    wrong = (answer != test.labels).nonzero()[:, 0]
    order = wrong[confidence[wrong].argsort(descending=True, stable=True)][:most]
    return [
        Figure(
            pixels=test.store[test.rows[number]],
            answer=test.names[int(answer[number])],
            caption=f"{100 * confidence[number]:.0f} %, is {test.names[int(test.labels[number])]}",
            source=test.files[number],
        )
        for number in order.tolist()
    ]


def _aside(aside: Sequence[Aside]) -> Section:
    rows = [(one.what, one.why) for one in aside[:500]]
    return Table(
        title=f"Set aside: {len(aside):,}", wide=True, columns=("what", "why"), rows=rows, empty="Every file was used."
    )
