"""Sentences that a model is measured on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from vitrail.data import Aside
from vitrail.data.batches import padded
from vitrail.data.pairs import Pairs, set_aside
from vitrail.data.vocabulary import MASK, PAD
from vitrail.distributed import ALONE, World
from vitrail.families import Model
from vitrail.families.seq2seq.config import Seq2SeqConfig
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.tasks.paired import compared, wilson
from vitrail.tasks.task import Changed, Comparison, EvaluationSet, Measurement
from vitrail.tasks.translate.examples import TokenPairs
from vitrail.tasks.translate.scores import paired_bleu, score, sentence_scores
from vitrail.tasks.translate.translator import Decoding, Translator, Vocabularies
from vitrail.weights import Weights

SIZE = 4_096  # tokens of targets that are looked at together


@dataclass(eq=False)
class TestPairs(EvaluationSet):
    """Sentences with their translations."""

    __test__ = False  # no tests for pytest to collect

    pairs: Pairs
    words: Vocabularies
    longest: int
    part: str = "test"
    aside: Sequence[Aside] = ()
    seen: int = 0
    how: Decoding | None = None  # None: the quickest way that the model has
    full: bool = False  # with intervals, and by length
    exact: bool = False  # whether a model is judged by how many are right as a whole, not by BLEU

    def __post_init__(self) -> None:
        lengths = [len(one) for one in self.words.source.encode(self.pairs.sources)]
        long = [line for line, length in zip(self.pairs.lines, lengths, strict=True) if length > self.longest]
        if long:
            why = f"longer than {self.longest} tokens: translated by nothing"
            self.aside = [*self.aside, set_aside(self.pairs.name, long, why)]

    def __len__(self) -> int:
        return len(self.pairs)

    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        if not isinstance(model, Seq2Seq):
            raise TypeError(f"a {type(model).__name__} translates nothing")
        model.eval()
        how = (self.how or _quick(model.config)).checked(model.config)
        hypotheses, loss = self._said(model, how, world), self._loss(model, world)
        method = _described(how, model.config)
        scores = score(hypotheses, self.pairs.targets, part=self.part, method=method, loss=loss, full=self.full)
        values = {"bleu": scores.bleu.value, "exact": scores.exact, "loss": loss}
        summary = {"part": self.part, "bleu": scores.bleu.value, "exact": scores.exact, "tested": scores.tested}
        return Measurement(values, {**summary, "method": method}, scores, hypotheses)

    def seen_by(self, weights: Weights) -> "TestPairs":  # noqa: ARG002
        return replace(self, full=True)

    def interval(self, measurement: Measurement) -> tuple[float, float] | None:
        if self.exact:
            return wilson(round(measurement.scores.exact * len(self)), len(self))
        low, high = measurement.scores.bleu.low, measurement.scores.bleu.high
        return None if low is None or high is None else (low, high)

    def compare(self, before: Measurement, after: Measurement) -> Comparison:
        sources, targets, first, second = self.pairs.sources, self.pairs.targets, before.outputs, after.outputs
        rows = [row for row in range(len(self)) if first[row] != second[row]]
        changed = [Changed(sources[row], targets[row], first[row], second[row]) for row in rows]
        if self.exact:
            then, now = (torch.tensor([*map(str.__eq__, one, targets)]) for one in (first, second))
            return compared(then, now, changed)
        wanted = [targets[row] for row in rows]
        moved = zip(*(sentence_scores([one[row] for row in rows], wanted) for one in (first, second)), strict=True)
        apart = [now - then for then, now in moved]
        return Comparison(
            p_value=paired_bleu(first, second, targets),
            test="paired bootstrap of BLEU, by sacrebleu",
            gained=sum(one > 0 for one in apart),
            lost=sum(one < 0 for one in apart),
            changed=changed,
            words=("better", "worse"),
        )

    def asking(self, model: Any, count: int) -> Callable[[], Any]:
        """Of sentences that are translated, of all lengths; of one, of the middle one."""
        translator = Translator(model, self.words, self.longest)
        order = sorted(range(len(self)), key=lambda row: len(self.pairs.sources[row]))
        rows = [order[round((number + 0.5) * len(order) / count - 0.5)] for number in range(count)]
        how = (self.how or _quick(model.config)).checked(model.config)
        return lambda: list(translator.translations([self.pairs.sources[row] for row in rows], how))

    def _said(self, model: Seq2Seq, how: Decoding, world: World) -> list[str]:
        """The translations of all sentences; each process makes a part of them."""
        translator = Translator(model, self.words, self.longest)
        mine = range(world.rank, len(self), world.size)
        some = [one.text for one in translator.translations([self.pairs.sources[row] for row in mine], how)]
        if world.size == 1:
            return some
        parts = world.every(some)
        whole = [""] * len(self)
        for rank, texts in enumerate(parts):
            whole[rank :: world.size] = texts
        return whole

    @torch.no_grad()
    def _loss(self, model: Seq2Seq, world: World) -> float:
        """Nats a token: of each after those before it; of a parallel model, of each with all of them masked."""
        sources, targets = self.words.source.encode(self.pairs.sources), self.words.target.encode(self.pairs.targets)
        fit = [
            row
            for row, both in enumerate(zip(sources, targets, strict=True))
            if max(map(len, both)) <= self.longest and len(both[1]) > 1
        ]
        if not fit:
            return float("nan")
        examples = TokenPairs([sources[row] for row in fit], [targets[row] for row in fit])
        order = sorted(range(len(fit)), key=lambda row: examples.lengths[row].sum())
        total, count, rows = 0.0, 0, 64
        for number, first in enumerate(range(0, len(order), rows)):
            if number % world.size == world.rank:
                some = order[first : first + rows]
                loss, tokens = _nats(
                    model, [examples.sources[row] for row in some], [examples.targets[row] for row in some]
                )
                total, count = total + loss, count + tokens
        total, whole = world.sums(total, float(count))
        return total / whole


def _nats(model: Seq2Seq, sources: list[list[int]], targets: list[list[int]]) -> tuple[float, int]:
    c = model.config
    asked = padded([one[:-1] for one in targets] if c.parallel else targets, PAD)
    begun = torch.full((len(asked), 1), c.begin)
    given = torch.where(asked != PAD, MASK, PAD) if c.parallel else torch.cat([begun, asked[:, :-1]], dim=1)
    device = next(model.parameters()).device
    logits = model((padded(sources, PAD).to(device), given.to(device))).float()
    there = asked != PAD
    loss = F.cross_entropy(logits[there.to(device)], asked[there].to(device), reduction="sum")
    return float(loss), int(there.sum())


def _quick(config: Seq2SeqConfig) -> Decoding:
    """How a model is asked while it is trained."""
    return Decoding(candidates=3) if config.lengths else Decoding(method=None if config.parallel else "greedy")


def _described(how: Decoding, config: Seq2SeqConfig) -> str:
    if how.method == "beam":
        return f"beam {how.beam}, length penalty {how.penalty:g}"
    if config.parallel and not config.lengths:
        return "1 pass, cut after the end"
    if how.method == "parallel":
        return f"{how.passes} pass{'es' * (how.passes > 1)}, {how.candidates} lengths"
    return str(how.method)
