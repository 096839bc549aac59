"""One attention layer step by step: every number between what comes in and what goes out, by the formula's names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from vitrail.core import Attention, Sublayer
from vitrail.core.kernels import Softmax
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError

NAMED = 4  # heads, beyond which they are not all written out


@dataclass(frozen=True, eq=False)
class Stage:
    """A matrix, how it came about, and the matrices that it is made of.

    ``how`` says what one of its numbers comes from: "product" (a row of the first times a column of the second, plus
    the third), "transposed" (a row of the first times a row of the second), "cell" (the same cell), "row" (the same
    row), "sum" (the same cell of both), or "" (it is given).
    """

    name: str
    formula: str
    words: str
    values: Tensor  # (rows columns)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    made_of: tuple[str, ...] = ()  # names of earlier steps
    how: str = ""


@torch.no_grad()
def walk(sublayer: Sublayer, x: Tensor, *, head: int = 0, mask: Mask = NONE, tokens: Sequence[str] = ()) -> list[Stage]:
    """The steps of self-attention on tokens (n w), for one of the heads and then for all of them together.

    The last one is what the layer itself gives.
    """
    attention = sublayer.f
    if not isinstance(attention, Attention) or type(attention.kernel) is not Softmax:
        kernel = getattr(attention, "kernel", attention)
        raise InputError(f"only softmax attention is walked through, and this is {type(kernel).__name__}.")
    if not 0 <= head < attention.heads:
        raise InputError(f"head {head + 1} is not there; there are {attention.heads}, counted from 1.")
    names = tuple(tokens) or tuple(f"token {number + 1}" for number in range(len(x)))
    way = _Way(names)
    way.add("x", "x", "The tokens as they come in, a row for each.", x, names)
    if sublayer.order == "pre" and not isinstance(sublayer.norm, nn.Identity):
        words = "Normalised: each row less its mean, divided by its spread, then scaled and shifted as learned."
        way.add("y", "y = norm(x)", words, sublayer.norm(x[None])[0], names, made_of=("x",), how="row")
    z = _one_head(way, attention, head, mask)
    _all_heads(way, attention, z, head)
    _residual(way, sublayer)
    return [replace(stage, values=stage.values.detach().float().cpu()) for stage in way.stages]


def _one_head(way: "_Way", attention: Attention, head: int, mask: Mask) -> Tensor:
    """From the tokens to what one head reads; z of all heads, (h n r)."""
    given, names, parts = way.last, way.names, _parts(attention)
    q = _projected(way, given, "q", "Queries: what each token looks for.", learned=parts["q"], head=head)
    k = _projected(way, given, "k", "Keys: what each token can be found by.", learned=parts["k"], head=head)
    if attention.turn is not None:
        (q,), (k,) = attention.turn(q[None], k[None])
        words = "Turned by their places, so that what two tokens make of each other depends on how far apart they are."
        way.add("q'", "q' = R q", words, q[head], names, made_of=("q",), how="row")
        way.add("k'", "k' = R k", words, k[head], names, made_of=("k",), how="row")
    scores = q @ k.mT
    words = "Scores: how well each token's query (down) meets each token's key (across)."
    both = ("q", "k") if attention.turn is None else ("q'", "k'")
    way.add("s", f"s = {both[0]} {both[1]}ᵀ", words, scores[head], names, names, both, "transposed")
    width, scale = q.shape[-1], attention.kernel.scale
    scaled = scores * (width**-0.5 if scale is None else scale)
    formula = f"t = s / √{width}" if scale is None else f"t = {scale:g} s"
    words = "Divided by the root of a head's width, lest long vectors give large scores and the softmax one winner."
    words = words if scale is None else "Scaled, lest large scores give the softmax one winner."
    way.add("t", formula, words, scaled[head], names, names, ("s",), "cell")
    masked = mask.scores(scaled[None])[0]
    way.add("m", *_mask_words(mask), masked[head], names, names, ("t",), "cell")
    a = mask.weights(masked.softmax(-1)[None])[0]
    words = "e to the power of each number, divided by the sum of its row: weights, and every row sums to 1."
    way.add("A", "A = softmax(m)", words, a[head], names, names, ("m",), "row")
    v = _projected(way, given, "v", "Values: what each token has to give.", learned=parts["v"], head=head)
    words = "Each token reads the values of all, weighed by its row of A."
    way.add("z", "z = A v", words, (a @ v)[head], names, made_of=("A", "v"), how="product")
    return a @ v


def _projected(
    way: "_Way", given: Stage, letter: str, words: str, *, learned: tuple[Tensor, Tensor], head: int
) -> Tensor:
    """Queries, keys or values of all heads, (h n d); those of one are kept."""
    weight, bias = learned
    every = given.values @ weight + bias[:, None]
    big, added = letter.upper(), tuple[str, ...]()
    way.add(f"W_{big}", f"W_{big}", f"Learned: makes a token's {letter}, in head {head + 1}.", weight[head])
    if bias[head].any():
        way.add(f"b_{big}", f"b_{big}", "Learned: added to every row.", bias[head][None])
        added = (f"b_{big}",)
    formula, parts = " + ".join((f"{letter} = {given.name} W_{big}", *added)), (given.name, f"W_{big}", *added)
    way.add(letter, formula, words, every[head], way.names, made_of=parts, how="product")
    return every


def _all_heads(way: "_Way", attention: Attention, z: Tensor, head: int) -> None:
    """What all heads write together."""
    count, rank = z.shape[0], z.shape[2]
    listed = ", ".join(f"z_{one + 1}" for one in range(count)) if count <= NAMED else f"z_1, .., z_{count}"
    words = f"The heads side by side, {count} of them; the one walked through is z_{head + 1}."
    columns = tuple(f"z_{one + 1}[{index + 1}]" for one in range(count) for index in range(rank))
    way.add("Z", f"Z = [{listed}]", words, rearrange(z, "h n r -> n (h r)"), way.names, columns)
    way.add("W_O", "W_O", "Learned: from all heads back to the width of a token.", attention.out.weight.T, columns)
    written, added = way["Z"].values @ attention.out.weight.T + attention.out.bias, tuple[str, ...]()
    if attention.out.bias.any():
        way.add("b_O", "b_O", "Learned: added to every row.", attention.out.bias[None])
        added = ("b_O",)
    formula = " + ".join(("o = Z W_O", *added))
    way.add("o", formula, "What the layer has to say.", written, way.names, made_of=("Z", "W_O", *added), how="product")


def _residual(way: "_Way", sublayer: Sublayer) -> None:
    """What goes on."""
    x, written = way["x"].values, way["o"]
    if sublayer.scale is not None:
        words = "Each column by its learned scale g."
        way.add("p", "p = g o", words, written.values * sublayer.scale, way.names, made_of=("o",), how="cell")
        written = way.last
    words = "Added to what came in: the residual stream goes on, changed by what was read."
    way.add("r", f"r = x + {written.name}", words, x + written.values, way.names, (), ("x", written.name), "sum")
    if sublayer.order == "post" and not isinstance(sublayer.norm, nn.Identity):
        words = "Normalised after the addition, so that what goes on is no longer a sum of what was written."
        way.add("n", "n = norm(r)", words, sublayer.norm(way.last.values[None])[0], way.names, (), ("r",), "row")


class _Way:
    """The steps so far."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.stages = names, list[Stage]()

    @property
    def last(self) -> Stage:
        return self.stages[-1]

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def add(self, *fields: Any, **named: Any) -> None:
        """One step more, by the fields of ``Stage``."""
        self.stages.append(Stage(*fields, **named))


