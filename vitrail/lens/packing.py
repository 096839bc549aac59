"""Patterns in few bytes, for a page that shows every head of every layer.

Small ones are kept as they are. Those of many tokens, whose squares would fill hundreds of megabytes, are kept head by
head in one of two ways: by the factors that a softmax is made from, which suits heads that look everywhere, or by the
largest weights of each row, which suits heads that look at little. What is lost is measured, and said.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.core.kernels import Softmax
from vitrail.families import ViT
from vitrail.lens.hooks import Visit
from vitrail.lens.recording import Trace, layer_sites
from vitrail.lens.tokens import Tokens

BUDGET = 16_000_000  # bytes, before they are written in letters, which takes a third more
LEAST = 24  # bytes of a row, below which fewer queries are kept instead


@dataclass(frozen=True)
class Packed:
    """Patterns of all heads, (heads n n), as text, with what a page needs to know to read them."""

    kind: str  # rows, or few
    about: dict[str, Any]
    blocks: dict[str, str]  # base64
    error: tuple[float, float]  # the fraction of a row's weights that is shown elsewhere: on average, and at most


@dataclass
class Lost:
    """The fraction of each row that is shown elsewhere than it is, (..., rows): half the sum of the differences."""

    mean: float = 0.0
    most: float = 0.0
    rows: int = 0

    def add(self, shown: Tensor, true: Tensor) -> None:
        """Some rows more."""
        lost = (shown - true).abs().sum(-1) / 2
        self.mean = (self.mean * self.rows + float(lost.sum())) / (self.rows + lost.numel())
        self.most = max(self.most, float(lost.max()))
        self.rows += lost.numel()


def pack(model: ViT, trace: Trace, tokens: Tokens, picture: int = 0, budget: int = BUDGET) -> Packed:
    """The patterns of one of the pictures, layer by layer; a head that a layer lacks takes no room."""
    names = [site for site in layer_sites(model) if site is not None]
    heads, count = sum(number for number, _ in model.config.layers), tokens.count
    squares = heads * count * count
    for bits in (32, 16, 8):
        if squares * bits // 8 <= budget:
            return _rows(trace, names, picture, bits, list(range(count)))
    each = budget // (heads * count)  # bytes of a row
    if each >= LEAST:
        return _few(trace, names, picture, each)
    return _rows(trace, names, picture, 8, _some(tokens, each))


def _rows(trace: Trace, names: list[str], picture: int, bits: int, queries: list[int]) -> Packed:
    """Each row by its largest weight, and the others as fractions of it."""
    tops, fractions, lost = [], [], Lost()
    whole = 2**bits - 1
    for name in names:
        a = trace.pattern(name, rows=queries)[picture].float().cpu()
        if bits == 32:  # noqa: PLR2004
            fractions.append(a.numpy().astype("<f4"))
            continue
        top = a.amax(-1, keepdim=True)
        fraction = (a / top.clamp(min=1e-30) * whole).round().clamp(min=0)
        tops.append(top[..., 0].numpy().astype("<f4"))
        fractions.append(fraction.numpy().astype("<u2" if bits == 16 else "u1"))  # noqa: PLR2004
        lost.add(fraction * (top / whole), a)
    blocks = {"fractions": letters(np.concatenate(fractions))} | (
        {"tops": letters(np.concatenate(tops))} if tops else {}
    )
    return Packed("rows", {"bits": bits, "queries": queries}, blocks, (lost.mean, lost.most))


def _few(trace: Trace, names: list[str], picture: int, each: int) -> Packed:
    """Every head in the way that loses least of it, in so many bytes a row."""
    kept: dict[str, list[dict[str, Any]]] = {}
    slots, lost = [], []  # of every head the way, and its place among those kept so
    for name in names:
        ways = _ways(trace.visit(name), picture, each)
        for rows, a in trace.in_rows(name):
            true = a[picture].float().cpu()
            for way in ways:
                way.see(rows, true)
        for head in range(len(true)):
            best = min(ways, key=lambda way: way.lost[head].mean)
            alike = kept.setdefault(best.name, [])
            slots.append((best.name, len(alike)))
            alike.append(best.parts(head))
            lost.append(best.lost[head])
    blocks, sizes = {}, {}
    for way_name, heads in kept.items():
        for part in heads[0]:
            array = np.stack([parts[part] for parts in heads])
            blocks[f"{way_name}-{part}"], sizes[f"{way_name}-{part}"] = letters(array), array.shape[-1]
    error = (float(np.mean([one.mean for one in lost])), max(one.most for one in lost))
    return Packed("few", {"slots": slots, "sizes": sizes}, blocks, error)


def _ways(visit: Visit, picture: int, each: int) -> list["_Way"]:
    """The ways in which the heads of a site can be kept in so many bytes a row."""
    ways: list[_Way] = [_Largest(visit.q.shape[1], max(1, (each - 8) // 3))]
    if type(visit.kernel) is Softmax and visit.mask.trivial and visit.in_parts:  # of queries times keys alone
        room, width = each // 2, visit.q.shape[-1]
        ways.append(_Factors("bytes", visit, picture, (min(width, room), 0)))
        if room < width:  # more directions, most of them in half a byte
            fine = max(0, 2 * room - width)
            ways.append(_Factors("halves", visit, picture, (fine, min(width, 2 * room) - fine)))
    return ways


class _Way:
    """A way to keep the heads of a site: it sees their patterns some rows at a time, and what it loses of each head."""

    def __init__(self, name: str, heads: int) -> None:
        self.name, self.lost = name, [Lost() for _ in range(heads)]

    def see(self, rows: slice, a: Tensor) -> None:
        """Some rows of all heads, (h rows j)."""
        shown = self.shown(rows, a)
        for lost, mine, true in zip(self.lost, shown, a, strict=True):
            lost.add(mine, true)

    def shown(self, rows: slice, a: Tensor) -> Tensor:
        """What a reader will see of them."""
        raise NotImplementedError

    def parts(self, head: int) -> dict[str, Any]:
        """What is kept of a head, when all was seen."""
        raise NotImplementedError


class _Largest(_Way):
    """The largest weights of each row, in bytes; what they leave is spread over the others evenly."""

    def __init__(self, heads: int, count: int) -> None:
        super().__init__("largest", heads)
        self.count = count
        self.seen: list[tuple[Any, Any, Any]] = []

    def shown(self, rows: slice, a: Tensor) -> Tensor:
        del rows
        keys = a.shape[-1]
        weights, index = a.topk(min(self.count, keys), -1)
        top = weights[..., :1].clamp(min=1e-30)
        fraction = (weights / top * 255).round().clamp(min=0)
        shown = fraction * (top / 255)
        rest = (a.sum(-1, keepdim=True) - shown.sum(-1, keepdim=True)).clamp(min=0) / max(1, keys - self.count)
        both = torch.cat([top, rest], -1)
        self.seen.append((index.numpy().astype("<u2"), fraction.numpy().astype("u1"), both.numpy().astype("<f4")))
        return rest.expand(-1, -1, keys).scatter(-1, index, shown)

    def parts(self, head: int) -> dict[str, Any]:
        index, fraction, top = (np.concatenate([one[head] for one in part]) for part in zip(*self.seen, strict=True))
        return {"index": index, "fraction": fraction, "top": top}


class _Factors(_Way):
    """softmax(Q' K'^T), Q' and K' the directions in which queries and keys differ most: the first so many in bytes, an
    even number more in half a byte each.

    From the keys their mean is taken away, which a softmax over them does not see.
    """

    def __init__(self, name: str, visit: Visit, picture: int, counts: tuple[int, int]) -> None:
        super().__init__(name, visit.q.shape[1])
        q, k = (part[picture].double().cpu() for part in (visit.q, visit.k))
        scale = q.shape[-1] ** -0.5 if visit.kernel.scale is None else visit.kernel.scale
        left, r = torch.linalg.qr(q * scale)
        right, s = torch.linalg.qr(k - k.mean(1, keepdim=True))
        u, strength, v = torch.linalg.svd(r @ s.mT)
        root, rank = strength.sqrt()[:, None], sum(counts)
        both = [(part * root)[..., :rank] for part in (left @ u, right @ v.mT)]
        levels = torch.tensor([127.0] * counts[0] + [7.0] * counts[1])
        steps = [part.abs().amax(1, keepdim=True).clamp(min=1e-12) / levels for part in both]
        whole = [(part / step).round().float() for part, step in zip(both, steps, strict=True)]
        self.step = (steps[0] * steps[1]).float()
        self.queries, self.keys = whole[0] * self.step, whole[1].mT
        self.stored = [_halved(part.numpy().astype("i1"), counts[0]) for part in whole]

    def shown(self, rows: slice, a: Tensor) -> Tensor:
        del a
        return (self.queries[:, rows] @ self.keys).softmax(-1)

    def parts(self, head: int) -> dict[str, Any]:
        return {"q": self.stored[0][head], "k": self.stored[1][head], "steps": self.step[head, 0].numpy()}


def _halved(numbers: Any, fine: int) -> Any:
    """The numbers after the first so many, from -7 to 7, two in a byte: the second of them in its upper half."""
    coarse = (numbers[..., fine:] + 8).astype("u1")
    pairs = coarse[..., ::2] | (coarse[..., 1::2] << 4)
    return np.concatenate([numbers[..., :fine].view("u1"), pairs], -1)


def _some(tokens: Tokens, most: int) -> list[int]:
    """The tokens before the patches, and patches evenly spread, at most so many."""
    start = len(tokens.prefix)
    if tokens.groups is not None:
        return list(range(min(tokens.count, max(most, start + 1))))
    down, across = tokens.grid
    step = 1
    while start + -(-down // step) * -(-across // step) > max(most, start + 1):
        step += 1
    patches = [y * across + x for y in range(step // 2, down, step) for x in range(step // 2, across, step)]
    return [*range(start), *(start + patch for patch in patches)]


def letters(array: Any) -> str:
    """Numbers as text."""
    return b64encode(np.ascontiguousarray(array).tobytes()).decode()
