"""A ViT in names never seen: found by its structure, or by a table of names that the user gives.

A patch projection, a table of positions, so many equal groups of maps and norms, a head. What a shape alone cannot
tell apart, words in the names do; what neither can is an error, and what no tensor says at all is said to be assumed.
"""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import InputError, unknown
from vitrail.files import Pathlike
from vitrail.weights.files import Lazy, Tensors, listed
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import Names
from vitrail.weights.formats.vit.shape import Known
from vitrail.weights.formats.vit.timm import Timm

TOKENS = {"class_token": "cls_token", "position": "pos_embed", "registers": "reg_token"}  # as timm has them
PARTS = ("patch", *TOKENS, "norm1", "attention", "out", "norm2", "inner", "outer", "scale1", "scale2", "norm", "logits")
NEEDED = ("patch", "norm1", "attention", "out", "norm2", "inner", "outer")
WORDS = {  # that names have in them, of what they are
    "qkv": r"qkv|in_proj|query_key_value|c_attn",
    "query": r"q|query|queries|wq|q_proj|to_q|q_lin|lin_q|linear_q",
    "key": r"k|key|keys|wk|k_proj|to_k|k_lin|lin_k|linear_k",
    "value": r"v|value|values|wv|v_proj|to_v|v_lin|lin_v|linear_v",
    "out": r"out|proj|out_proj|o_proj|to_out|o|wo|dense|projection|c_proj|fc_out|output|linear_out",
    "inner": r"fc1|linear1|lin1|w1|inner|intermediate|up|fc_1|dense1|expand|c_fc|mlp_in|linear_1",
    "outer": r"fc2|linear2|lin2|w2|outer|output|down|fc_2|dense2|contract|c_proj|mlp_out|linear_2",
}
ATTENTION = re.compile(r"att|msa|mha")
FEED_FORWARD = re.compile(r"mlp|ffn|feed|fwd|ff")
ROLES = (("qkv", "out", "inner", "outer"), ("query", "key", "value", "out", "inner", "outer"))
NORMS, TABLE, FEW = 2, 2, 2


