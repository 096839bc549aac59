"""The Vision Transformer (Dosovitskiy et al. 2021): image patches as the words of a Transformer encoder."""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core import (
    Block,
    ClassMeanPool,
    ClassPool,
    DistilledHead,
    DistilledPool,
    Head,
    ImageEmbedding,
    MeanPool,
    positions,
    stems,
)
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.families.blocks import last_norm, stack
from vitrail.families.model import Adapted, State, families
from vitrail.families.picture_model import PictureModel
from vitrail.families.vit.adapt import adapt
from vitrail.families.vit.config import ViTConfig

COMPUTED = 2**28  # bytes that positions may take which no tensor holds


@families.add("vit")
class ViT(PictureModel):
    """z0 = embed(image); z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'; y = head(pool(LN(z_L))) (ViT, eqs. 1-4)."""

    Config = ViTConfig
    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = ImageEmbedding(
            stems[config.stem](config.patch, config.channels, config.width),
            positions[config.position](config.grid, config.width, config.most_heads, prefix=config.prefix),
            registers=config.registers,
            tokens=config.tokens,
            dropout=config.dropout,
        )
        self.encoder = stack(config, merge=config.merges, prefix=config.prefix + config.registers)
        self.norm = last_norm(config, there=config.normed)
        self.pool, self.head = _answer(config)

    def forward(self, image: Tensor, *, shortest: bool = False, apart: bool = False) -> Tensor:
        """(b c H W) -> logits (b classes).

        The shortest way gives the same to rounding, and sooner: the last block is computed for the class token alone.
        So run training and prediction; the default computes every token, for whoever looks inside. There is nothing to
        leave out with a mean over the patches, nor with batch norm, which looks at all tokens of the batch.

        Apart, what each answering token says, (b a classes): class and distillation token, each with a teacher.
        """
        x = self._pooled(*self._read(image, shortest=shortest))
        if not apart:
            return self.head(x)
        return self.head.apart(x) if isinstance(self.head, DistilledHead) else self.head(x)[:, None]

    def answers_and_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """(b c H W) -> logits (b classes), and what they are made of, as ``pooled`` gives it."""
        x = self._pooled(*self._read(image, shortest=True))
        return self.head(x), x.mean(1) if self.config.pool == "distilled" else x

    def answer(self, stream: Tensor) -> Tensor:
        """The residual stream (b n w) -> logits (b classes); of a head that reads several layers, as if all were it."""
        return self.head(self._pooled(*[stream] * self.config.last))

    def features(self, image: Tensor) -> Tensor:
        """(b c H W) -> all tokens after the last layer and norm (b n w): class, registers, patches row by row."""
        x = self.stream(image)
        return x if self.config.norm_last else self.norm(x)

    def stream(self, image: Tensor, rows: slice | None = None) -> Tensor:
        """(b c H W) -> the residual stream after the last block (b n w), or some rows of it."""
        x, mask = self.embed(image), self.embed.mask(image)
        return self.encoder(x, mask) if rows is None else self.encoder.rows(x, rows, mask)

    def _read(self, image: Tensor, *, shortest: bool) -> list[Tensor]:
        """The residual streams that the head reads, after the last block and maybe some before it."""
        if self.config.last == 1:
            return [self.stream(image, self._answering(shortest=shortest))]
        return self.encoder.last(self.embed(image), self.config.last, self.embed.mask(image))

    def _answering(self, *, shortest: bool) -> slice | None:
        """The rows that the answer is made of, if they are few and enough for the last norm."""
        few = shortest and self.config.pool in ("class", "distilled")
        return slice(0, self.config.prefix) if few and not getattr(self.norm, "across_tokens", False) else None

    def _pooled(self, *streams: Tensor) -> Tensor:
        *before, x = streams
        pooled: Tensor = self.norm(self.pool(x)) if self.config.norm_last else self.pool(self.norm(x))
        return torch.cat([*(self.norm(one)[:, 0] for one in before), pooled], dim=-1) if before else pooled

    @property
    def blocks(self) -> list[Block]:
        return list(self.encoder)

    def summary(self) -> str:
        c = self.config
        heads = f"{c.heads} heads" if isinstance(c.heads, int) else f"heads {' '.join(map(str, c.heads))}"
        channels = f"{c.channels} channel{'s' * (c.channels > 1)}"
        size = f"{c.size[0]} x {c.size[1]} pixels, {channels}, patches of {c.patch}"
        return f"{size}, width {c.width}, depth {c.depth}, {heads}"

    @classmethod
    def adapt(
        cls, config: ViTConfig, state: State, normalise: Normalise | None = None, *, head: str = "keep", **changes: Any
    ) -> Adapted:
        return adapt(config, state, normalise, head=head, **changes)

    @classmethod
    def check(cls, config: ViTConfig) -> None:
        computed = config.position in ("sincos2d", "sinusoidal")
        if computed and 4 * config.patches * config.width > COMPUTED:
            raise InputError(f"pictures of {config.patches:,} patches are beyond all bounds")


def _answer(config: ViTConfig) -> tuple[nn.Module, nn.Module]:
    """The pooling, and the head."""
    if config.pool == "distilled":
        return DistilledPool(), DistilledHead(config.width, config.classes)
    head = Head(config.pooled, config.classes, config.prelogits)
    if config.pool == "class":
        return ClassPool(), head
    before = config.prefix + config.registers
    return (MeanPool if config.pool == "mean" else ClassMeanPool)(before), head
