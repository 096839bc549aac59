"""The shape of an encoder-decoder Transformer."""

from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from vitrail.errors import InputError
from vitrail.families.catalogue import Cost
from vitrail.families.parts import FREE, blocks, linear_map, norm, priced
from vitrail.families.shapes import Depth, TransformerShape

SENTENCE = 32  # tokens of the example that a model's cost is counted on


class Seq2SeqConfig(TransformerShape):
    """The shape of an encoder-decoder Transformer; ``depth`` is of the encoder."""

    stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    source: PositiveInt = 32_000  # tokens of the vocabulary
    target: PositiveInt = 32_000
    decoder: Depth  # layers of the decoder; as many as of the encoder unless given
    length: PositiveInt = 256  # tokens of a sequence at most, where positions are learned
    shared: bool = False  # one embedding for both vocabularies, which are then the same
    tied: bool = True  # the embedding of the targets is the output's too
    scaled: bool = True  # embeddings are multiplied by sqrt(width)
    output_bias: bool = False
    position: str = "sinusoidal"
    embedding: PositiveInt | None = None  # width of the tables of tokens, which maps make the model's (ALBERT)
    embed_norm: bool = False  # a norm after the embedding
    norm_last: bool  # a norm after the last block; there with order='pre' unless given
    activation: str = "relu"
    eps: float = 1e-5
    pad: NonNegativeInt = 0  # the tokens that stand for no word
    begin: NonNegativeInt = 1
    end: NonNegativeInt = 2
    mask: NonNegativeInt = 4  # of a parallel model
    parallel: bool = False  # all tokens of a target at once, each seeing all: conditional masked language model
    room: PositiveFloat = 2.0  # where no length is predicted, for so many tokens for each of a source's
    lengths: NonNegativeInt = 0  # a target may be so much longer or shorter than its source, as is predicted; 0: not

    @model_validator(mode="before")
    @classmethod
    def _as_deep(cls, fields: dict[str, Any]) -> dict[str, Any]:
        given = {"decoder": fields.get("depth"), "norm_last": fields.get("order", "pre") == "pre"}
        return {**given, **fields}

    @model_validator(mode="after")
    def _consistent(self) -> "Seq2SeqConfig":
        from vitrail.core import positions  # noqa: PLC0415

        positions[self.position]
        if not isinstance(self.heads, int) or not isinstance(self.hidden, int):
            raise InputError("heads and hidden of a seq2seq are the same in all layers; give one number each.")
        if self.shared and self.source != self.target:
            raise InputError(
                f"shared=True has one vocabulary, and source={self.source} and target={self.target} are two; "
                f"give the same number, or leave shared out."
            )
        most = min(self.source, self.target)
        ids = {name: getattr(self, name) for name in ("pad", "begin", "end", *["mask"] * self.parallel)}
        for name, token in ids.items():
            if token >= most:
                raise InputError(f"{name}={token} is not a token of a vocabulary of {most}; give a smaller number.")
        if self.lengths and not self.parallel:
            raise InputError("lengths are predicted by a parallel model alone; add parallel=True, or leave them out.")
        return self

    @property
    def decoding(self) -> "Seq2SeqConfig":
        """The shape of the decoder's blocks."""
        return self.model_copy(update={"depth": self.decoder})

    def cost(self) -> Cost | None:
        """Of a sentence of 32 tokens translated to one."""
        if not priced(self):
            return None
        n = SENTENCE
        tables = (1 if self.shared else 2) + (0 if self.tied else 1)
        numbers = self.width * (self.source + (tables - 1) * self.target) + self.output_bias * self.target
        if self.position == "learned":
            numbers += 2 * self.length * self.width
        norms = [norm(self.width)] * 2 * (self.embed_norm + self.norm_last)
        answer = Cost(0, n * self.width * self.target)
        lengths = linear_map(self.width, 2 * self.lengths + 1, 0) if self.lengths else FREE  # in training alone
        both = blocks(self, n) + blocks(self.decoding, n, context=n)
        return sum([Cost(numbers, 0), both, *norms, answer, lengths], FREE)

    def parameters(self) -> int:
        cost = self.cost()
        return 0 if cost is None else cost.parameters

    def answering(self) -> int:
        """Of a sentence of 32 tokens: its logits, and what a block has."""
        hidden = self.hidden if isinstance(self.hidden, int) else max(self.hidden)
        return 8 * SENTENCE * (2 * hidden + 4 * self.width + self.target)
