"""What every Transformer's shape has: its blocks. Without torch, as all shapes."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, ValidationInfo, model_validator

from vitrail.config import Component, Rate
from vitrail.errors import InputError
from vitrail.families.catalogue import Shape


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

Rank = Annotated[int, Field(ge=1, le=1_000_000)]

Depth = Annotated[int, Field(ge=1, le=10_000)]  # ten times the deepest Transformer that was ever trained


class TransformerShape(Shape):
    """The blocks of a Transformer: the papers' numbers by their names."""

    stacks: ClassVar[tuple[str, ...]] = ("encoder",)  # what the model calls its blocks

    width: PositiveInt
    depth: Depth
    heads: ByLayer  # 0 in a layer: it has no attention
    hidden: ByLayer  # of the feed-forward, 4 * width unless given; 0 in a layer: it has none
    kernel: Component = "softmax"
    head: PositiveInt | None = None  # width of a head; width / heads unless given
    rank: PositiveInt | None = None  # of a head's value map; the width of a head unless given
    bias: bool = True  # of queries, keys and values
    position: str = "learned"  # a name in core.positions
    activation: str = "gelu"
    norm: str = "layer"
    order: Literal["pre", "post"] = "pre"
    eps: PositiveFloat = 1e-6
    layer_scale: float | None = None
    dropout: Rate = 0.0
    drop_path: Rate = 0.0  # of the last layer; from 0 at the first it rises linearly
    layer_drop: Rate = 0.0
    factors: dict[str, Rank] = Field(default_factory=dict)  # linear maps of the blocks as products: path -> rank

    @model_validator(mode="before")
    @classmethod
    def _four_times_the_width(cls, fields: dict[str, Any]) -> dict[str, Any]:
        width = fields.get("width")
        return {"hidden": 4 * width if isinstance(width, int) else 1, **fields}

    @model_validator(mode="after")
    def _of_known_parts(self) -> "TransformerShape":
        """Checked against the parts that there are, which need torch: the fields and their costs do not."""
        from vitrail.core import activations, kernels, norms  # noqa: PLC0415
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
        for path in self.factors:
            if path.split(".")[0] not in self.stacks:
                raise InputError(f"factors names {path!r}, which is not in {' or '.join(self.stacks)}; leave it out.")
        wide = self.head or self.width // max(1, self.most_heads)
        if self.position == "rotary" and wide % 2:
            raise InputError(f"position='rotary' turns pairs of numbers, and a head has {wide}; choose an even number.")
        for registry in (norms, activations):
            registry[getattr(self, registry.noun)]  # a name it does not know is an error
        kernels.make(self.kernel)  # and so are options that it does not take
        return self

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """The heads and the hidden width of each layer."""
        heads, hidden = ((n,) * self.depth if isinstance(n, int) else n for n in (self.heads, self.hidden))
        return tuple(zip(heads, hidden, strict=True))

    @property
    def most_heads(self) -> int:
        """In any layer."""
        return max(heads for heads, _ in self.layers)
