"""Running text as it is learned from: windows of tokens; what comes next in them, or what is hidden in them."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Batch, Examples, Rows
from vitrail.data.batches import UNASKED
from vitrail.data.vocabulary import ROLES, Vocabulary
from vitrail.tasks.language.recipe import Hidden

Tokens: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]


@dataclass(eq=False)
class Windows(Examples):
    """A text as tokens, of which windows of some length are looked at; a row is where one begins.

    In each epoch they stand side by side, from a place that is drawn, so that what they are cut at is ever another.
    Inputs are the tokens of a window (b n), and targets those that come after each.
    """

    tokens: Tokens
    length: int

    @property
    def reach(self) -> int:
        """Tokens of the text that a window takes."""
        return self.length + 1

    @property
    def asked(self) -> int:
        """Tokens of a window that the loss is an average over."""
        return self.reach - 1

    def __len__(self) -> int:
        return max(1, (len(self.tokens) - self.reach) // self.length)

    def count(self, rows: Rows) -> int:
        return len(rows) * self.asked

    def updates(self, size: int, random: np.random.Generator, least: int = 1) -> list[Rows]:
        """Windows side by side, from a place that is drawn, in an order that is drawn."""
        room = len(self.tokens) - self.reach - (len(self) - 1) * self.length
        first = int(random.integers(max(1, min(room + 1, self.length))))
        return [first + self.length * rows for rows in super().updates(size, random, least)]

    def windows(self, rows: Rows) -> Tensor:
        """(b reach)."""
        places = np.asarray(rows)[:, None] + np.arange(self.reach)
        return torch.from_numpy(self.tokens[places].astype(np.int64))

    def batch(self, rows: Rows, device: torch.device) -> tuple[Any, Tensor, int]:
        window = self.windows(rows).to(device)
        return window[:, :-1].contiguous(), window[:, 1:], self.count(rows)


@dataclass(frozen=True, eq=False)
class Marks:
    """The tokens that a BERT's text is put between, and hidden with; and all that stand for words."""

    begin: int
    end: int
    mask: int
    words: Tensor

    @classmethod
    def of(cls, words: Vocabulary) -> "Marks":
        """Those of a vocabulary."""
        special = {words.role(name) for name in ROLES}
        rest = torch.tensor([token for token in range(len(words)) if token not in special])
        return cls(words.needed("begin"), words.needed("end"), words.needed("mask"), rest)


@dataclass(eq=False)
class HiddenWindows(Windows):
    """Windows in which some tokens are hidden, as a BERT is given them: BEGIN text END, or BEGIN one END other END.

    Inputs are tokens and segments (b n); targets are the hidden tokens (b n), and with pairs beside them whether the
    other follows the one (b): 0, as HF has it, or 1, of a text that is drawn.
    """

    hidden: Hidden
    marks: Marks

    @property
    def reach(self) -> int:
        return self.length - (3 if self.hidden.next else 2)

    @property
    def asked(self) -> int:
        return max(1, round(self.hidden.rate * self.reach)) if self.hidden.words else 1

    def batch(self, rows: Rows, device: torch.device) -> tuple[Any, Any, int]:
        window, follows = self.windows(rows), None
        first = self.reach // 2
        if self.hidden.next:
            follows = torch.randint(2, (len(rows),))
            others = torch.randint(max(1, len(self.tokens) - self.reach), (len(rows),))
            drawn = self.windows(others.numpy())[:, first:]
            window = torch.cat([window[:, :first], torch.where(follows[:, None] == 1, drawn, window[:, first:])], 1)
        given, asked = self._hide(window) if self.hidden.words else (window, torch.full_like(window, UNASKED))
        tokens, segments = self._between(given, first)
        targets, _ = self._between(asked, first, UNASKED)
        inputs = tokens.to(device), segments.to(device)
        whole = targets.to(device) if follows is None else (targets.to(device), follows.to(device))
        return inputs, whole, self.count(rows)

    def _hide(self, window: Tensor) -> tuple[Tensor, Tensor]:
        """80 of 100 that are asked for masked, 10 another word, 10 as they are (Devlin et al. 2019, 3.1)."""
        chosen = torch.rand(window.shape).argsort(1).argsort(1) < self.asked
        how, marks = torch.rand(window.shape), self.marks
        others = marks.words[torch.randint(len(marks.words), window.shape)]
        given = window.masked_fill(chosen & (how < self.hidden.masked), marks.mask)
        replaced = chosen & (how >= self.hidden.masked) & (how < self.hidden.masked + self.hidden.other)
        return torch.where(replaced, others, given), window.masked_fill(~chosen, UNASKED)

    def _between(self, window: Tensor, first: int, mark: int | None = None) -> tuple[Tensor, Tensor]:
        """With the tokens that stand around texts, or what stands for them; and which text each is of."""
        begin, end = (self.marks.begin, self.marks.end) if mark is None else (mark, mark)
        around = [torch.full((len(window), 1), one) for one in (begin, end)]
        if not self.hidden.next:
            whole = torch.cat([around[0], window, around[1]], 1)
            return whole, torch.zeros_like(whole)
        whole = torch.cat([around[0], window[:, :first], around[1], window[:, first:], around[1]], 1)
        segments = (torch.arange(whole.shape[1]) >= first + 2).long()
        return whole, segments.expand_as(whole)


def continue_text(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """-sum_t log p(x_t+1 | x_1 .. x_t) / count."""
    logits = model(batch.inputs)
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), label_smoothing=smoothing)


def fill_text(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """-sum over what is hidden log p(x_t | the rest) / count, and the loss of whether texts follow."""
    targets, follows = batch.targets if isinstance(batch.targets, tuple) else (batch.targets, None)
    asked = targets != UNASKED
    if follows is None:
        return F.cross_entropy(model(batch.inputs, rows=asked), targets[asked], label_smoothing=smoothing)
    answers = model(batch.inputs, rows=asked)
    loss = F.cross_entropy(answers.follows, follows)
    if asked.any():
        loss = loss + F.cross_entropy(answers.words, targets[asked], label_smoothing=smoothing)
    return loss
