"""What models of one sequence of tokens have in common: all but the mask, and the answer."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from vitrail.core import Block, Cache, Mask, TokenEmbedding, check_tokens, norms, positions, present
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.families.blocks import interchangeable, last_norm, stack
from vitrail.families.model import Adapted, Model, State, family_of
from vitrail.families.token_shape import TokenShape

COMPUTED = 1_000_000  # positions at most that no tensor holds
FREE = ("dropout", "drop_path", "layer_drop", "pad")  # fields of a configuration that no tensor depends on


class TokenModel(Model):
    """answer(blocks(embed(tokens), mask)): tokens (b n) to a residual stream (b n w), and what is read off it."""

    config: TokenShape
    segments = 0  # how many texts may be in one sequence, if they are told apart
    ANSWERS: ClassVar[tuple[str, ...]] = ()  # fields that say what is answered, and may be changed
    HEADS: ClassVar[tuple[str, ...]] = ()  # what the names of the parts of an answer begin with
    KEPT: ClassVar[tuple[str, ...]] = ()  # of those, what is kept also where the answer is another

    def __init__(self, config: TokenShape) -> None:
        super().__init__()
        self.config = config
        self.embed = TokenEmbedding(
            config.tokens,
            config.width,
            positions[config.position]((1, config.length), config.width, config.most_heads),
            scaled=config.scaled,
            norm=norms[config.norm](config.width, config.eps) if config.embed_norm else None,
            dropout=config.dropout,
            segments=self.segments,
            inner=config.embedding,
        )
        self.encoder = stack(config)
        self.norm = last_norm(config, there=config.norm_last)

    def mask(self, tokens: Tensor) -> Mask:
        """What each token may see: all that are there."""
        return present(tokens, self.config.pad)

    def forward(self, inputs: Any, *, shortest: bool = False, rows: Tensor | None = None) -> Any:  # noqa: ARG002
        """Tokens (b n) -> answers; with rows, True where one is asked for (b n): those alone, (m ...)."""
        stream = self.stream(inputs)
        return self.answer(stream if rows is None else stream[rows])

    def stream(self, inputs: Any, cache: Cache | None = None) -> Tensor:
        """Tokens (b n), or with a cache those that follow what it has seen -> (b n w)."""
        tokens, segments = inputs if isinstance(inputs, tuple) else (inputs, None)
        check_tokens(tokens, "inputs", self.config.tokens)
        offset = 0 if cache is None else cache.length
        if offset + tokens.shape[1] > self.config.length:
            raise InputError(
                f"{offset + tokens.shape[1]:,} tokens are more than the {self.config.length:,} that the model takes."
            )
        return self.encoder(self.embed(tokens, offset, segments), self.mask(tokens), cache=cache)

    @property
    def blocks(self) -> list[Block]:
        return list(self.encoder)

    def example(self) -> Tensor:
        token = 0 if self.config.pad is None else (self.config.pad + 1) % self.config.tokens
        return torch.full((1, self.config.shown), token, device=next(self.parameters()).device)

    def summary(self) -> str:
        c = self.config
        return f"{c.tokens:,} tokens, {c.length:,} at a time, width {c.width}, {c.depth} layers, {c.heads} heads"

    @classmethod
    def adapt(
        cls, config: Any, state: State, normalise: Normalise | None = None, *, head: str = "keep", **changes: Any
    ) -> Adapted:
        """With other dropout, or taking fewer tokens at a time; and with another answer, where a family has several."""
        given = {name: value for name, value in changes.items() if value is not None}
        wanted = type(config)(**config.model_dump() | given)
        others = [name for name, value in wanted.model_dump().items() if value != getattr(config, name)]
        free = (*FREE, "length", *cls.ANSWERS, *(["kernel"] if interchangeable(wanted.kernel, config.kernel) else []))
        fixed = [name for name in others if name not in free]
        if fixed or (head != "keep" and not cls.ANSWERS):
            raise InputError(f"weights of a {family_of(config)} have their own {(fixed or ['head'])[0]}; leave it out.")
        state, notes = dict(state), list[str]()
        if wanted.length != config.length and config.position == "learned":
            if wanted.length > config.length:
                raise InputError(
                    f"weights that know {config.length:,} positions take no {wanted.length:,} tokens; choose "
                    f"{config.length:,} or fewer."
                )
            name = "embed.position.embedding"
            state[name] = state[name][: wanted.length].clone()
            notes.append(f"the first {wanted.length:,} of {config.length:,} positions are kept")
        return cls.with_answer(config, wanted, state, normalise, notes, afresh=head != "keep")

    @classmethod
    def with_answer(
        cls, config: Any, wanted: Any, state: State, normalise: Normalise | None, notes: list[str], *, afresh: bool
    ) -> Adapted:
        """The weights with the parts that another answer needs, those of them that are new being drawn."""
        if not afresh and all(getattr(config, name) == getattr(wanted, name) for name in cls.ANSWERS):
            return Adapted(wanted, state, normalise, notes)
        fresh = cls(wanted)
        new = {name: one for name, one in fresh.state_dict().items() if name.startswith(cls.HEADS)}
        alike = {name for name in new if name in state and state[name].shape == new[name].shape}
        same = {name for name in alike if not afresh or name.startswith(cls.KEPT)}
        kept = {name: one for name, one in state.items() if not name.startswith(cls.HEADS) or name in same}
        left = sorted({name.split(".")[0] for name in state if name not in kept})
        drawn = sorted({name.split(".")[0] for name in new if name not in same and not name.endswith("logits.weight")})
        notes = [
            *notes,
            *([f"left out: {', '.join(left)}"] if left else []),
            *([f"drawn afresh: {', '.join(drawn)}"] if drawn else []),
        ]
        state = {**kept, **{name: one for name, one in new.items() if name not in same}}
        return Adapted(wanted, state, normalise, notes, fresh=True)

    @classmethod
    def check(cls, config: Any) -> None:
        if config.position != "learned" and config.length > COMPUTED:
            raise InputError(f"sequences of {config.length:,} tokens are beyond all bounds")
