"""The encoder-decoder Transformer (Vaswani et al. 2017), and its parallel form (Ghazvininejad et al. 2019)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from vitrail.core import (
    CAUSAL,
    NONE,
    Block,
    Cache,
    Mask,
    TokenEmbedding,
    check_tokens,
    norms,
    positions,
    present,
    unembedding,
)
from vitrail.core.flat import FlatPasses, FlatSteps, flat
from vitrail.core.linear import linear
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.families.blocks import last_norm, stack
from vitrail.families.model import Adapted, Model, State, families
from vitrail.families.seq2seq.config import SENTENCE, Seq2SeqConfig

Pair: TypeAlias = tuple[Tensor, Tensor]  # tokens of sources (b s) and of targets (b t), from what they begin with on
COMPUTED = 1_000_000  # positions at most that no tensor holds


class Said(NamedTuple):
    """What a parallel model says in training: the logits of the tokens asked for (n target), and of lengths (b l)."""

    logits: Tensor
    lengths: Tensor


@dataclass(frozen=True, eq=False)
class Context:
    """What a decoder looks at: encoded sources (b s w), and which of their tokens are there."""

    memory: Tensor
    mask: Mask

    def __getitem__(self, rows: Tensor) -> "Context":
        there = self.mask.present
        return Context(self.memory[rows], NONE if there is None else Mask(present=there[rows]))


@families.add("seq2seq")
class Seq2Seq(Model):
    """y = (LN(decoder(embed(y_<t), LN(encoder(embed(x)))))) E^T: the logits of each next token of a target.

    A parallel model's decoder sees all of a target, in which the tokens that it is to say are masked; and it predicts
    how long a target is, from the mean of the encoded source.
    """

    Config = Seq2SeqConfig
    task = "translate"
    config: Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        self.source, self.target = (_embedding(config, tokens) for tokens in (config.source, config.target))
        if config.shared:
            self.target.share(self.source)
        self.encoder, self.decoder = stack(config), stack(config.decoding, "decoder", cross=True)
        self.encoder_norm, self.norm = (last_norm(config, there=config.norm_last) for _ in range(2))
        tied = self.target if config.tied else None
        self.logits = unembedding(config.width, config.target, tied, bias=config.output_bias)
        self.lengths = linear(config.width, 2 * config.lengths + 1) if config.lengths else None

    def forward(self, inputs: Pair, *, shortest: bool = False, rows: Tensor | None = None) -> Any:  # noqa: ARG002
        """Sources (b s), and targets (b t) -> the logits of each next token (b t target).

        With rows, True where a token is asked for (b t): the logits of those alone, (n target); a parallel model's have
        those of the lengths beside them, as ``Said``.
        """
        if rows is None:
            return self.answer(self.stream(inputs))
        source, target = inputs
        context = self.encode(source)
        logits = self.answer(self.decode(target, context)[rows])
        return logits if self.lengths is None else Said(logits, self.length_logits(context))

    def stream(self, inputs: Pair) -> Tensor:
        """Sources (b s), and targets (b t) -> the decoder's residual stream (b t w)."""
        source, target = inputs
        return self.decode(target, self.encode(source))

    def answer(self, stream: Tensor) -> Tensor:
        """(b t w) -> logits (b t target)."""
        return self.logits(self.norm(stream))

    def encode(self, source: Tensor) -> Context:
        """Sources (b s), padded at their end -> what the decoder looks at."""
        check_tokens(source, "sources", self.config.source)
        mask = present(source, self.config.pad)
        return Context(self.encoder_norm(self.encoder(self.source(source), mask)), mask)

    def decode(self, target: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        """Targets (b t), or with a cache the steps (b t) that follow those that it has seen -> (b t w)."""
        check_tokens(target, "targets", self.config.target)
        offset = 0 if cache is None else cache.length
        x = self.target(target, offset)
        mask = present(target, self.config.pad) if self.config.parallel else CAUSAL
        return self.decoder(x, mask, context=context.memory, context_mask=context.mask, cache=cache)

    def length_logits(self, context: Context) -> Tensor:
        """How much longer a target is than its source, from -lengths to lengths (b, 2 lengths + 1)."""
        if self.lengths is None:
            raise InputError("the model predicts no lengths; build it with lengths=..., or say how long targets are.")
        there = context.mask.present
        if there is None:
            return self.lengths(context.memory.mean(1))
        weights = there / there.sum(1, keepdim=True)
        return self.lengths((context.memory * weights[:, :, None]).sum(1))

    def passes(self, context: Context, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """For decoding targets (b t) again and again, each with one of the contexts."""
        if not flat(self.decoder):
            several = context[rows]
            return lambda target: self.decode(target, several)
        again = FlatPasses(self.decoder, context.memory, context.mask)
        again.select(rows)
        return lambda target: again(self.target(target), present(target, self.config.pad))

    def steps(self, source: Tensor) -> "CachedSteps":
        """For decoding token by token."""
        return CachedSteps(self, source)

    def spelled(self, source: Tensor, target: Tensor) -> Tensor:
        """What ``forward`` gives, (b t target), one token of the targets after another."""
        steps = self.steps(source)
        return torch.stack([steps(tokens) for tokens in target.T], 1)

    @property
    def blocks(self) -> list[Block]:
        return [*self.encoder, *self.decoder]

    def example(self) -> Pair:
        tokens = torch.full((1, SENTENCE), self.config.end, device=next(self.parameters()).device)
        return tokens, tokens

    def summary(self) -> str:
        c = self.config
        words = f"{c.source:,} tokens for both" if c.shared else f"{c.source:,} and {c.target:,} tokens"
        kind = "parallel, " if c.parallel else ""
        return f"{kind}{words}, width {c.width}, {c.depth} + {c.decoder} layers, {c.heads} heads"

    @classmethod
    def adapt(
        cls,
        config: Seq2SeqConfig,
        state: State,
        normalise: Normalise | None = None,
        *,
        head: str = "keep",
        **changes: Any,
    ) -> Adapted:
        """As a parallel model or not, which predicts lengths or not, with other dropout: the other weights stay."""
        wanted = Seq2SeqConfig(**config.model_dump() | {name: one for name, one in changes.items() if one is not None})
        free = ("parallel", "lengths", "room", "dropout", "drop_path", "pad", "begin", "end", "mask", "length")
        other = [name for name, value in wanted.model_dump().items() if value != getattr(config, name)]
        fixed = [name for name in other if name not in free or (name == "length" and config.position == "learned")]
        if fixed or head != "keep":
            name = (fixed or ["head"])[0]
            raise InputError(f"weights of a seq2seq have their own {name}; leave it out.")
        if wanted.lengths == config.lengths:
            return Adapted(wanted, state, normalise)
        state = {name: tensor for name, tensor in state.items() if not name.startswith("lengths.")}
        fresh = linear(wanted.width, 2 * wanted.lengths + 1).state_dict() if wanted.lengths else {}
        state |= {f"lengths.{name}": tensor for name, tensor in fresh.items()}
        return Adapted(wanted, state, normalise, ["lengths are predicted afresh"] if fresh else [])

    @classmethod
    def check(cls, config: Seq2SeqConfig) -> None:
        if config.length > COMPUTED:
            raise InputError(f"sequences of {config.length:,} tokens are beyond all bounds")


class CachedSteps:
    """Decoding token by token: the logits of what follows, of all rows."""

    def __init__(self, model: Seq2Seq, source: Tensor) -> None:
        self.model, self.context, self.cache = model, model.encode(source), Cache()
        self.device = source.device
        easy = flat(model.decoder)
        self.flat = FlatSteps(model.decoder, self.context.memory, self.context.mask) if easy else None

    def __call__(self, tokens: Tensor) -> Tensor:
        """The last token of each row (b) -> the logits of the next (b target)."""
        if self.flat is None:
            return self.model.answer(self.model.decode(tokens[:, None], self.context, self.cache))[:, 0]
        return self.model.answer(self.flat(self.model.target(tokens[:, None], self.flat.length)[:, 0]))

    def select(self, rows: Tensor, *, sources: bool = True) -> None:
        """Go on with these rows; sources move with them, unless each place keeps its own."""
        if self.flat is not None:
            self.flat.reorder(rows, contexts=sources)
            return
        self.cache.select(rows, contexts=sources)
        if sources:
            self.context = self.context[rows]


def _embedding(config: Seq2SeqConfig, tokens: int) -> TokenEmbedding:
    position = positions[config.position]((1, config.length), config.width, config.most_heads)
    norm = norms[config.norm](config.width, config.eps) if config.embed_norm else None
    return TokenEmbedding(
        tokens,
        config.width,
        position,
        scaled=config.scaled,
        norm=norm,
        dropout=config.dropout,
        inner=config.embedding,
    )
