"""A ViT in names never seen: by its structure, as ``guess`` finds it, or by a table of names that the user gives.

What no tensor says at all is assumed, and said to be.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import InputError, unknown
from vitrail.files import Pathlike
from vitrail.weights.files import PREFIXES, Lazy, Tensors, listed
from vitrail.weights.formats.vit.guess import found_names, likely_patches
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import Names
from vitrail.weights.formats.vit.shape import HEADS, Known
from vitrail.weights.formats.vit.timm import Timm

TOKENS = {"class_token": "cls_token", "position": "pos_embed", "registers": "reg_token"}  # as timm has them
OF_BLOCKS = ("norm1", "attention", "out", "norm2", "inner", "outer", "scale1", "scale2")
PARTS = ("patch", *TOKENS, *OF_BLOCKS, "norm", "logits")
NEEDED = ("patch", "norm1", "attention", "out", "norm2", "inner", "outer")


def names_table(names: Pathlike | Mapping[str, Any]) -> dict[str, Any]:
    """A table of names from a TOML file, with a line for each part, as ``norm1 = "encoder.{}.ln_1"``; or as given."""
    if isinstance(names, Mapping):
        return dict(names)
    try:
        return tomllib.loads(Path(names).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{str(names)!r} cannot be read as a table of names: {error}.") from None


def read_names(table: Mapping[str, Any]) -> Names:
    """The names of a ViT's parts in a table."""
    table = dict(table)
    for name, value in table.items():
        if name not in PARTS:
            raise unknown("part", name, PARTS)
        several = value if isinstance(value, list) and name == "attention" else [value]
        if not all(isinstance(one, str) for one in several) or len(several) not in (1, 3):
            raise InputError(
                f"{name} = {value!r} in the table of names should be a name, or of attention three: q, k, v."
            )
        if any(one.count("{}") != (name in OF_BLOCKS) for one in several):
            where = "have {} in it once, for the number of a block" if name in OF_BLOCKS else "have no {} in it"
            raise InputError(f"{name} = {value!r} in the table of names should {where}.")
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise InputError(f"the table of names does not say what {listed(missing)} is called; add a line for it.")
    attention = table.pop("attention")
    three = tuple(attention) if isinstance(attention, list) else (attention,)
    return Names(**{**dict.fromkeys(("class_token", "position", "norm", "logits"), ""), **table}, attention=three)