def read_names(path: Pathlike) -> Names:
    """The table of names in a TOML file: a line for each part, as ``norm1 = "encoder.{}.ln_1"``."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{str(path)!r} cannot be read as a table of names: {error}.") from None
    for name, value in table.items():
        if name not in PARTS:
            raise unknown("part", name, PARTS)
        several = value if isinstance(value, list) and name == "attention" else [value]
        if not all(isinstance(one, str) for one in several) or len(several) not in (1, 3):
            raise InputError(f"{name} = {value!r} in {str(path)!r} should be a name, or of attention three: q, k, v.")
    missing = [name for name in NEEDED if name not in table]
    if missing:
        raise InputError(f"{str(path)!r} does not say what {listed(missing)} is called; add a line for it.")
    attention = table.pop("attention")
    three = tuple(attention) if isinstance(attention, list) else (attention,)
    return Names(**{**dict.fromkeys(("class_token", "position", "norm", "logits"), ""), **table}, attention=three)


def found_names(tensors: Tensors) -> Names:
    """What the parts are called, guessed; an error that says what could not be found."""
    return _Guess({name: lazy.shape for name, lazy in usual(tensors).items()}).names()


def usual(tensors: Tensors) -> dict[str, Lazy]:
    """With the ends that weights and biases mostly have: PyTorch's own attention has an underscore for the dot."""
    ends = {"in_proj_weight": "in_proj.weight", "in_proj_bias": "in_proj.bias"}
    return {re.sub(r"in_proj_(weight|bias)$", lambda end: ends[end[0]], name): lazy for name, lazy in tensors.items()}


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

    def understand(self, tensors: Tensors, hints: Hints) -> Known:
        known = Known(usual(tensors))
        table = _table(self.theirs, known.tensors)
        for part, name in TOKENS.items():
            theirs = getattr(self.theirs, part)
            known.rename(theirs, name)
            known.rename(f"{theirs}.weight", name)  # of an embedding
            if theirs and name not in known.tensors:
                raise InputError(f"{theirs!r}, which should be the {part.replace('_', ' ')}, is not in the file.")
        self._shaped(known, hints)
        self._biases(known)
        known.fields["order"] = hints.order or ("pre" if self._has(known, self.names.norm) else "post")
        known.fields["norm_last"] = known.fields["order"] == "post" and self._has(known, self.names.norm)
        known.fields["pool"] = "class" if "cls_token" in known.tensors else "mean"
        known.gated(f"{self.names.inner.format(0)}.weight", f"{self.names.outer.format(0)}.weight")
        if "pos_embed" in known.tensors:
            self._prefix(known, hints)
        elif hints.position is None:
            raise InputError(
                "no table of positions was found; name it in a table of names (--names), or if there is none, say "
                "position='none' or 'sincos2d', and the size: image=224."
            )
        self._say(known, hints, table)
        return known

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:  # noqa: ARG002
        _, channels, patch, _ = self._shape(tensors, self.patch_weight, 4)
        return patch, channels

    def heads(self, tensors: Tensors, width: int, hints: Hints) -> tuple[int, int]:
        if hints.heads is None:
            names = [f"{name.format(0)}.weight" for name in self.names.attention]
            queries = sum(self._shape(tensors, name, 2)[0] for name in names) // 3
            hints = replace(hints, heads=likely_heads(queries))
        return super().heads(tensors, width, hints)

    @staticmethod
    def _has(known: Known, name: str) -> bool:
        return bool(name) and f"{name}.weight" in known.tensors

    def _shaped(self, known: Known, hints: Hints) -> None:
        """Tokens, positions and patches with the axes that timm has."""
        for name in TOKENS.values():
            if name in known.tensors:
                known.change(name, lambda tensor: tensor.reshape(1, -1, tensor.shape[-1]))
        weight = known.tensors.get(self.patch_weight)
        if weight is not None and len(weight.shape) == 2:  # noqa: PLR2004
            squares = patches_of(weight.shape[1], hints.channels)
            if not squares:
                raise InputError(
                    f"patches of {weight.shape[1]} numbers are not square; give the number of channels, as channels=3."
                )
            channels, patch = squares[0]
            pixels, order = _as_pixels(weight.numbers(), channels, patch)
            known.put(self.patch_weight, pixels)
            known.notes.append(
                f"assumed: the numbers of a patch go {order}, in which the filters are smoothest; no tensor says so"
            )

    def _biases(self, known: Known) -> None:
        """Zeros for the biases that the file lacks: those of any map or norm, and of some of q, k and v alone."""
        names, depth = self.names, self._depth(known.tensors)
        maps = [names.patch, *([names.norm] if names.norm else []), *([names.logits] if names.logits else [])]
        each = [names.norm1, names.out, names.norm2, names.inner, names.outer]
        with_bias = any(f"{name.format(0)}.bias" in known.tensors for name in names.attention)
        each += names.attention if with_bias else []
        maps += [name.format(number) for name in each for number in range(depth)]
        for name in maps:
            weight = known.tensors.get(f"{name}.weight")
            if weight is not None and f"{name}.bias" not in known.tensors:
                known.put(f"{name}.bias", torch.zeros(weight.shape[0]))

    def _say(self, known: Known, hints: Hints, table: list[str]) -> None:
        if self.guessed:
            known.notes.insert(0, "\n".join(["its names were never seen; by its structure it is a ViT:", *table]))
        if hints.heads is None:
            known.notes.append("assumed: as many heads as are 64 wide; no tensor says so, change it with heads")
        if hints.order is None:
            why = "a norm comes" if known.fields["order"] == "pre" else "no norm comes"
            known.notes.append(
                f"assumed: order={known.fields['order']}, as {why} after the blocks; change it with order"
            )
        if hints.activation is None and known.fields.get("activation") is None:
            known.notes.append("assumed: activation=gelu; no tensor says so, change it with activation")
        if len(self.names.attention) == 1:
            known.notes.append("assumed: queries, keys and values follow one another in their map")


def likely_heads(queries: int) -> int:
    """How many heads so many queries mostly have: 64 wide, or as near to that as they can be cut."""
    widths = [width for width in range(1, queries + 1) if queries % width == 0]
    return queries // min(widths, key=lambda width: (abs(math.log2(width / 64)), width))


