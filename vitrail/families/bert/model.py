"""BERT: every word in the light of all others (Devlin et al. 2019)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitrail.core import TokenEmbedding, activations, norms, unembedding
from vitrail.core.dropout import Dropout
from vitrail.core.linear import linear
from vitrail.families.bert.config import SEGMENTS, BERTConfig
from vitrail.families.model import families
from vitrail.families.token_model import TokenModel


class Told(NamedTuple):
    """What is said in pre-training: the logits of the words asked for (m tokens), and of whether texts follow (b 2)."""

    words: Tensor
    follows: Tensor


class WordsHead(nn.Module):
    """LN(act(x W + b)) E^T + c: which word stands here."""

    def __init__(self, config: BERTConfig, embed: TokenEmbedding | None) -> None:
        super().__init__()
        self.map = linear(config.width, config.width)
        self.activation = activations[config.activation]()
        self.norm = norms[config.norm](config.width, config.eps)
        self.logits = unembedding(config.width, config.tokens, embed, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(... w) -> (... tokens)."""
        return self.logits(self.norm(self.activation(self.map(x))))


@families.add("bert")
class BERT(TokenModel):
    """blocks(embed(x)), of which words, tags or one label are read; texts in pairs are told apart by their segments."""

    Config = BERTConfig
    task = "language"
    config: BERTConfig
    segments = SEGMENTS
    ANSWERS = ("says", "classes", "pooler", "pairs")
    HEADS = ("words.", "classes.", "pooler.", "pairs.")
    KEPT = ("pooler.",)

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        self.pooler = linear(config.width, config.width) if config.pooler else None
        self.pairs = linear(config.width, 2) if config.pairs else None
        tied = self.embed if config.tied else None
        self.words = WordsHead(config, tied) if config.says == "words" else None
        self.classes = linear(config.width, config.classes) if config.classes else None
        self.dropout = Dropout(config.dropout)

    def forward(self, inputs: Any, *, shortest: bool = False, rows: Tensor | None = None) -> Any:
        """As of any; with rows, a model that was told pairs says also whether they follow."""
        if rows is None or self.pairs is None:
            return super().forward(inputs, shortest=shortest, rows=rows)
        stream = self.norm(self.stream(inputs))
        return Told(self._answer(stream[rows]), self.pairs(self.pooled(stream)))

    def answer(self, stream: Tensor) -> Tensor:
        """(b n w) -> the logits of words or tags (b n ...), of labels (b classes), or the normed stream itself."""
        return self._answer(self.norm(stream))

    def _answer(self, x: Tensor) -> Tensor:
        if self.words is not None:
            return self.words(x)
        if self.classes is None:
            return x
        x = self.pooled(x) if self.config.says == "label" else x
        return self.classes(self.dropout(x) if self.training else x)

    def pooled(self, x: Tensor) -> Tensor:
        """Normed tokens (b n w) -> the first of them for all, (b w)."""
        first = x[:, 0]
        return first if self.pooler is None else torch.tanh(self.pooler(first))

    @classmethod
    def task_of(cls, config: BERTConfig) -> str:
        return "tags" if config.classes else "language"

    def summary(self) -> str:
        c = self.config
        answers = {"tags": f", {c.classes} tags", "label": f", {c.classes} labels"}.get(c.says, "")
        return super().summary() + answers
