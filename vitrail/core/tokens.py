"""From the numbers of a vocabulary to vectors, and back."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.core.dropout import Dropout
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.core.positions import Position
from vitrail.errors import InputError


class FactoredTable(nn.Module):
    """E = U D: a narrow row for each token, and one map to the model's width (ALBERT, Lan et al. 2020)."""

    def __init__(self, tokens: int, width: int, inner: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(tokens, inner)
        self.up = linear(inner, width, bias=False)
        nn.init.normal_(self.up.weight, std=inner**-0.5)  # so that a product is as large as a row

    def forward(self, tokens: Tensor) -> Tensor:
        """(b n) -> (b n w)."""
        return self.up(self.rows(tokens))

    @property
    def weight(self) -> Tensor:
        """U D, (tokens w), as a table that is whole."""
        return self.rows.weight @ self.up.weight.T


class TokenEmbedding(nn.Module):
    """E_t * sqrt(w) + position, dropped out (Vaswani et al. 2017, sections 3.4 and 3.5), normalised if there is a norm.

    The scale is left out where a model has none. With segments a learned vector is added that says which of several
    texts a token is of (Devlin et al. 2019).
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        position: Position,
        *,
        scaled: bool = True,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        segments: int = 0,
        inner: int | None = None,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, width) if inner is None else FactoredTable(tokens, width, inner)
        rows = self.table if isinstance(self.table, nn.Embedding) else self.table.rows
        nn.init.normal_(rows.weight, std=width**-0.5 if scaled else 0.02)
        self.scale = width**0.5 if scaled else 1.0
        self.position = position
        self.segments = nn.Embedding(segments, width) if segments else None
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=0.02)
        self.norm = norm
        self.dropout = Dropout(dropout)

    def share(self, other: "TokenEmbedding") -> None:
        """Take another's table for its own."""
        if isinstance(self.table, FactoredTable) and isinstance(other.table, FactoredTable):
            self.table.rows.weight, self.table.up.weight = other.table.rows.weight, other.table.up.weight
        else:
            self.table.weight = other.table.weight  # type: ignore[misc]

    def forward(self, tokens: Tensor, offset: int = 0, segments: Tensor | None = None) -> Tensor:
        """(b n) -> (b n w), with the positions from ``offset`` on; all of the first segment, unless it is said."""
        x = self.table(tokens)
        x = self.position.sequence(x if self.scale == 1 else x * self.scale, offset)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        x = x if self.norm is None else self.norm(x)
        return self.dropout(x) if self.training else x


class TiedLogits(nn.Module):
    """x E^T + b of a table that is a product."""

    def __init__(self, table: FactoredTable, *, bias: bool = False) -> None:
        super().__init__()
        self.rows, self.up = table.rows.weight, table.up.weight
        self.bias = nn.Parameter(torch.zeros(len(self.rows))) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(... w) -> (... tokens), through the narrow rows."""
        return F.linear(x @ self.up, self.rows, self.bias)

    @property
    def weight(self) -> Tensor:
        """E, as a map would have it that is whole."""
        return self.rows @ self.up.T


def unembedding(
    width: int, tokens: int, tied: TokenEmbedding | None = None, *, bias: bool = False
) -> nn.Linear | TiedLogits:
    """The map x E^T + b: what comes next, with the embedding's own table where it is tied (Press and Wolf 2017)."""
    if tied is not None and isinstance(tied.table, FactoredTable):
        return TiedLogits(tied.table, bias=bias)
    logits = linear(width, tokens, bias=bias)
    if tied is not None:
        logits.weight = tied.table.weight
    return logits


def present(tokens: Tensor, pad: int | None) -> Mask:
    """Which tokens (b n) are there; nothing is hidden where all are, as far as that is soon seen."""
    if pad is None:
        return NONE
    there = tokens != pad
    return NONE if _cheap(there) and bool(there.all()) else Mask(present=there)


def check_tokens(tokens: Any, what: str, count: int) -> None:
    """Refuse what are not the numbers of tokens (b n), of a vocabulary of so many."""
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.long or tokens.ndim != 2:  # noqa: PLR2004
        kind = f"{tokens.dtype} of shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens)
        raise InputError(f"{what} are {kind}; they should be the numbers of tokens, torch.long (b n).")
    if not tokens.numel():
        raise InputError(f"{what} have shape {tuple(tokens.shape)}, which is empty; give at least one token.")
    if _cheap(tokens) and tokens.shape[1] > 1 and not 0 <= int(tokens.min()) <= int(tokens.max()) < count:
        raise InputError(f"{what} hold the token {int(tokens.max())}, and the vocabulary has {count}.")


def _cheap(tensor: Tensor) -> bool:
    """Whether its numbers can be looked at with no waiting."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and type(tensor) is Tensor