class ByStructure(Timm):
    """A ViT in names of its own; what it lacks and others have, such as a bias, is put there as zeros."""

    name = "names of its own"
    eps = 1e-5  # PyTorch's own
    orders = ("pre", "post")

    def __init__(self, names: Names, *, guessed: bool) -> None:
        self.theirs, self.guessed = names, guessed
        self.names = replace(
            names, class_token="cls_token", position="pos_embed", registers="reg_token", norm_last=names.norm
        )

    @classmethod
    def of(cls, tensors: Tensors) -> "ByStructure":
        """By names that are guessed."""
        return cls(found_names({name: lazy.shape for name, lazy in _usual(tensors).items()}), guessed=True)

    @classmethod
    def named(cls, names: Names, tensors: Tensors) -> "ByStructure":
        """By names that are given, as the file has them."""
        usual = _usual(tensors)
        changed: dict[str, Any] = {part: _shorter(getattr(names, part), usual) for part in PARTS if part != "attention"}
        return cls(
            replace(names, **changed, attention=tuple(_shorter(one, usual) for one in names.attention)), guessed=False
        )

    def understand(self, tensors: Tensors, hints: Hints) -> Known:
        known = Known(_from_zero(_usual(tensors), self.theirs))
        table = _table(self.theirs, known.tensors)
        for part, name in TOKENS.items():
            theirs = getattr(self.theirs, part)
            known.rename(theirs, name)
            known.rename(f"{theirs}.weight", name)  # of an embedding
            if theirs and name not in known.tensors:
                raise InputError(f"{theirs!r}, which should be the {part.replace('_', ' ')}, is not in the file.")
        if self.guessed:
            known.notes.append("\n".join(["its names were never seen; by its structure it is a ViT:", *table]))
        self._shape_tokens(known, hints)
        self._add_biases(known)
        self._assume(known, hints)
        if "pos_embed" in known.tensors:
            self._prefix(known, hints)
        elif hints.position is None:
            raise InputError(
                "no table of positions was found; name it in a table of names (--names), or if there is none, say "
                "position='none' or 'sincos2d', and the size: image=224."
            )
        return known

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:  # noqa: ARG002
        _, channels, patch, _ = self._shape(tensors, self.patch_weight, 4)
        return patch, channels

    def heads(self, tensors: Tensors, width: int, hints: Hints) -> tuple[int, int]:
        if hints.heads is None:
            names = [f"{name.format(0)}.weight" for name in self.names.attention]
            queries = sum(self._shape(tensors, name, 2)[0] for name in names) // 3
            hints = replace(hints, heads=HEADS.get(queries) or likely_heads(queries))
        return super().heads(tensors, width, hints)

    def _assume(self, known: Known, hints: Hints) -> None:
        """What no tensor says: from the hints, or by what is usual, and said."""
        names, fields = self.names, known.fields
        normed = bool(names.norm) and f"{names.norm}.weight" in known.tensors
        order = hints.order or ("pre" if normed else "post")
        if order == "pre" and not normed:
            raise InputError("order='pre' has a norm after the blocks, and none was found; choose order='post'.")
        pool = hints.pool or ("class" if "cls_token" in known.tensors else "mean")
        if pool not in ("class", "mean"):
            raise unknown("answers", pool, ("class", "mean"))
        in_head = bool(names.norm) and names.norm.rpartition(".")[0] == names.logits.rpartition(".")[0] != ""
        fields |= {
            "order": order,
            "pool": pool,
            "norm_last": normed and (order == "post" or (pool == "mean" and in_head)),
        }
        if hints.heads is None:
            known.notes.append("assumed: as many heads as are 64 wide; no tensor says so, change it with heads")
        if hints.order is None:
            why = f"{'a' if normed else 'no'} norm comes after the blocks"
            known.notes.append(f"assumed: order={order}, as {why}; change it with order")
        answers = "the class token answers" if pool == "class" else "the mean of the patches answers"
        late = ", which is normalised after the mean" if fields["norm_last"] and pool == "mean" else ""
        if hints.pool is None:
            known.notes.append(f"assumed: {answers}{late}; change it with answers")
        known.gated(f"{names.inner.format(0)}.weight", f"{names.outer.format(0)}.weight")
        if "activation" in fields:
            if hints.activation not in (None, "swiglu"):
                raise InputError(
                    f"activation={hints.activation!r} cannot be: its first map gives twice what the second takes."
                )
            known.notes.append(
                "assumed: activation=swiglu, the gate first, as its first map gives twice what the second takes"
            )
        elif hints.activation is None:
            known.notes.append("assumed: activation=gelu; no tensor says so, change it with activation")
        if len(names.attention) == 1:
            known.notes.append("assumed: queries, keys and values follow one another in their map")

    def _shape_tokens(self, known: Known, hints: Hints) -> None:
        """Tokens, positions and patches with the axes that timm has."""
        for name in TOKENS.values():
            if name in known.tensors:
                known.change(name, lambda tensor: tensor.reshape(1, -1, tensor.shape[-1]))
        weight = known.tensors.get(self.patch_weight)
        if weight is not None and len(weight.shape) == 2:  # noqa: PLR2004
            squares = likely_patches(weight.shape[1]) or likely_patches(weight.shape[1], hints.channels)
            if not squares:
                raise InputError(
                    f"patches of {weight.shape[1]} numbers are not square; give the number of channels, as channels=3."
                )
            pixels, order = _as_pixels(weight.numbers(), *squares[0])
            known.put(self.patch_weight, pixels)
            known.notes.append(
                f"assumed: the numbers of a patch go {order}, in which the filters are smoothest; no tensor says so"
            )

    def _add_biases(self, known: Known) -> None:
        """Zeros for the biases that the file lacks: those of any map or norm, and of some of q, k and v alone."""
        names, depth = self.names, self._depth(known.tensors)
        maps = [name for name in (names.patch, names.norm, names.logits) if name]
        each = [names.norm1, names.out, names.norm2, names.inner, names.outer]
        with_bias = any(f"{name.format(0)}.bias" in known.tensors for name in names.attention)
        each += names.attention if with_bias else []
        maps += [name.format(number) for name in each for number in range(depth)]
        if f"{names.norm1.format(0)}.bias" not in known.tensors:
            known.notes.append("assumed: its norms, which have no bias, are LayerNorm")
        for name in maps:
            weight = known.tensors.get(f"{name}.weight")
            if weight is not None and f"{name}.bias" not in known.tensors:
                known.put(f"{name}.bias", torch.zeros(weight.shape[0]))


