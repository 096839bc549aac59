"""What libraries call the parts of a ViT and how they lay them out, and the moves that follow from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vitrail.core import ResNetStem, stems
from vitrail.families.vit.config import ViTConfig
from vitrail.weights.moves import Move


@dataclass(frozen=True)
class ResNetNames:
    """What a library calls the parts of a hybrid's ResNet; ``{stage}``, ``{unit}`` and ``{index}`` are numbers."""

    root: str
    root_norm: str
    conv: str
    norm: str
    shortcut: str
    shortcut_norm: str
    first: int = 0  # what stages and units are counted from


@dataclass(frozen=True)
class Names:
    """What a library calls the parts of a ViT; what it does not have is empty. ``{}`` is a block's number."""

    patch: str
    class_token: str
    position: str
    norm1: str
    attention: tuple[str, ...]  # of queries, keys and values: together, or each
    out: str
    norm2: str
    inner: str
    outer: str
    norm: str
    logits: str
    prelogits: str = ""
    registers: str = ""
    distillation_token: str = ""
    distilled: str = ""
    norm_last: str = ""
    scale1: str = ""
    scale2: str = ""
    resnet: ResNetNames | None = None


@dataclass(frozen=True)
class Layout:
    """How a framework lays out its parameters, and what it calls them."""

    weight: str = "weight"  # of a linear map
    gain: str = "weight"  # of a norm
    bias: str = "bias"
    dot: str = "."
    linear: str = ""
    token: str = "w -> 1 1 w"
    position: str = "n w -> 1 n w"
    patch: str = "w (c p q) -> w c p q"
    attention: str = ""
    attention_bias: str = ""
    out: str = ""
    convolution: str = ""


TORCH = Layout()
FLAX = Layout(
    weight="kernel",
    gain="scale",
    dot="/",
    linear="o i -> i o",
    patch="w (c p q) -> p q c w",
    attention="(h d) w -> w h d",
    attention_bias="(h d) -> h d",
    out="w (h d) -> h d w",
    convolution="o i p q -> p q i o",
)


@dataclass(frozen=True)
class ViTMoves:
    """All moves between our ViT of some configuration and a library's."""

    names: Names
    layout: Layout
    config: ViTConfig

    def __iter__(self) -> Iterator[Move]:
        names, config = self.names, self.config
        yield from self._embedding()
        for number in range(config.depth):
            yield from self._block(f"encoder.{number}", number)
        if config.normed:
            yield from self._norm("norm", names.norm_last if config.norm_last else names.norm)
        if config.prelogits:
            yield from self._linear("head.prelogits", names.prelogits)
        if config.classes:
            yield from self._linear("head.logits", names.logits)
            if config.pool == "distilled":
                yield from self._linear("head.distilled", names.distilled)

    def _embedding(self) -> Iterator[Move]:
        names, layout, config = self.names, self.layout, self.config
        if config.prefix:
            yield Move.one("embed.class_token", names.class_token, layout.token)
        if config.pool == "distilled":
            yield Move.one("embed.distillation_token", names.distillation_token, layout.token)
        if config.registers:
            yield Move.one("embed.registers", names.registers, layout.position)
        if config.position == "learned":
            yield Move.one("embed.position.embedding", names.position, layout.position)
        if config.stem in ("patch", "patch-norm"):
            sizes = {"c": config.channels, "p": config.patch, "q": config.patch}
            yield from self._linear("embed.stem.projection", names.patch, layout.patch, **sizes)
        elif names.resnet is not None and issubclass(stem := stems[config.stem], ResNetStem):
            yield from self._resnet(names.resnet, stem.units)
            yield from self._linear("embed.stem.projection", names.patch, layout.convolution)

    def _resnet(self, names: ResNetNames, units: Sequence[int]) -> Iterator[Move]:
        yield self._convolution("embed.stem.root.0", names.root)
        yield from self._norm("embed.stem.root.1", names.root_norm)
        for stage, count in enumerate(units):
            for unit in range(count):
                ours, at = (
                    f"embed.stem.stages.{stage}.{unit}",
                    {"stage": stage + names.first, "unit": unit + names.first},
                )
                for index in (1, 2, 3):
                    yield self._convolution(f"{ours}.f.{3 * index - 3}", names.conv.format(index=index, **at))
                    yield from self._norm(f"{ours}.f.{3 * index - 2}", names.norm.format(index=index, **at))
                if unit == 0:
                    yield self._convolution(f"{ours}.shortcut.0", names.shortcut.format(**at))
                    yield from self._norm(f"{ours}.shortcut.1", names.shortcut_norm.format(**at))

    def _convolution(self, ours: str, theirs: str) -> Move:
        layout = self.layout
        return Move.one(f"{ours}.weight", f"{theirs}{layout.dot}{layout.weight}", layout.convolution)

    def _block(self, ours: str, number: int) -> Iterator[Move]:
        names, layout, config = self.names, self.layout, self.config
        heads, _ = config.layers[number]
        kinds = [("weight", layout.weight, layout.attention), ("bias", layout.bias, layout.attention_bias)]
        for kind, theirs, pattern in kinds if config.bias else kinds[:1]:
            together = 3 if len(names.attention) == 1 else 1
            yield Move(
                ((f"{ours}.attention.f.query.{kind}", 1), (f"{ours}.attention.f.key_value.{kind}", 2)),
                tuple((f"{name.format(number)}{layout.dot}{theirs}", together) for name in names.attention),
                pattern,
                {"h": heads} if pattern else {},
            )
        sizes = {"h": heads} if layout.out else {}
        yield from self._linear(f"{ours}.attention.f.out", names.out.format(number), layout.out or None, **sizes)
        yield from self._norm(f"{ours}.attention.norm", names.norm1.format(number))
        yield from self._norm(f"{ours}.feed_forward.norm", names.norm2.format(number))
        yield from self._linear(f"{ours}.feed_forward.f.inner", names.inner.format(number))
        yield from self._linear(f"{ours}.feed_forward.f.out", names.outer.format(number))
        if config.layer_scale is not None:
            yield Move.one(f"{ours}.attention.scale", names.scale1.format(number))
            yield Move.one(f"{ours}.feed_forward.scale", names.scale2.format(number))

    def _linear(self, ours: str, theirs: str, pattern: str | None = None, **sizes: int) -> Iterator[Move]:
        layout = self.layout
        pattern = layout.linear if pattern is None else pattern
        yield Move.one(f"{ours}.weight", f"{theirs}{layout.dot}{layout.weight}", pattern, **sizes)
        yield Move.one(f"{ours}.bias", f"{theirs}{layout.dot}{layout.bias}")

    def _norm(self, ours: str, theirs: str) -> Iterator[Move]:
        layout = self.layout
        yield Move.one(f"{ours}.weight", f"{theirs}{layout.dot}{layout.gain}")
        yield Move.one(f"{ours}.bias", f"{theirs}{layout.dot}{layout.bias}")