def _mask_words(mask: Mask) -> tuple[str, str]:
    """The mask's formula, and what it does."""
    hides = mask.causal or mask.window is not None or mask.present is not None
    if mask.trivial:
        return "m = t", "The mask: here every token may see every other, so that nothing changes."
    if mask.bias is not None and not hides:
        return "m = t + bias", "What the model learned about the places of two tokens is added to their score."
    if mask.causal and replace(mask, causal=False).trivial:
        return "m = t, or -∞", "The mask: no token may see those after it; minus infinity becomes a weight of 0."
    return "m = t, or -∞", "The mask: what a token may not see is minus infinity, which becomes a weight of 0."


def example() -> tuple[Sublayer, Tensor]:
    """Four small vectors, and a layer of two heads with numbers that can be followed by hand."""
    attention = Attention(4, 2, bias=False)
    with torch.no_grad():
        attention.query.weight.copy_(_QUERY.T)
        attention.key_value.weight.copy_(torch.cat([_KEY, _VALUE], 1).T)
        attention.out.weight.copy_(_OUT.T)
        attention.out.bias.zero_()
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]])
    return Sublayer(attention, nn.Identity(), 4).eval(), x


# Columns 1 and 2 are of the first head, 3 and 4 of the second.
_QUERY = torch.tensor([[0.0, 2.0, 1.0, 0.0], [-1.0, -1.0, 0.0, 2.0], [0.0, -1.0, 2.0, 0.0], [1.0, 0.0, 0.0, -1.0]])
_KEY = torch.tensor([[-1.0, 1.0, -1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [-1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 0.0, 0.0]])
_VALUE = torch.tensor([[1.0, 0.0, 0.5, 0.0], [0.0, 2.0, 0.0, 1.0], [0.5, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.5]])
_OUT = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 1.0]])


def _parts(attention: Attention) -> dict[str, tuple[Tensor, Tensor]]:
    """W (h w d) and b (h d) of queries, keys and values."""
    first, h = attention.widths[0], attention.heads
    query, both = attention.query, attention.key_value
    cut = {"q": (query, slice(None)), "k": (both, slice(0, first)), "v": (both, slice(first, None))}
    parts = {}
    for letter, (linear, rows) in cut.items():
        weight = rearrange(linear.weight[rows], "(h d) w -> h w d", h=h)
        bias: Tensor | None = linear.bias
        given = weight.new_zeros(h * weight.shape[-1]) if bias is None else bias[rows]
        parts[letter] = (weight, rearrange(given, "(h d) -> h d", h=h))
    return parts
