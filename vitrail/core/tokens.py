"""From the numbers of a vocabulary to vectors, and back."""

from torch import Tensor, nn

from vitrail.core.dropout import Dropout
from vitrail.core.linear import linear
from vitrail.core.positions import Position


class TokenEmbedding(nn.Module):
    """E_t * sqrt(w) + position, dropped out (Vaswani et al. 2017, sections 3.4 and 3.5), normalised if there is a norm.

    The scale is left out where a model has none.
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
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, width)
        nn.init.normal_(self.table.weight, std=width**-0.5 if scaled else 0.02)
        self.scale = width**0.5 if scaled else 1.0
        self.position = position
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """(b n) -> (b n w), with the positions from ``offset`` on."""
        x = self.table(tokens)
        x = self.position.sequence(x if self.scale == 1 else x * self.scale, offset)
        x = x if self.norm is None else self.norm(x)
        return self.dropout(x) if self.training else x


def unembedding(width: int, tokens: int, tied: TokenEmbedding | None = None, *, bias: bool = False) -> nn.Linear:
    """The map x E^T + b: what comes next, with the embedding's own table where it is tied (Press and Wolf 2017)."""
    logits = linear(width, tokens, bias=bias)
    if tied is not None:
        logits.weight = tied.table.weight
    return logits
