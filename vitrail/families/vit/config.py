"""The shape of a ViT."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, model_validator

from vitrail.config import Component, Rate, parse_sides
from vitrail.errors import InputError
from vitrail.families.catalogue import Cost, Shape
from vitrail.families.vit.cost import vit_cost


def _size(value: Any) -> Any:
    if isinstance(value, str):
        value = parse_sides(value) or value
    sides = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides):  # noqa: PLR2004
        raise InputError(f"image={value!r} does not fit; it should be a number of pixels, or two: 224x384.")
    return value if isinstance(value, int) else sides


Size = Annotated[int | tuple[int, int], BeforeValidator(_size)]


def _by_layer(value: Any, info: ValidationInfo) -> Any:
    each = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not each or any(type(number) is not int for number in each):
        raise InputError(
            f"{info.field_name}={value!r} does not fit; it should be a number, or one for each layer, such as [4, 2]."
        )
    if each == (0,) or (len(each) == 1 and each[0] < 0):
        raise InputError(f"{info.field_name}={value!r} does not fit; it should be greater than 0.")
    if any(number < 0 for number in each):
        raise InputError(f"{info.field_name}={value!r} does not fit; the number of a layer should be 0 or greater.")
    return each[0] if len(set(each)) == 1 and each[0] else each


ByLayer = Annotated[int | tuple[int, ...], BeforeValidator(_by_layer)]  # one for all layers, or one for each

Depth = Annotated[int, Field(ge=1, le=10_000)]  # ten times the deepest Transformer that was ever trained

# Tokens with a position before the patches, of each pooling.
PREFIX = {"class": 1, "mean": 0, "both": 1, "distilled": 2}


class ViTConfig(Shape):
    """The shape of a ViT: the paper's numbers by their names."""

    width: PositiveInt
    depth: Depth
    heads: ByLayer  # 0 in a layer: it has no attention
    hidden: ByLayer  # of the feed-forward, 4 * width unless given; 0 in a layer: it has none
    image: Size = 224  # pixels, or (down, across); any other size at call time
    patch: PositiveInt = 16
    channels: PositiveInt = 3
    classes: NonNegativeInt = 1000  # 0: no head, the pooled features are the output
    pool: Literal["class", "mean", "both", "distilled"] = "class"  # distilled: class and distillation token, two heads
    last: PositiveInt = 1  # layers whose class tokens the head is given side by side, up to the last
    norm_last: bool = False  # the last norm after the pooling instead of before it
    position: str = "learned"
    stem: str = "patch"
    tokens: NonNegativeInt = 0  # visual tokens that the patches are grouped into; 0: the patches are the tokens
    registers: NonNegativeInt = 0
    prelogits: NonNegativeInt = 0  # width of the tanh layer before the logits; 0: none
    kernel: Component = "softmax"
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
        """Checked against the parts that there are, which need torch: the fields and their costs do not."""
        from vitrail.core import activations, kernels, norms, positions, stems  # noqa: PLC0415
        from vitrail.core.embeddings import check_size  # noqa: PLC0415

        self._check_layers()
        if self.tokens and self.position == "relative":
            raise InputError("position='relative' is between patches, which tokens=... groups; choose another of them.")
        if self.pool == "distilled" and self.prelogits:
            raise InputError("pool='distilled' has two heads and no prelogits; leave prelogits out.")
        if self.pool == "both" and self.norm_last:
            raise InputError("pool='both' is of tokens that are normalised already; leave norm_last out.")
        if self.last > 1 and (self.pool not in ("class", "both") or self.norm_last or self.last > self.depth):
            raise InputError(
                f"last={self.last} is of class tokens, normalised before they are pooled, of at most "
                f"depth={self.depth} layers; choose pool='class' or 'both', or leave it out."
            )
        check_size("image", self.size, self.patch)
        for registry in (positions, stems, norms, activations):
            registry[getattr(self, registry.noun)]  # a name it does not know is an error
        kernels.make(self.kernel)  # and so are options that it does not take
        return self

    def _check_layers(self) -> None:
        from vitrail.core.attention import check_heads  # noqa: PLC0415

        for name in ("heads", "hidden"):
            each = getattr(self, name)
            if isinstance(each, tuple) and len(each) != self.depth:
                raise InputError(f"{name}={each} has {len(each)} numbers for depth={self.depth} layers; give one each.")
        if isinstance(self.heads, int):
            if self.head is None:
                check_heads(self.width, self.heads)
        elif self.head is None:
            raise InputError(
                f"heads={list(self.heads)} differ by layer, so the width of a head is not width / heads; give it too, "
                f"such as head={max(1, self.width // max(1, self.most_heads))}."
            )
        if isinstance(self.heads, tuple) and self.position == "relative":
            raise InputError(f"position='relative' has as many biases as heads, which differ by layer: {self.heads}.")

    def cost(self) -> Cost | None:
        return vit_cost(self)

    def answering(self) -> int:
        tokens = self.prefix + self.registers + (self.tokens or self.patches)
        widest = max(hidden for _, hidden in self.layers)
        return 8 * tokens * (2 * widest + 4 * self.width)  # twice what a block has, as was seen (bench/README.md)

    def parameters(self) -> int:
        cost = self.cost() or self.model_copy(update={"stem": "patch"}).cost()
        return 0 if cost is None else cost.parameters

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """The heads and the hidden width of each layer."""
        heads, hidden = ((n,) * self.depth if isinstance(n, int) else n for n in (self.heads, self.hidden))
        return tuple(zip(heads, hidden, strict=True))

    @property
    def most_heads(self) -> int:
        """In any layer."""
        return max(heads for heads, _ in self.layers)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.size[0] // self.patch, self.size[1] // self.patch

    @property
    def prefix(self) -> int:
        """Tokens before the patches that have a position: class and distillation token."""
        return PREFIX[self.pool]

    @property
    def normed(self) -> bool:
        """Whether a norm comes after the last block, or after the pooling."""
        return self.order == "pre" or self.norm_last

    @property
    def pooled(self) -> int:
        """Numbers that the head is given."""
        return self.width * (self.last + (self.pool == "both"))

    @property
    def patches(self) -> int:
        """How many there are in an image of its size."""
        return self.grid[0] * self.grid[1]

    @property
    def size(self) -> tuple[int, int]:
        """The image it was made for, (down, across)."""
        return self.image if isinstance(self.image, tuple) else (self.image, self.image)
