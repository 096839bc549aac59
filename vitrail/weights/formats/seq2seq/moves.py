"""What libraries call the parts of an encoder-decoder Transformer, and the moves between theirs and ours."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.families.seq2seq.config import Seq2SeqConfig
from vitrail.weights.files import Tensors
from vitrail.weights.moves import Move, both, moved


@dataclass(frozen=True)
class SideNames:
    """The parts of an encoder, or of a decoder; {} is the number of a block."""

    attention: tuple[str, ...]  # of queries, keys and values: three maps, or one for all
    out: str
    norm1: str
    inner: str
    outer: str
    norm2: str
    cross: tuple[str, ...] = ()
    cross_out: str = ""
    cross_norm: str = ""
    norm: str = ""  # after the last block
    embed: str = ""
    position: str = ""
    embed_norm: str = ""
    separator: str = "."  # between the name of a map and weight or bias, where queries, keys and values are one


@dataclass(frozen=True)
class Names:
    """Those of both, and of the answer."""

    encoder: SideNames
    decoder: SideNames
    logits: str
    logits_bias: str


@dataclass(frozen=True)
class Moves:
    """All moves between our model of some configuration and a library's."""

    names: Names
    config: Seq2SeqConfig

    def __iter__(self) -> Iterator[Move]:
        config = self.config
        yield Move.one("source.table.weight", self.names.encoder.embed)
        if not config.shared:
            yield Move.one("target.table.weight", self.names.decoder.embed)
        sides = (("source", "encoder", self.names.encoder), ("target", "decoder", self.names.decoder))
        for embedding, stack, names in sides:
            if config.position == "learned":
                yield Move.one(f"{embedding}.position.embedding", names.position)
            if config.embed_norm:
                yield from both(f"{embedding}.norm", names.embed_norm)
            for number in range(config.depth if stack == "encoder" else config.decoder):
                yield from self._block(f"{stack}.{number}", names, number)
            if config.norm_last:
                yield from both("encoder_norm" if stack == "encoder" else "norm", names.norm)
        if not config.tied:
            yield Move.one("logits.weight", self.names.logits)
        if config.output_bias:
            yield Move.one("logits.bias", self.names.logits_bias)

    def _block(self, ours: str, names: SideNames, number: int) -> Iterator[Move]:
        yield from self._maps(f"{ours}.attention", names.attention, names.separator, number)
        yield from both(f"{ours}.attention.f.out", names.out.format(number))
        yield from both(f"{ours}.attention.norm", names.norm1.format(number))
        if names.cross:
            yield from self._maps(f"{ours}.cross", names.cross, names.separator, number)
            yield from both(f"{ours}.cross.f.out", names.cross_out.format(number))
            yield from both(f"{ours}.cross.norm", names.cross_norm.format(number))
        yield from both(f"{ours}.feed_forward.f.inner", names.inner.format(number))
        yield from both(f"{ours}.feed_forward.f.out", names.outer.format(number))
        yield from both(f"{ours}.feed_forward.norm", names.norm2.format(number))

    def _maps(self, ours: str, maps: tuple[str, ...], separator: str, number: int) -> Iterator[Move]:
        """Of queries, keys and values."""
        together = 3 if len(maps) == 1 else 1
        for kind in ("weight", "bias") if self.config.bias else ("weight",):
            yield Move(
                ((f"{ours}.f.query.{kind}", 1), (f"{ours}.f.key_value.{kind}", 2)),
                tuple((f"{name.format(number)}{separator}{kind}", together) for name in maps),
            )

    def read(self, path: str, form: str, tensors: Tensors, *, strict: bool) -> tuple[dict[str, Tensor], list[str]]:
        """Our tensors, and the names of theirs that have no place among them."""
        return moved(path, form, self, tensors, strict=strict)

    def write(self, state: dict[str, Any]) -> dict[str, Tensor]:
        """Their tensors."""
        tensors: dict[str, Tensor] = {}
        for move in self:
            tensors |= move.write(state)
        return tensors