def patches_of(count: int, channels: int | None = None) -> list[tuple[int, int]]:
    """The channels and the side of patches of so many numbers, the likeliest first."""
    sides = [(many, math.isqrt(count // many)) for many in ((channels,) if channels else (3, 1, 4)) if count >= many]
    return [(many, side) for many, side in sides if many * side * side == count and side > 1]


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


@dataclass
class _Guess:
    """Names and shapes, and what they seem to be."""

    shapes: Mapping[str, tuple[int, ...]]
    left: dict[str, tuple[int, ...]] = field(default_factory=dict)  # outside the blocks

    def names(self) -> Names:
        prefix, suffix, block = self._blocks()
        self.left = {name: shape for name, shape in self.shapes.items() if not _inside(name, prefix, suffix)}
        norms = {name: shape for name, shape in _modules(block).items() if len(shape) == 1}
        width = _most([shape[0] for shape in norms.values()])
        roles = _roles({name: shape for name, shape in _modules(block).items() if len(shape) == 2}, width)  # noqa: PLR2004
        first, second = _two(sorted(name for name, shape in norms.items() if shape == (width,)), roles)
        bare = [name for name, shape in block.items() if shape == (width,) and not _module_of(name)]
        scales = _two(bare, roles) if len(bare) == 2 else ("", "")  # noqa: PLR2004

        def at(name: str) -> str:
            return f"{prefix}{{}}{suffix}.{name}" if name else ""

        return Names(
            patch=self._patch(width),
            class_token=self._token(width),
            position=self._position(width),
            registers=self._registers(width),
            norm1=at(first),
            norm2=at(second),
            attention=tuple(at(roles[one]) for one in (("qkv",) if "qkv" in roles else ("query", "key", "value"))),
            out=at(roles["out"]),
            inner=at(roles["inner"]),
            outer=at(roles["outer"]),
            scale1=at(scales[0]),
            scale2=at(scales[1]),
            norm=self._norm(width),
            logits=self._logits(width),
        )

    def _blocks(self) -> tuple[str, str, dict[str, tuple[int, ...]]]:
        """The numbered groups that are all alike, of the most numbers: what comes before and after the number, and
        what each of them holds.
        """
        groups: dict[str, dict[int, dict[str, tuple[int, ...]]]] = {}
        for name, shape in self.shapes.items():
            words = name.split(".")
            for place, word in enumerate(words[:-1]):
                number = re.fullmatch(r"(.*?)(\d+)", word)
                if number:
                    before = ".".join([*words[:place], number[1]])
                    groups.setdefault(before, {}).setdefault(int(number[2]), {})[".".join(words[place + 1 :])] = shape
        alike = {
            before: next(iter(each.values()))
            for before, each in groups.items()
            if sorted(each) == list(range(len(each))) and all(one == each[0] for one in each.values())
        }
        alike = {
            before: one for before, one in alike.items() if sum(len(shape) == TABLE for shape in one.values()) > FEW
        }
        if not alike:
            raise InputError("there are no equal groups of maps and norms, one for each layer")
        before = max(alike, key=lambda one: len(groups[one]) * sum(map(math.prod, alike[one].values())))
        return before, "", alike[before]

    def _patch(self, width: int) -> str:
        maps = _modules(self.left)
        convolutions = [name for name, shape in maps.items() if len(shape) == 4 and shape[0] == width]  # noqa: PLR2004
        square = [name for name in convolutions if maps[name][2] == maps[name][3]]
        if len(square) == 1 and sum(len(shape) == 4 for shape in maps.values()) == 1:  # noqa: PLR2004
            return square[0]
        linear = [
            name
            for name, shape in maps.items()
            if len(shape) == TABLE
            and shape[0] == width
            and patches_of(shape[1])
            and not re.search("head|class|pos", name)
        ]
        if convolutions or len(linear) != 1:
            what = listed(sorted({*convolutions, *linear})) if convolutions or linear else "none there"
            raise InputError(f"which map is the projection of the patches is not clear ({what})")
        return linear[0]

    def _position(self, width: int) -> str:
        def table(shape: tuple[int, ...]) -> bool:
            return len(shape) > 1 and shape[-1] == width and math.prod(shape[:-1]) == shape[-2] > 1

        named = self._named(r"pos", table)
        if named:
            return named
        others = [
            name
            for name, shape in self.left.items()
            if table(shape)
            and name != self._registers(width)
            and f"{_module_of(name)}.bias" not in self.left  # an embedding has none, a map mostly does
            and any(math.isqrt(shape[-2] - few) ** 2 == shape[-2] - few for few in (0, 1, 2))
        ]
        return others[0].removesuffix(".weight") if len(others) == 1 else ""

    def _registers(self, width: int) -> str:
        return self._named(r"reg", lambda shape: shape[-1:] == (width,) and len(shape) > 1, bare=True)

    def _token(self, width: int) -> str:
        def token(shape: tuple[int, ...]) -> bool:
            return math.prod(shape) == width == shape[-1]

        named = self._named(r"cls|class", token, bare=True)
        others = [name for name, shape in self.left.items() if token(shape) and not _module_of(name)]
        others = [name for name in others if name != self._registers(width)]
        return named or (others[0] if len(others) == 1 else "")

    def _norm(self, width: int) -> str:
        norms = [name for name, shape in _modules(self.left).items() if shape == (width,)]
        return norms[0] if len(norms) == 1 else ""

    def _logits(self, width: int) -> str:
        maps = [
            name
            for name, shape in _modules(self.left).items()
            if len(shape) == TABLE and shape[1] == width and name not in (self._patch(width), self._position(width))
        ]
        return maps[0] if len(maps) == 1 else ""

    def _named(self, words: str, fits: Any, *, bare: bool = False) -> str:
        """The one name outside the blocks that has a word in it, and fits: a tensor, or an embedding."""
        names = [
            name
            for name, shape in self.left.items()
            if re.search(words, name.lower()) and fits(shape) and not (bare and _module_of(name))
        ]
        if len(names) > 1:
            names = [name for name in names if not name.endswith(".bias")]
        return names[0].removesuffix(".weight") if len(names) == 1 else ""


def _inside(name: str, prefix: str, suffix: str) -> bool:
    return re.match(re.escape(prefix) + r"\d+" + re.escape(suffix) + r"\.", name) is not None


def _module_of(name: str) -> str:
    """The map or norm that a tensor is the weight or the bias of."""
    module, _, end = name.rpartition(".")
    return module if end in ("weight", "bias") else ""


def _modules(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Maps and norms, by the shape of their weights."""
    return {name.removesuffix(".weight"): shape for name, shape in shapes.items() if name.endswith(".weight")}


def _most(numbers: list[int]) -> int:
    if not numbers:
        raise InputError("the groups have no norms")
    return max(numbers, key=lambda number: (numbers.count(number), number))


def _roles(maps: dict[str, tuple[int, ...]], width: int) -> dict[str, str]:
    """Which map of a block is which: as shapes allow, and then as names say."""
    best: list[tuple[float, dict[str, str]]] = []
    for roles in ROLES:
        if len(maps) == len(roles):
            for order in permutations(maps):
                assigned = dict(zip(roles, order, strict=True))
                if _fits({role: maps[name] for role, name in assigned.items()}, width):
                    best.append((_named_so(assigned), assigned))
    if not best:
        shapes = ", ".join(f"{name} {shape}" for name, shape in maps.items())
        raise InputError(f"the maps of a layer are not those of attention and feed-forward: {shapes}")
    top = max(score for score, _ in best)
    likely = [assigned for score, assigned in best if score == top]
    if len(likely) > 1:
        unclear = sorted({one[role] for one in likely for role in one if one[role] != likely[0][role]})
        raise InputError(f"of maps of one shape no name says which is which: {', '.join(unclear)}")
    return likely[0]


def _fits(shapes: dict[str, tuple[int, ...]], width: int) -> bool:
    """Whether shapes are those of attention (3a w or three a w, w a) and feed-forward (h w or 2h w, w h)."""
    queries = [shapes[role] for role in ("query", "key", "value", "qkv") if role in shapes]
    rows = sum(shape[0] for shape in queries)
    (inner, in_width), (out_width, hidden) = shapes["inner"], shapes["outer"]
    return (
        all(shape[1] == width and 3 * shape[0] == rows * (3 // len(queries)) for shape in queries)
        and shapes["out"] == (width, rows // 3)
        and in_width == out_width == width
        and inner in (hidden, 2 * hidden)
    )


def _named_so(assigned: dict[str, str]) -> float:
    """How much the names agree with what they are taken for."""
    score = 0.0
    for role, name in assigned.items():
        words = name.lower().split(".")
        score += any(re.fullmatch(WORDS[role], word) for word in words)
        apart, together = bool(FEED_FORWARD.search(name.lower())), bool(ATTENTION.search(name.lower()))
        score += (apart - together) if role in ("inner", "outer") else (together - apart)
    score += 0.1 * (_natural(assigned["inner"]) < _natural(assigned["outer"]))
    return score


def _two(names: Iterable[str], roles: dict[str, str]) -> tuple[str, str]:
    """Of two norms the one of attention and the one of the feed-forward: as they stand with them, or in order."""
    both = sorted(names, key=_natural)
    if len(both) != NORMS:
        raise InputError(f"a layer has {len(both)} norms of its width, where two were expected")

    def nearer(name: str) -> int:
        attention, feed = roles["out"], roles["inner"]
        by_word = bool(FEED_FORWARD.search(name.lower())) - bool(ATTENTION.search(name.lower()))
        return by_word or _shared(name, feed) - _shared(name, attention)

    first, second = both
    return (second, first) if nearer(first) > nearer(second) else (first, second)


def _shared(one: str, other: str) -> int:
    """How many words two names begin with together."""
    pairs = zip(one.split(".")[:-1] or [one], other.split("."), strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), 1)


def _natural(name: str) -> list[tuple[int, str]]:
    """As people sort names with numbers in them."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _table(names: Names, tensors: Tensors) -> list[str]:
    """Each part, its name in the file, and its shape."""
    lines = []
    for part in PARTS:
        theirs = getattr(names, part)
        for name in theirs if isinstance(theirs, tuple) else [theirs]:
            first = name.format(0) if name else ""
            lazy = tensors.get(first) or tensors.get(f"{first}.weight")
            if lazy is not None:
                lines.append(f"  {part:<12} {name}  {' x '.join(map(str, lazy.shape))}")
    return lines
