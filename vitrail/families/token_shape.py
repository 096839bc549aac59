"""The shape of a model of one sequence of tokens. Without torch, as all shapes."""

from typing import Any

from pydantic import NonNegativeInt, PositiveInt, model_validator

from vitrail.errors import InputError
from vitrail.families.catalogue import Cost
from vitrail.families.parts import FREE, blocks, norm, priced
from vitrail.families.shapes import TransformerShape

SHOWN = 256  # tokens of the example that a model's cost is counted on, at most


class TokenShape(TransformerShape):
    """A Transformer over one sequence of tokens."""

    tokens: PositiveInt = 32_000  # of the vocabulary
    length: PositiveInt = 256  # tokens of a sequence at most
    embedding: PositiveInt | None = None  # width of the table of tokens, which a map makes the model's (ALBERT)
    embed_norm: bool = False  # a norm after the embedding
    norm_last: bool  # a norm after the last block; there with order='pre' unless given
    scaled: bool = False  # embeddings are multiplied by sqrt(width)
    tied: bool = True  # the embedding is the output's map too
    pad: NonNegativeInt | None = None  # the token that stands for nothing, if there is one

    @model_validator(mode="before")
    @classmethod
    def _norm_last(cls, fields: dict[str, Any]) -> dict[str, Any]:
        order = fields.get("order", cls.model_fields["order"].default)
        return {"norm_last": order == "pre", **fields}

    @model_validator(mode="after")
    def _of_known_positions(self) -> "TokenShape":
        from vitrail.core import positions  # noqa: PLC0415

        positions[self.position]
        if self.position in ("learned2d", "sincos2d", "relative"):
            raise InputError(
                f"position={self.position!r} is for the patches of pictures; choose 'learned' or 'rotary'."
            )
        if self.pad is not None and self.pad >= self.tokens:
            raise InputError(f"pad={self.pad} is not a token of a vocabulary of {self.tokens}; give a smaller number.")
        return self

    @property
    def shown(self) -> int:
        """Tokens of an example of the model's own size."""
        return min(self.length, SHOWN)

    def cost(self) -> Cost | None:
        """Of one example."""
        if not priced(self):
            return None
        numbers = self.width * self.tokens + (self.width * self.length if self.position == "learned" else 0)
        norms = norm(self.width), norm(self.width)
        around = [one for one, there in zip(norms, (self.embed_norm, self.norm_last), strict=True) if there]
        return sum([Cost(numbers, 0), blocks(self, self.shown), *around, *self.answer_cost()], FREE)

    def answer_cost(self) -> list[Cost]:
        """Of what comes after the blocks."""
        return []

    def parameters(self) -> int:
        cost = self.cost()
        return 0 if cost is None else cost.parameters

    def answering(self) -> int:
        """Of one example: its logits, and what a block has."""
        hidden = self.hidden if isinstance(self.hidden, int) else max(self.hidden)
        return 8 * self.length * (2 * hidden + 4 * self.width + self.tokens)
