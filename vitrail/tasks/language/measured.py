"""Text that a model is measured on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from vitrail.data import Aside
from vitrail.data.batches import BITS, UNASKED
from vitrail.data.vocabulary import Vocabulary
from vitrail.distributed import ALONE, World
from vitrail.families import Model, at_once
from vitrail.families.bert.model import BERT, Told
from vitrail.families.gpt.model import GPT
from vitrail.tasks.language.examples import HiddenWindows, Tokens
from vitrail.tasks.paired import between, bootstrap
from vitrail.tasks.task import Comparison, EvaluationSet, Measurement

TOGETHER = 64  # windows at most


@dataclass(frozen=True)
class LanguageScores:
    """All numbers of a measurement: in nats, of each token and of each character."""

    part: str
    tokens: int  # that were asked for
    characters: int
    loss: float  # nats a token
    perplexity: float  # of a token
    accuracy: float  # how often the likeliest token was right
    nats: float | None = None  # a character, where each token is asked for
    bits: float | None = None
    follows: float | None = None  # how often it was told whether texts follow


@dataclass(eq=False)
class TestText(EvaluationSet):
    """A text, each token of which is asked for once, after those before it in its window.

    With a stride that is shorter than a window only what comes last in each is asked for, so that all have more to go
    by.
    """

    __test__ = False  # no tests for pytest to collect

    documents: list[str]
    words: Vocabulary
    tokens: Tokens
    length: int
    part: str = "validation"
    aside: Sequence[Aside] = ()
    seen: int = 0
    stride: int = 0  # tokens from one window to the next; 0: as many as it has
    most: int = 0  # windows at most, evenly spaced; 0: all

    def __len__(self) -> int:
        return len(self._starts())

    def _starts(self) -> list[int]:
        step = self.stride or self.length
        starts = list(range(0, max(1, len(self.tokens) - 1), step))
        if self.most and len(starts) > self.most:
            starts = [starts[number] for number in np.linspace(0, len(starts) - 1, self.most).astype(int)]
        return starts

    @torch.no_grad()
    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        if not isinstance(model, GPT):
            raise TypeError(f"a {type(model).__name__} continues no text")
        model.eval()
        total, right, count = 0.0, 0, 0
        each: list[list[float]] = []  # of this process's windows, nats and tokens
        device = next(model.parameters()).device
        for some, new in self._groups(at_once(model.config, TOGETHER), world):
            window = some.to(device)
            inputs, targets = window[:, :-1], window[:, 1:].clone()
            targets[:, : targets.shape[1] - new] = UNASKED
            asked = targets != UNASKED
            logits = model(inputs.clamp(min=0))[asked].float()
            nats_each = F.cross_entropy(logits, targets[asked], reduction="none")
            rows = asked.nonzero()[:, 0]
            sums = torch.zeros(len(window), device=device).index_add_(0, rows, nats_each)
            each += torch.stack([sums, asked.sum(1).float()], 1).tolist()
            total += float(nats_each.sum())
            right += int((logits.argmax(-1) == targets[asked]).sum())
            count += int(asked.sum())
        total, right_all, whole = world.sums(total, float(right), float(count))
        loss, characters = total / max(1.0, whole), sum(map(len, self.documents))
        nats = loss * len(self.tokens) / max(1, characters)
        scores = LanguageScores(
            part=self.part,
            tokens=int(whole),
            characters=characters,
            loss=loss,
            perplexity=float(np.exp(min(loss, 700))),
            accuracy=right_all / max(1.0, whole),
            nats=nats,
            bits=nats * BITS,
        )
        values = {"nats": nats, "loss": loss, "accuracy": scores.accuracy}
        return Measurement(
            values, {"part": self.part, "nats": nats, "loss": loss, "tested": scores.tokens}, scores, each
        )

    def interval(self, measurement: Measurement) -> tuple[float, float]:
        nats, tokens = (sum(one) for one in zip(*measurement.outputs, strict=True))
        scale = measurement.values["nats"] / (nats / max(1.0, tokens))  # from a token to a character
        low, high = between(measurement.outputs)
        return scale * low, scale * high

    def compare(self, before: Measurement, after: Measurement) -> Comparison:
        pairs = [(one[0], other[0]) for one, other in zip(before.outputs, after.outputs, strict=True)]
        return Comparison(
            p_value=bootstrap(before.outputs, after.outputs),
            test="paired bootstrap over windows of text",
            gained=sum(now < then for then, now in pairs),
            lost=sum(now > then for then, now in pairs),
            changed=[],
            words=("better", "worse"),
        )

    def _groups(self, together: int, world: World) -> Iterator[tuple[torch.Tensor, int]]:
        """Windows of one length, and how many of their last tokens are asked for; of this process."""
        step = self.stride or self.length
        groups: dict[tuple[int, int], list[int]] = {}
        for start in self._starts()[world.rank :: world.size]:
            first = max(0, start + step - self.length)  # as much before it as there is room for
            last = min(len(self.tokens), start + step + 1)
            groups.setdefault((last - first, last - start - 1), []).append(first)
        for (size, new), firsts in groups.items():
            for begin in range(0, len(firsts), together):
                places = np.array(firsts[begin : begin + together])[:, None] + np.arange(size)
                yield torch.from_numpy(self.tokens[places].astype(np.int64)), new


@dataclass(eq=False)
class HiddenText(EvaluationSet):
    """Windows in which some tokens are hidden, the same ones each time."""

    documents: list[str]
    words: Vocabulary
    windows: HiddenWindows
    part: str = "validation"
    aside: Sequence[Aside] = ()
    seen: int = 0
    most: int = 0

    def __len__(self) -> int:
        return min(len(self.windows), self.most or len(self.windows))

    @torch.no_grad()
    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        if not isinstance(model, BERT):
            raise TypeError(f"a {type(model).__name__} fills no text")
        model.eval()
        sums = np.zeros(5)  # nats, right, asked; follows right, pairs
        rows = np.linspace(0, len(self.windows) - 1, len(self)).astype(int) * self.windows.length
        together = at_once(model.config, TOGETHER)
        with torch.random.fork_rng(devices=[]):
            for number, first in enumerate(range(0, len(rows), together)):
                torch.manual_seed(number)
                if number % world.size == world.rank:
                    sums += self._some(model, rows[first : first + together])
        nats, right, asked, follows, pairs = world.sums(*sums.tolist())
        loss = nats / max(1.0, asked)
        scores = LanguageScores(
            part=self.part,
            tokens=int(asked),
            characters=sum(map(len, self.documents)),
            loss=loss,
            perplexity=float(np.exp(min(loss, 700))),
            accuracy=right / max(1.0, asked),
            follows=follows / pairs if pairs else None,
        )
        values = {"loss": loss, "accuracy": scores.accuracy}
        values |= {} if scores.follows is None else {"follows": scores.follows}
        return Measurement(values, {"part": self.part, **values, "tested": scores.tokens}, scores)

    def _some(self, model: BERT, rows: Any) -> Any:
        inputs, targets, _ = self.windows.batch(rows, next(model.parameters()).device)
        targets, follows = targets if isinstance(targets, tuple) else (targets, None)
        asked = targets != UNASKED
        answers = model(inputs, rows=asked)
        words, pairs = (answers.words, answers.follows) if isinstance(answers, Told) else (answers, None)
        pairs = None if follows is None else pairs
        right_pairs = 0 if pairs is None else int((pairs.argmax(-1) == follows).sum())
        if not asked.any():
            return np.array([0.0, 0, 0, right_pairs, len(rows)])
        nats = float(F.cross_entropy(words.float(), targets[asked], reduction="sum"))
        right = int((words.argmax(-1) == targets[asked]).sum())
        return np.array([nats, right, int(asked.sum()), right_pairs, 0 if pairs is None else len(rows)])


def as_tokens(documents: Sequence[str], words: Vocabulary) -> Tokens:
    """Documents one after another, as tokens, with an END after each but the last."""
    end = words.role("end")
    between = [] if end is None else [np.array([end], dtype=np.int32)]
    parts = [part for document in documents for part in (words.running(document), *between)]
    return np.concatenate(parts[: len(parts) - len(between)])
