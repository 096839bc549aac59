"""report.html: what a run did and what came of it, in one file that asks nothing of the network."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image
from torch import Tensor

from vitrail.data import Pictures
from vitrail.files import read_json, whole
from vitrail.report.charts import Line, calibration_chart, confusion_chart, line_chart
from vitrail.train.log import read_metrics
from vitrail.train.measure import Scores

MISTAKES = 24
SQUARES = 30  # classes beyond which the confusion matrix is a list of its largest cells
PIXELS = 96  # of a shown picture, at least


@dataclass(frozen=True)
class Mistake:
    """A picture with the wrong answer, and how sure it was."""

    picture: str
    file: str
    label: str
    answer: str
    confidence: float


def write_report(run: Path, test: Pictures, scores: Scores, logits: Tensor) -> Path:
    """Write report.html beside the model, from what the run has written and the answers to its test."""
    about, begun, data = (read_json(run / name) for name in ("config.json", "recipe.json", "data.json"))
    metrics = read_metrics(run / "metrics.jsonl")
    per_epoch = max(1, about["result"]["steps"] // about["result"]["epochs"])
    losses = [(line["step"] / per_epoch, line["loss"]) for line in metrics if "wait" in line]
    tests = [(float(line["epoch"]), line["loss"]) for line in metrics if "accuracy" in line]
    accuracy = [(float(line["epoch"]), line["accuracy"]) for line in metrics if "accuracy" in line]
    rates = [(line["step"] / per_epoch, line["lr"]) for line in metrics if "wait" in line]
    few = len(test.names) <= SQUARES
    return write_page(
        run / "report.html",
        "report.html",
        run=run.name,
        about=about,
        begun=begun,
        data=data,
        scores=scores,
        result=about["result"],
        recipe=_rows(begun["recipe"], ("augment", "optim", "train") if losses else ()),
        trained=bool(losses),
        loss=line_chart([Line("training loss", losses, "first"), Line("test loss", tests, "second")], "epoch"),
        accuracy=line_chart([Line("test accuracy", accuracy, "second")], "epoch", percent=True),
        rate=line_chart([Line("learning rate", rates, "first")], "epoch"),
        confusion=confusion_chart(scores.confusion, test.names) if few else None,
        pairs=_pairs(scores.confusion, test.names),
        calibration=calibration_chart(scores.bins),
        mistakes=mistakes(test, logits),
    )


def mistakes(test: Pictures, logits: Tensor, most: int = MISTAKES) -> list[Mistake]:
    """The wrong answers that were most sure."""
    confidence, answer = logits.double().softmax(1).max(1)
    wrong = (answer != test.labels).nonzero()[:, 0]
    order = wrong[confidence[wrong].argsort(descending=True, stable=True)][:most]
    return [
        Mistake(
            picture(test.store[test.rows[place]]),
            test.files[place],
            test.names[int(test.labels[place])],
            test.names[int(answer[place])] if int(answer[place]) < len(test.names) else "?",
            float(confidence[place]),
        )
        for place in order.tolist()
    ]


def as_seen(pixels: Tensor) -> Any:
    """(c H W) -> (H W) or (H W 3), as pictures are drawn."""
    return pixels[0].numpy() if len(pixels) == 1 else pixels[:3].permute(1, 2, 0).contiguous().numpy()


def picture(pixels: Tensor) -> str:
    """Bytes (c H W) as the address of an embedded PNG, small ones enlarged by whole numbers."""
    image = Image.fromarray(as_seen(pixels))
    times = max(1, -(-PIXELS // max(image.size)))
    image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    buffer = BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"


def _pairs(confusion: Sequence[Sequence[int]], names: Sequence[str], most: int = 12) -> list[dict[str, Any]]:
    """The classes most often taken for another."""
    table = torch.tensor(confusion)
    table.fill_diagonal_(0)
    counts, places = table.flatten().sort(descending=True, stable=True)
    return [
        {"label": names[place // len(names)], "answer": names[place % len(names)], "count": count}
        for count, place in zip(counts[:most].tolist(), places[:most].tolist(), strict=True)
        if count
    ]


def _rows(recipe: dict[str, Any], more: tuple[str, ...]) -> list[tuple[str, Any]]:
    start = ("weights",) if recipe.get("weights", {}).get("path") else ()
    sections = ("data", *start, "model", *more)
    return [(f"{section}.{field}", value) for section in sections for field, value in recipe[section].items()]


def write_page(path: Path, template: str, **fields: Any) -> Path:
    """Fill a template of pages/, every name in it escaped, and write it whole."""
    environment = Environment(
        loader=PackageLoader("vitrail.report", "pages"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["share"] = lambda value: f"{value:.2%}"
    environment.filters["number"] = lambda value: f"{value:,}"
    page = environment.get_template(template).render(**fields)
    with whole(path) as aside:
        aside.write_text(page, encoding="utf-8", errors="backslashreplace")
    return path
