"""What the parts of a ViT are called in a file whose names were never seen: guessed from shapes, then from words.

The numbered groups that are all alike are its blocks. In them maps are told apart by their shapes, and where these are
the same by words in their names; what neither tells is an error, never a guess.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from vitrail.errors import InputError
from vitrail.weights.files import listed
from vitrail.weights.formats.vit.names import Names

Sizes = tuple[int, ...]
MAP, CONVOLUTION = 2, 4  # axes of their weights
WORDS = {  # that names have in them, of what they are
    "qkv": r"qkv|in_proj|query_key_value|c_attn|to_qkv",
    "query": r"q|query|queries|wq|q_proj|to_q|q_lin|lin_q|linear_q",
    "key": r"k|key|keys|wk|k_proj|to_k|k_lin|lin_k|linear_k",
    "value": r"v|value|values|wv|v_proj|to_v|v_lin|lin_v|linear_v",
    "out": r"out|proj|out_proj|o_proj|to_out|o|wo|dense|projection|c_proj|fc_out|output|linear_out",
    "inner": r"fc1|linear1|lin1|w1|inner|intermediate|up|fc_1|dense1|expand|c_fc|mlp_in|linear_1",
    "outer": r"fc2|linear2|lin2|w2|outer|output|down|fc_2|dense2|contract|c_proj|mlp_out|linear_2",
}
ROLES = (("qkv", "out", "inner", "outer"), ("query", "key", "value", "out", "inner", "outer"))
ATTENTION, FEED_FORWARD = re.compile(r"att|msa|mha"), re.compile(r"mlp|ffn|feed|fwd|ff")
FIRST, SECOND = re.compile(r"before|pre|input|_in\b"), re.compile(r"after|post|mid|out")
NO_TOKEN, NO_POSITION = re.compile(r"mask|dist|reg"), re.compile(r"head|class|fc|logit|pred|out|proj")


def found_names(shapes: Mapping[str, Sizes]) -> Names:
    """What the parts are called, of tensors with these shapes; an error that says what could not be found."""
    return _Guess(shapes).names()


def likely_patches(count: int, channels: int | None = None) -> list[tuple[int, int]]:
    """The channels and the side of patches of so many numbers, the likeliest first."""
    sides = [(many, math.isqrt(count // many)) for many in ((channels,) if channels else (3, 1, 4)) if count >= many]
    return [(many, side) for many, side in sides if many * side * side == count and side > 1]


@dataclass
class _Guess:
    """Names and shapes, and what they seem to be."""

    shapes: Mapping[str, Sizes]
    left: dict[str, Sizes] = field(default_factory=dict)  # outside the blocks
    width: int = 0

    def names(self) -> Names:
        prefix, block = self._blocks()
        inside = re.compile(re.escape(prefix) + r"\d+\.")
        self.left = {name: shape for name, shape in self.shapes.items() if not inside.match(name)}
        self.width = _width(block)
        roles = _roles(_maps(block), self.width)
        norms = [name for name, shape in _modules(block).items() if shape == (self.width,)]
        bare = [name for name, shape in block.items() if shape == (self.width,) and not _module_of(name)]
        scales = [name for name in bare if not re.search(r"bias|(^|[._])[qkv]_", name)]
        pair = _two(scales, roles) if len(scales) == 2 else ("", "")  # noqa: PLR2004
        if len(norms) != 2:  # noqa: PLR2004
            raise InputError(f"a layer has {len(norms)} norms of its width, where two were expected")
        first, second = _two(norms, roles)

        def at(name: str) -> str:
            return f"{prefix}{{}}.{name}" if name else ""

        return Names(
            patch=self._patch(),
            class_token=self._token(),
            position=self._position(),
            registers=self._registers(),
            norm1=at(first),
            norm2=at(second),
            attention=tuple(at(roles[one]) for one in (("qkv",) if "qkv" in roles else ("query", "key", "value"))),
            out=at(roles["out"]),
            inner=at(roles["inner"]),
            outer=at(roles["outer"]),
            scale1=at(pair[0]),
            scale2=at(pair[1]),
            norm=self._norm(),
            logits=self._logits(),
        )

    def _blocks(self) -> tuple[str, dict[str, Sizes]]:
        """The numbered groups that are all alike, with maps of attention and feed-forward, of the most numbers: what
        comes before the number, and what each of them holds.
        """
        groups: dict[str, dict[int, dict[str, Sizes]]] = {}
        for name, shape in self.shapes.items():
            words = name.split(".")
            for index, word in enumerate(words[:-1]):
                number = re.fullmatch(r"(.*?)(\d+)", word)
                if number:
                    before = ".".join([*words[:index], number[1]])
                    groups.setdefault(before, {}).setdefault(int(number[2]), {})[".".join(words[index + 1 :])] = shape
        alike: dict[str, dict[str, Sizes]] = {}
        for before, each in groups.items():
            one = next(iter(each.values()))
            if max(each) - min(each) + 1 == len(each) and all(other == one for other in each.values()):
                alike[before] = one
        maps = {before: one for before, one in alike.items() if len(_maps(one)) >= len(ROLES[0])}
        if not maps:
            raise InputError("there are no equal groups of maps and norms, one for each layer")
        fitting = {before: one for before, one in maps.items() if _ways(_maps(one), _width(one))}

        def numbers(before: str) -> int:
            return len(groups[before]) * sum(map(math.prod, maps[before].values()))

        if not fitting:
            largest = max(maps, key=lambda before: (len(groups[before]), numbers(before)))
            _roles(_maps(maps[largest]), _width(maps[largest]))  # which says why
        most = max(map(numbers, fitting))
        largest, *others = [before for before in fitting if numbers(before) == most]
        if others:
            raise InputError(f"{largest!r} and {others[0]!r} are two stacks of layers of one size")
        return largest, fitting[largest]

    def _patch(self) -> str:
        maps = _modules(self.left)
        convolutions = [name for name, shape in maps.items() if len(shape) == CONVOLUTION]
        square = [name for name in convolutions if maps[name][0] == self.width and maps[name][2] == maps[name][3]]
        if len(square) == len(convolutions) == 1:
            return square[0]
        linear = [
            name
            for name, shape in _maps(self.left).items()
            if shape[0] == self.width and likely_patches(shape[1]) and not re.search("head|class|pos", name)
        ]
        if convolutions or len(linear) != 1:
            what = listed(sorted({*convolutions, *linear})) if convolutions or linear else "there is none"
            raise InputError(f"which map is the projection of the patches is not clear ({what})")
        return linear[0]

    def _position(self) -> str:
        def table(shape: Sizes) -> bool:
            return len(shape) > 1 and shape[-1] == self.width and math.prod(shape[:-1]) == shape[-2] > 1

        def of_a_square(count: int) -> bool:
            return any(math.isqrt(count - few) ** 2 == count - few for few in (0, 1, 2))

        others = [
            name
            for name, shape in self.left.items()
            if table(shape)
            and of_a_square(shape[-2])
            and name != self._registers()
            and not NO_POSITION.search(name.lower())
            and f"{_module_of(name)}.bias" not in self.left  # an embedding has none, a map mostly does
        ]
        return self._named("pos", table) or (others[0].removesuffix(".weight") if len(others) == 1 else "")

    def _token(self) -> str:
        def token(shape: Sizes) -> bool:
            return math.prod(shape) == self.width == shape[-1]

        others = [name for name, shape in self.left.items() if token(shape) and not _module_of(name)]
        others = [name for name in others if not NO_TOKEN.search(name.lower())]
        return self._named("cls|class", token, bare=True) or (others[0] if len(others) == 1 else "")

    def _registers(self) -> str:
        return self._named("reg", lambda shape: shape[-1:] == (self.width,) and len(shape) > 1, bare=True)

    def _norm(self) -> str:
        norms = [name for name, shape in _modules(self.left).items() if shape == (self.width,)]
        return norms[0] if len(norms) == 1 else ""

    def _logits(self) -> str:
        known = (self._patch(), self._position())
        maps = [name for name, shape in _maps(self.left).items() if shape[1] == self.width and name not in known]
        return maps[0] if len(maps) == 1 else ""

    def _named(self, words: str, fits: Callable[[Sizes], bool], *, bare: bool = False) -> str:
        """The one name outside the blocks that has a word in it, and fits: a tensor, or an embedding."""
        names = [
            name
            for name, shape in self.left.items()
            if re.search(words, name.lower()) and fits(shape) and not (bare and _module_of(name))
        ]
        return names[0].removesuffix(".weight") if len(names) == 1 else ""


def _module_of(name: str) -> str:
    """The map or norm that a tensor is the weight or the bias of."""
    module, _, end = name.rpartition(".")
    return module if end in ("weight", "bias") else ""


def _modules(shapes: Mapping[str, Sizes]) -> dict[str, Sizes]:
    """Maps and norms, by the shape of their weights."""
    return {name.removesuffix(".weight"): shape for name, shape in shapes.items() if name.endswith(".weight")}


def _maps(shapes: Mapping[str, Sizes]) -> dict[str, Sizes]:
    return {name: shape for name, shape in _modules(shapes).items() if len(shape) == MAP}


def _width(block: Mapping[str, Sizes]) -> int:
    """That of most of its norms."""
    sizes = [shape[0] for shape in _modules(block).values() if len(shape) == 1]
    return max(sizes, key=lambda size: (sizes.count(size), size), default=0)


def _ways(maps: dict[str, Sizes], width: int) -> list[dict[str, str]]:
    """All ways in which the maps of a block can be those of attention and feed-forward, by their shapes."""
    orders = (
        dict(zip(roles, order, strict=True))
        for roles in ROLES
        if len(maps) == len(roles)
        for order in permutations(maps)
    )
    return [one for one in orders if _fits({role: maps[name] for role, name in one.items()}, width)]


def _roles(maps: dict[str, Sizes], width: int) -> dict[str, str]:
    """Which map of a block is which: as shapes allow, and then as names say."""
    ways = _ways(maps, width)
    if not ways:
        shapes = ", ".join(f"{name} {shape}" for name, shape in list(maps.items())[:8]) + ", ..." * (len(maps) > 8)  # noqa: PLR2004
        raise InputError(f"the maps of a layer are not those of attention and feed-forward: {shapes}")
    top = max(map(_named_so, ways))
    likely = [one for one in ways if _named_so(one) == top]
    if len(likely) > 1:
        unclear = sorted({one[role] for one in likely for role in one if one[role] != likely[0][role]})
        raise InputError(f"of maps of one shape no name says which is which: {', '.join(unclear)}")
    return likely[0]


def _fits(shapes: dict[str, Sizes], width: int) -> bool:
    """Whether shapes are those of attention (3a w or three a w, w a) and feed-forward (h w or 2h w, w h)."""
    queries = [shapes[role] for role in ("query", "key", "value", "qkv") if role in shapes]
    rows = sum(shape[0] for shape in queries)
    (inner, in_width), (out_width, hidden) = shapes["inner"], shapes["outer"]
    return (
        all(shape[1] == width and shape[0] * len(queries) == rows for shape in queries)
        and shapes["out"] == (width, rows // 3)
        and rows % 3 == 0
        and in_width == out_width == width
        and inner in (hidden, 2 * hidden)
    )


def _named_so(assigned: dict[str, str]) -> float:
    """How much the names agree with what they are taken for."""
    score = 0.0
    for role, name in assigned.items():
        score += any(re.fullmatch(WORDS[role], word) for word in name.lower().split("."))
        apart, together = bool(FEED_FORWARD.search(name.lower())), bool(ATTENTION.search(name.lower()))
        score += (apart - together) if role in ("inner", "outer") else (together - apart)
    return score + 0.1 * (_natural(assigned["inner"]) < _natural(assigned["outer"]))


def _two(names: list[str], roles: dict[str, str]) -> tuple[str, str]:
    """Of two norms, or scales, the one of attention and the one of the feed-forward."""
    one, other = sorted(names, key=_natural)
    if _counted(one, other):
        return one, other
    for says in (_when, _of_what, lambda name: _shared(name, roles["inner"]) - _shared(name, roles["out"])):
        if says(one) != says(other):
            return (one, other) if says(one) < says(other) else (other, one)
    raise InputError(f"no name says which comes first: {one}, {other}")


def _counted(one: str, other: str) -> bool:
    """Whether two names differ in a number, or in a single letter, alone: norm1 and norm2, ln_a and ln_b."""
    split = re.compile(r"(\d+|(?<![a-z])[a-z](?![a-z])|[._])")
    pairs = [pair for pair in zip(split.split(one), split.split(other), strict=False) if pair[0] != pair[1]]
    same = len(split.split(one)) == len(split.split(other))
    return same and len(pairs) == 1 and all(re.fullmatch(r"\d+|[a-z]", word) for word in pairs[0])


def _when(name: str) -> int:
    """Before (-1) or after (1), as words say."""
    return bool(SECOND.search(name.lower())) - bool(FIRST.search(name.lower()))


def _of_what(name: str) -> int:
    """Of attention (-1) or of the feed-forward (1), as words say."""
    return bool(FEED_FORWARD.search(name.lower())) - bool(ATTENTION.search(name.lower()))


def _shared(one: str, other: str) -> int:
    """How many words two names begin with together."""
    pairs = list(zip(one.split(".")[:-1], other.split("."), strict=False))
    return next((count for count, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _natural(name: str) -> list[tuple[int, str]]:
    """As people sort names with numbers in them."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
