"""The Vision Transformer (Dosovitskiy et al. 2021): image patches as the words of a Transformer encoder."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from vitrail.config import Config, Rate
from vitrail.core import (
    Attention,
    Block,
    ClassPool,
    DistilledHead,
    DistilledPool,
    FeedForward,
    Head,
    ImageEmbedding,
    MeanPool,
    Stack,
    Sublayer,
    activations,
    kernels,
    norms,
    positions,
    stems,
)
from vitrail.core.attention import check_heads
from vitrail.core.embeddings import check_size
from vitrail.errors import InputError
from vitrail.families.registry import Model, families, presets


def _size(value: Any) -> Any:
    sides = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides):  # noqa: PLR2004
        raise InputError(f"image={value!r} does not fit; it should be a number of pixels, or two: (down, across).")
    return value if isinstance(value, int) else sides


Size = Annotated[int | tuple[int, int], BeforeValidator(_size)]


PREFIX = {"class": 1, "mean": 0, "distilled": 2}  # tokens with a position before the patches, of each pooling


class ViTConfig(Config):
    """The shape of a ViT: the paper's numbers by their names."""

    width: PositiveInt
    depth: PositiveInt
    heads: PositiveInt
    hidden: PositiveInt  # 4 * width unless given
    image: Size = 224  # pixels, or (down, across); any other size at call time
    patch: PositiveInt = 16
    channels: PositiveInt = 3
    classes: NonNegativeInt = 1000  # 0: no head, the pooled features are the output
    pool: Literal["class", "mean", "distilled"] = "class"  # distilled: class and distillation token, each with a head
    norm_last: bool = False  # the last norm after the pooling instead of before it
    position: str = "learned"
    stem: str = "patch"
    tokens: NonNegativeInt = 0  # visual tokens that the patches are grouped into; 0: the patches are the tokens
    registers: NonNegativeInt = 0
    prelogits: NonNegativeInt = 0  # width of the tanh layer before the logits; 0: none
    kernel: str = "softmax"
    head: PositiveInt | None = None  # width of a head; width / heads unless given
    rank: PositiveInt | None = None  # of a head's value map; the width of a head unless given
    bias: bool = True  # of queries, keys and values
    activation: str = "gelu"
    norm: str = "layer"
    order: Literal["pre", "post"] = "pre"
    eps: PositiveFloat = 1e-6
    layer_scale: float | None = None
    dropout: Rate = 0.0
    drop_path: Rate = 0.0  # of the last layer; from 0 at the first it rises linearly
    layer_drop: Rate = 0.0

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, fields: dict[str, Any]) -> dict[str, Any]:
        width = fields.get("width")
        if isinstance(fields.get("prelogits"), bool):
            fields = {**fields, "prelogits": width if fields["prelogits"] else 0}
        return {"hidden": 4 * width if isinstance(width, int) else 1, **fields}

    @model_validator(mode="after")
    def _consistent(self) -> "ViTConfig":
        if self.head is None:
            check_heads(self.width, self.heads)
        if self.tokens and self.position == "relative":
            raise InputError("position='relative' is between patches, which tokens=... groups; choose another of them.")
        if self.pool == "distilled" and self.prelogits:
            raise InputError("pool='distilled' has two heads and no prelogits; leave prelogits out.")
        check_size("image", self.size, self.patch)
        for registry in (positions, stems, kernels, norms, activations):
            registry[getattr(self, registry.noun)]  # a name it does not know is an error
        return self

    @property
    def prefix(self) -> int:
        """Tokens before the patches that have a position: class and distillation token."""
        return PREFIX[self.pool]

    @property
    def patches(self) -> int:
        """How many there are in an image of its size."""
        return (self.size[0] // self.patch) * (self.size[1] // self.patch)

    @property
    def size(self) -> tuple[int, int]:
        """The image it was made for, (down, across)."""
        return self.image if isinstance(self.image, tuple) else (self.image, self.image)


@families.add("vit")
class ViT(Model):
    """z0 = embed(image); z' = MSA(LN(z)) + z; z = MLP(LN(z')) + z'; y = head(pool(LN(z_L))) (ViT, eqs. 1-4)."""

    Config = ViTConfig
    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        grid = (config.size[0] // config.patch, config.size[1] // config.patch)
        self.embed = ImageEmbedding(
            stems[config.stem](config.patch, config.channels, config.width),
            positions[config.position](grid, config.width, config.heads, prefix=config.prefix),
            registers=config.registers,
            tokens=config.tokens,
            dropout=config.dropout,
        )
        self.encoder = encoder(config)
        self.norm = norms[config.norm](config.width, config.eps) if config.order == "pre" else nn.Identity()
        self.pool, self.head = _answer(config)
        self.across_tokens = any(getattr(module, "across_tokens", False) for module in self.encoder.modules())

    def forward(self, image: Tensor, *, shortest: bool = False) -> Tensor:
        """(b c H W) -> logits (b classes).

        The shortest way gives the same to rounding, and sooner: the last block is computed for the class token alone.
        So run training and prediction; the default computes every token, for whoever looks inside. There is nothing to
        leave out with a mean over the patches, nor with batch norm, which looks at all tokens of the batch.
        """
        alone = shortest and self.config.prefix and not self.across_tokens
        x = self._tokens(image, slice(0, self.config.prefix) if alone else None)
        return self.answer(x)

    def answer(self, x: Tensor) -> Tensor:
        """The residual stream (b n w) -> logits (b classes)."""
        return self.head(self._pooled(x))

    def pooled(self, image: Tensor) -> Tensor:
        """(b c H W) -> (b w): what the head is given, a picture as one vector."""
        x = self._tokens(image, slice(0, self.config.prefix) if self.config.prefix and not self.across_tokens else None)
        pooled = self._pooled(x)
        return pooled.mean(1) if self.config.pool == "distilled" else pooled

    def features(self, image: Tensor, rows: slice | None = None) -> Tensor:
        """(b c H W) -> all tokens after the last layer and norm (b n w): class, registers, patches row by row.

        Or some rows of them, for which the last block does only what they need.
        """
        x = self._tokens(image, rows)
        return x if self.config.norm_last else self.norm(x)

    def _pooled(self, x: Tensor) -> Tensor:
        return self.norm(self.pool(x)) if self.config.norm_last else self.pool(self.norm(x))

    def _tokens(self, image: Tensor, rows: slice | None) -> Tensor:
        return self.encoder(self.embed(image), self.embed.mask(image), rows=rows)


def _answer(config: ViTConfig) -> tuple[nn.Module, nn.Module]:
    """The pooling, and the head."""
    if config.pool == "distilled":
        return DistilledPool(), DistilledHead(config.width, config.classes)
    pool = ClassPool() if config.pool == "class" else MeanPool(config.registers)
    return pool, Head(config.width, config.classes, config.prelogits)


def encoder(config: ViTConfig) -> Stack:
    """The blocks, with drop path rising from 0 to its value over the depth."""

    def sublayer(f: nn.Module, drop_path: float) -> Sublayer:
        return Sublayer(
            f,
            norms[config.norm](config.width, config.eps),
            config.width,
            order=config.order,
            layer_scale=config.layer_scale,
            dropout=config.dropout,
            drop_path=drop_path,
        )

    def block(drop_path: float) -> Block:
        attention = Attention(
            config.width, config.heads, kernels[config.kernel](), head=config.head, rank=config.rank, bias=config.bias
        )
        feed_forward = FeedForward(config.width, config.hidden, config.activation, config.dropout)
        return Block(sublayer(attention, drop_path), sublayer(feed_forward, drop_path))

    rates = [
        config.drop_path * (layer + 1 == config.depth or layer / (config.depth - 1)) for layer in range(config.depth)
    ]
    return Stack((block(rate) for rate in rates), drop=config.layer_drop)


def preset(name: str, **fields: Any) -> None:
    """Name a shape."""
    presets.add(name)(("vit", fields))


# Sizes B, L, H: ViT paper, table 1; Ti, S: Touvron et al. 2021 (DeiT), table 1.
for letters, width, depth, heads, patches in (
    ("ti", 192, 12, 3, (16,)),
    ("s", 384, 12, 6, (16, 32)),
    ("b", 768, 12, 12, (16, 32)),
    ("l", 1024, 24, 16, (16, 32)),
    ("h", 1280, 32, 16, (14,)),
):
    for patch in patches:
        preset(f"vit-{letters}/{patch}", patch=patch, width=width, depth=depth, heads=heads)

# For small images: 8-pixel digits, 28-pixel grey pictures (MNIST and its kin), 32-pixel colour pictures (CIFAR).
preset("vit-pico/2", image=8, patch=2, channels=1, width=64, depth=4, heads=4, hidden=128, classes=10)
preset("vit-nano/4", image=28, patch=4, channels=1, width=64, depth=6, heads=4, hidden=128, classes=10)
preset("vit-micro/4", image=32, patch=4, channels=3, width=128, depth=6, heads=4, hidden=256, classes=10)

# Hybrids (ViT, section 4.1; Steiner et al. 2021, table 2), and one for small pictures.
preset("r50+vit-b/16", stem="resnet50", patch=16, width=768, depth=12, heads=12)
preset("r50+vit-l/32", stem="resnet50-all", patch=32, width=1024, depth=24, heads=16)
preset("r26+vit-s/32", stem="resnet26", patch=32, width=384, depth=12, heads=6)
preset("r+vit-ti/16", stem="resnet-root", patch=16, width=192, depth=12, heads=3)
preset("r+vit-micro/4", stem="resnet-small", image=32, patch=4, width=128, depth=6, heads=4, hidden=256, classes=10)

# Visual tokens instead of patches (Wu et al. 2020): 16 groups of the pixels that a CNN ends with.
preset("r26+vt-s/32", stem="resnet26", tokens=16, patch=32, width=384, depth=12, heads=6)
preset(
    "r+vt-micro/4",
    stem="resnet-small",
    tokens=8,
    image=32,
    patch=4,
    width=128,
    depth=6,
    heads=4,
    hidden=256,
    classes=10,
)
