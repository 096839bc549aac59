"""The shape of a BERT."""

from typing import Any, Literal

from pydantic import NonNegativeInt, model_validator

from vitrail.errors import InputError
from vitrail.families.catalogue import Cost
from vitrail.families.parts import linear_map, norm
from vitrail.families.token_shape import TokenShape

SEGMENTS = 2  # texts of a sequence that are told apart


class BERTConfig(TokenShape):
    """The shape of an encoder, and what is read off it (Devlin et al. 2019)."""

    order: Literal["pre", "post"] = "post"
    embed_norm: bool = True
    eps: float = 1e-12
    length: int = 512
    pad: NonNegativeInt | None = 0
    says: Literal["words", "tags", "label", "nothing"] = "words"  # the masked words, a class a token, one for all
    classes: NonNegativeInt = 0  # of tags, or of labels
    pooler: bool  # tanh(x_1 W + b): the first token for all; there where labels or pairs are told
    pairs: bool = False  # whether the second text follows the first is told too

    @model_validator(mode="before")
    @classmethod
    def _with_pooler(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return {"pooler": fields.get("says") == "label" or bool(fields.get("pairs")), **fields}

    @model_validator(mode="after")
    def _consistent(self) -> "BERTConfig":
        labelled = self.says in ("tags", "label")
        if labelled != bool(self.classes):
            raise InputError(
                f"says={self.says!r} has classes={self.classes}; tags and labels have some, words have none."
            )
        if (self.says == "label" or self.pairs) and not self.pooler:
            raise InputError("labels and pairs are told by the pooler; leave pooler=False out.")
        return self

    def answer_cost(self) -> list[Cost]:
        n, w = self.shown, self.width
        costs = [Cost(SEGMENTS * w, 0)]
        if self.pooler:
            costs.append(linear_map(w, w, int(self.says == "label")))  # of pairs, in training alone
        if self.pairs:
            costs.append(linear_map(w, 2, 0))
        if self.says == "words":
            bias = Cost(self.tokens + (0 if self.tied else w * self.tokens), n * w * self.tokens)
            costs += [linear_map(w, w, n), norm(w), bias]
        elif self.classes:
            costs.append(linear_map(w, self.classes, n if self.says == "tags" else 1))
        return costs
