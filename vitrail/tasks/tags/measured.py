"""Words and texts with labels that a model is measured on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from vitrail.data import Aside
from vitrail.data.tagged import Tagged
from vitrail.distributed import ALONE, World
from vitrail.families import Model
from vitrail.families.bert.model import BERT
from vitrail.tasks.paired import between, bootstrap
from vitrail.tasks.tags.examples import Cutter
from vitrail.tasks.tags.scores import score
from vitrail.tasks.tags.tagger import label_logits
from vitrail.tasks.task import Changed, Comparison, EvaluationSet, Measurement


@dataclass(eq=False)
class TestTags(EvaluationSet):
    """Sentences with the labels of their words, or texts with theirs."""

    __test__ = False  # no tests for pytest to collect

    tagged: Tagged
    cutter: Cutter
    labels: tuple[str, ...]
    unit: str = "words"
    part: str = "validation"
    aside: Sequence[Aside] = ()
    seen: int = 0

    def __len__(self) -> int:
        return len(self.tagged)

    @property
    def truth(self) -> list[list[int]]:
        """The labels by their numbers; -1 of one that was never learned."""
        numbers = {name: number for number, name in enumerate(self.labels)}
        return [[numbers.get(label, -1) for label in some] for some in self.tagged.labels]

    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        if not isinstance(model, BERT):
            raise TypeError(f"a {type(model).__name__} gives no labels")
        model.eval()
        mine = range(world.rank, len(self), world.size)
        sentences, every = [self.tagged.sentences[row] for row in mine], self.truth
        texts = self.tagged.whole
        pieces = self.cutter.texts([one[0] for one in sentences]) if texts else self.cutter.pieces(sentences)
        logits = label_logits(model, pieces, texts, [len(one) for one in sentences])
        predicted = [one.argmax(-1).tolist() for one in logits]
        nats, count = 0.0, 0
        for row, one in zip(mine, logits, strict=True):
            labels = torch.tensor(every[row])
            known = labels >= 0
            nats += float(F.cross_entropy(one[known], labels[known], reduction="sum")) if known.any() else 0.0
            count += int(known.sum())
        nats, whole = world.sums(nats, float(count))
        predicted = _all(predicted, len(self), world)
        loss = nats / max(1.0, whole)
        scores = score(predicted, every, self.labels, part=self.part, unit=self.unit, loss=loss)
        values = {"accuracy": scores.accuracy, "f1": scores.macro, "loss": loss}
        values |= {} if scores.spans is None else {"spans": scores.spans}
        return Measurement(values, {"part": self.part, **values, "tested": scores.tested}, scores, predicted)

    def interval(self, measurement: Measurement) -> tuple[float, float]:
        pairs = zip(measurement.outputs, self.truth, strict=True)
        return between([(sum(map(int.__eq__, one, other)), len(other)) for one, other in pairs])

    def compare(self, before: Measurement, after: Measurement) -> Comparison:
        first, second, truth = before.outputs, after.outputs, self.truth
        rights = [
            [[one == other for one, other in zip(*both, strict=True)] for both in zip(predicted, truth, strict=True)]
            for predicted in (first, second)
        ]
        counts = [[(sum(some), len(some)) for some in one] for one in rights]
        pairs = [pair for some in zip(*rights, strict=True) for pair in zip(*some, strict=True)]
        return Comparison(
            p_value=bootstrap(counts[0], counts[1]),
            test="paired bootstrap over sentences",
            gained=sum(now and not then for then, now in pairs),
            lost=sum(then and not now for then, now in pairs),
            changed=list(self._changed(first, second)),
        )

    def _changed(self, first: list[list[int]], second: list[list[int]]) -> Iterator[Changed]:
        for words, labels, then, now in zip(self.tagged.sentences, self.tagged.labels, first, second, strict=True):
            for word, label, one, other in zip(words, labels, then, now, strict=True):
                if one != other:
                    yield Changed(word, label, self.labels[one], self.labels[other])


def _all(mine: list[list[int]], count: int, world: World) -> list[list[int]]:
    """What all processes said, in order."""
    if world.size == 1:
        return mine
    whole: list[list[int]] = [[] for _ in range(count)]
    for rank, some in enumerate(world.every(mine)):
        whole[rank :: world.size] = some
    return whole