def likely_heads(queries: int) -> int:
    """How many heads so many queries mostly have: 64 wide, or as near to that as they can be cut."""
    widths = [width for width in range(1, queries + 1) if queries % width == 0]
    return queries // min(widths, key=lambda width: (abs(math.log2(width / 64)), width))


def _usual(tensors: Tensors) -> dict[str, Lazy]:
    """With the ends that weights and biases mostly have: PyTorch's own attention has an underscore for the dot."""
    return {re.sub(r"in_proj_(weight|bias)$", r"in_proj.\1", name): lazy for name, lazy in tensors.items()}


def _from_zero(tensors: dict[str, Lazy], names: Names) -> dict[str, Lazy]:
    """With blocks that are counted from 0, however the file counts them."""
    for before in {name.partition("{}")[0] for part in OF_BLOCKS for name in _each(getattr(names, part))} - {""}:
        pattern = re.compile(re.escape(before) + r"(\d+)(?=\D)")
        numbers = sorted({int(match[1]) for name in tensors if (match := pattern.match(name))})
        indices = {number: str(index) for index, number in enumerate(numbers)}
        tensors = {
            before + indices[int(match[1])] + name[match.end() :] if (match := pattern.match(name)) else name: lazy
            for name, lazy in tensors.items()
        }
    return tensors


def _shorter(name: str, tensors: Tensors) -> str:
    """A name without what all names of the file begin with, which was taken away when it was read."""
    before = name.partition("{}")[0]
    while name and not any(one.startswith(before) for one in tensors):
        prefix = next((prefix for prefix in PREFIXES if before.startswith(prefix)), "")
        if not prefix:
            break
        name, before = name.removeprefix(prefix), before.removeprefix(prefix)
    return name


def _each(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _as_pixels(weight: Tensor, channels: int, patch: int) -> tuple[Tensor, str]:
    """The projection of a patch (w c p p), and which axis goes first: what was learned is smooth along the pixels."""
    orders = {
        "pixel by pixel": weight.reshape(-1, patch, patch, channels).permute(0, 3, 1, 2),
        "channel by channel": weight.reshape(-1, channels, patch, patch),
    }
    if channels == 1:
        return orders["channel by channel"].contiguous(), "row by row"

    def rough(filters: Tensor) -> float:
        filters = filters.float()
        return float(filters.diff(dim=2).square().mean() + filters.diff(dim=3).square().mean())

    name = min(orders, key=lambda one: rough(orders[one]))
    return orders[name].contiguous(), name


def _table(names: Names, tensors: Tensors) -> list[str]:
    """Each part, its name in the file, and its shape."""
    lines = []
    for part in PARTS:
        for name in filter(None, _each(getattr(names, part))):
            first = name.format(0)
            lazy = tensors.get(first) or tensors.get(f"{first}.weight")
            if lazy is not None:
                lines.append(f"  {part:<12} {name}  {' x '.join(map(str, lazy.shape))}")
    return lines
