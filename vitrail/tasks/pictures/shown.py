"""What is said of labelled pictures: before a training, and in its report."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitrail.data import Aside, Found, Parts, Pictures
from vitrail.progress import NAMED, first_of
from vitrail.tasks.pictures.examples import TrainingPictures
from vitrail.tasks.pictures.scores import Scores
from vitrail.tasks.sections import Bin, Card, Confusion, Figure, Gallery, Reliability, Section, Table

MISTAKES = 24
SQUARES = 30  # classes beyond which the confusion matrix is a list of its largest cells
PAIRS = 12
BEHIND, CELL = 150, 12  # pictures behind the cells of a confusion, in all and of each
PREVIEWED, TIMES = 16, 3  # pictures, and how often each
DOUBT = 0.9  # how sure it has to be that a picture is of another class
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
        lines.append(("balance", f"{unequal}; data.balance=1 has all classes count alike"))
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
    if near := parts.near:
        lines.append(("warning", f"{len(near)} of the {parts.held} pictures look almost like one to train on:"))
        lines += _some([f"{parts.test.files[one]} and {parts.train.files[other]}" for one, other, _ in near])
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


def sections(parts: Parts, scores: Scores, logits: Tensor, predicted: Tensor | None = None) -> list[Section]:
    """What the answers were, and which pictures were not used; also those to train on whose class is doubtful, where it
    was predicted from the others.
    """
    return [
        *_leaks(parts.leaks, parts.held),
        *_near(parts),
        _confusion(scores, parts.test, logits),
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
        *([] if predicted is None else _doubtful(parts.train, predicted)),
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


def _near(parts: Parts) -> list[Section]:
    """Pictures that look almost the same as one that was trained on."""
    test, train = parts.test, parts.train
    pairs = parts.near
    figures = [
        figure
        for one, other, alike in pairs[:PAIRS]
        for figure in (
            _figure(test, one, parts.held, f"{test.names[int(test.labels[one])]}, {alike:.1%} alike"),
            _figure(train, other, "to train on", train.names[int(train.labels[other])]),
        )
    ]
    note = f"These {parts.held} pictures look almost like one that was trained on: copies make the accuracy too high"
    more = f"; the first {PAIRS} are shown." if len(pairs) > PAIRS else "."
    title = f"Almost in both parts: {len(pairs):,}"
    return [Gallery(title=title, note=note + more, wide=True, figures=figures)] if pairs else []


def _doubtful(train: Pictures, predicted: Tensor) -> list[Section]:
    """Pictures to train on that the others predict to be of another class."""
    figures = [figure for figure, confidence in _wrong(train, predicted, MISTAKES) if confidence >= DOUBT]
    note = "A head that was fitted to the other pictures is sure that these are of another class: look at their labels."
    return [Gallery(title="Perhaps mislabelled, to train on", note=note, wide=True, figures=figures)] if figures else []


def _confusion(scores: Scores, test: Pictures, logits: Tensor) -> Section:
    names = test.names
    if len(names) <= SQUARES:
        note = "Down: the class of the picture. Across: the answer. Choose a cell of mistakes to see them."
        behind: dict[tuple[int, int], list[Figure]] = {}
        for number, answer, confidence in _mistaken(test, logits)[:BEHIND]:
            cell = behind.setdefault((int(test.labels[number]), answer), [])
            if len(cell) < CELL:
                cell.append(_figure(test, number, names[answer], f"{confidence:.0%}"))
        return Confusion(title="Confusion", note=note, counts=scores.confusion, names=names, figures=behind)
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


def preview(examples: TrainingPictures) -> list[Section]:
    """Some pictures as they are decoded, and as the model is given them, changed at random each time."""
    pictures, names = examples.pictures, examples.pictures.names
    rows = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))[:PREVIEWED].sort().values
    plain = [_figure(pictures, row, names[int(pictures.labels[row])], "") for row in rows.tolist()]
    sections: list[Section] = [Gallery(title="As they are decoded", wide=True, figures=plain)]
    for time in range(TIMES):
        torch.manual_seed(time)
        images, labels, _ = examples.batch(rows.numpy(), torch.device("cpu"))
        seen = (255 * examples.normalise.undone(images).clamp(0, 1)).round().byte()
        figures = [
            Figure(pixels=one, answer=_classes(label, names), caption="", source=figure.source)
            for one, label, figure in zip(seen, labels, plain, strict=True)
        ]
        sections.append(Gallery(title=f"As the model is given them, time {time + 1}", wide=True, figures=figures))
    return sections


def _classes(label: Tensor, names: Sequence[str]) -> str:
    """A class, or those that a mixture is of."""
    if not label.ndim:
        return names[int(label)]
    parts = [(float(label[number]), names[number]) for number in label.nonzero()[:, 0].tolist()]
    return " + ".join(f"{part:.0%} {name}" if part < 1 else name for part, name in sorted(parts, reverse=True))


def mistakes(test: Pictures, logits: Tensor, most: int = MISTAKES) -> list[Figure]:
    """The wrong answers that were most confident."""
    return [figure for figure, _ in _wrong(test, logits, most)]


def _wrong(pictures: Pictures, logits: Tensor, most: int) -> list[tuple[Figure, float]]:
    """The same, and how confident they were."""
    names = pictures.names
    return [
        (
            _figure(
                pictures, number, names[answer], f"{100 * confidence:.0f} %, is {names[int(pictures.labels[number])]}"
            ),
            confidence,
        )
        for number, answer, confidence in _mistaken(pictures, logits)[:most]
    ]


def _mistaken(pictures: Pictures, logits: Tensor) -> list[tuple[int, int, float]]:
    """Pictures with a wrong answer, the answer, and how confident it was, the most confident first."""
    confidence, answer = logits.double().softmax(1).max(1)
    wrong = (answer != pictures.labels).nonzero()[:, 0]
    order = wrong[confidence[wrong].argsort(descending=True, stable=True)].tolist()
    return [(number, int(answer[number]), float(confidence[number])) for number in order]


def _figure(pictures: Pictures, number: int, answer: str, caption: str) -> Figure:
    pixels, source = pictures.store[pictures.rows[number]], pictures.files[number]
    return Figure(pixels=pixels, answer=answer, caption=caption, source=source)


def _aside(aside: Sequence[Aside]) -> Section:
    rows = [(one.what, one.why) for one in aside[:500]]
    return Table(
        title=f"Set aside: {len(aside):,}", wide=True, columns=("what", "why"), rows=rows, empty="Every file was used."
    )
