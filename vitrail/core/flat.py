"""A stack that is called again and again, flat: the blocks' own formulas in few calls, for decoding.

What a small model does in a step takes less time than calling its modules. So products that share their input are
joined, as those of all layers' keys of a context are, and the keys and values of all layers have one place, which does
not move as they grow (bench/README.md). Whatever is not usual goes through the blocks themselves.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.block import FeedForward, Stack, Sublayer
from vitrail.core.kernels import Softmax
from vitrail.core.norms import LayerNorm

ROOM = 16  # steps that there is room for at first; twice as many, whenever they are full


class Written:
    """x + f(LN(x)), or LN(x + f(x)): what is around every function of a step."""

    def __init__(self, sublayer: Sublayer) -> None:
        norm: Any = sublayer.norm
        self.norm = (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        self.pre, self.scale = sublayer.order == "pre", sublayer.scale

    def given(self, x: Tensor) -> Tensor:
        """What the function is given."""
        return torch.layer_norm(x, *self.norm) if self.pre else x

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream with what it writes."""
        x = x + (y if self.scale is None else y * self.scale)
        return x if self.pre else torch.layer_norm(x, *self.norm)


class Map:
    """x W + b, x (n i), of one linear map or of several that share their input."""

    def __init__(self, *maps: nn.Linear) -> None:
        biases: list[Any] = [one.bias for one in maps]
        self.weight = torch.cat([one.weight for one in maps]).T.contiguous()
        self.bias = None if biases[0] is None else torch.cat(biases)

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class Attending(Written):
    """A sublayer of attention: to a context, or to what came before."""

    def __init__(self, sublayer: Sublayer, *, context: bool) -> None:
        super().__init__(sublayer)
        f: Any = sublayer.f
        self.into = Map(f.query) if context else Map(f.query, f.key_value)
        self.out, self.heads, self.widths, self.factor = Map(f.out), f.heads, f.widths, f.kernel.scale

    def read(self, q: Tensor, keys_values: Tensor, seen: Tensor | None = None) -> Tensor:
        """Queries (b i hd), and keys with values (b j c) -> what is written, (b i w) with b and i as one."""
        k, v = keys_values.split(self.widths, dim=2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=self.factor)
        return self.out(z.transpose(1, 2).reshape(-1, self.widths[1]))


class Feeding(Written):
    """A feed-forward sublayer."""

    def __init__(self, sublayer: Sublayer) -> None:
        super().__init__(sublayer)
        f: Any = sublayer.f
        self.inner, self.activation, self.out = Map(f.inner), f.activation, Map(f.out)

    def __call__(self, x: Tensor) -> Tensor:
        return self.added(x, self.out(self.activation(self.inner(self.given(x)))))


@dataclass(frozen=True, eq=False)
class Layer:
    """A block, those parts of it that there are."""

    own: Attending
    cross: Attending | None
    feed: Feeding | None


@dataclass(frozen=True, eq=False)
class Parts:
    """Of a stack, as its parameters were: a copy of them, laid out for this."""

    layers: list[Layer]
    contexts: Map | None  # to the keys and values of a context, of all layers
    known: tuple[tuple[int, int], ...]  # which parameters those were, and how often each had been changed


_PARTS: WeakKeyDictionary[Stack, Parts] = WeakKeyDictionary()


def _parts(stack: Stack) -> Parts:
    """Made once, and again when a parameter has changed."""
    now = tuple((id(one), one._version) for one in stack.parameters())  # noqa: SLF001
    parts = _PARTS.get(stack)
    if parts is None or parts.known != now:
        layers = [
            Layer(
                Attending(block.attention, context=False),
                None if block.cross is None else Attending(block.cross, context=True),
                None if block.feed_forward is None else Feeding(block.feed_forward),
            )
            for block in stack
            if block.attention is not None
        ]
        crosses: list[Any] = [block.cross.f for block in stack if block.cross is not None]
        contexts = Map(*(f.key_value for f in crosses)) if crosses else None
        parts = _PARTS[stack] = Parts(layers, contexts, now)
    return parts


class Flat:
    """A stack, and a context (b s w) that all of it looks at, again and again."""

    def __init__(self, stack: Stack, context: Tensor | None = None, present: Tensor | None = None) -> None:
        parts = _parts(stack)
        self.layers, count = parts.layers, len(parts.layers)
        self.contexts: list[Tensor] = []  # keys and values of the context, (b s c) for each layer
        if context is not None and parts.contexts is not None:
            every = parts.contexts(context.flatten(0, 1)).view(*context.shape[:2], -1)
            self.contexts = list(every.chunk(count, -1))
        self.seen = None if present is None else present[:, None, None]

    def select(self, rows: Tensor) -> None:
        """Go on with the contexts of these rows."""
        self.contexts = [one[rows] for one in self.contexts]
        self.seen = None if self.seen is None else self.seen[rows]

    def rest(self, x: Tensor, number: int, shape: tuple[int, int]) -> Tensor:
        """What a layer does after it looked at its own tokens, (b i w) with b and i as one."""
        layer = self.layers[number]
        if layer.cross is not None:
            q = layer.cross.into(layer.cross.given(x)).view(*shape, -1)
            x = layer.cross.added(x, layer.cross.read(q, self.contexts[number], self.seen))
        return x if layer.feed is None else layer.feed(x)


class FlatPasses(Flat):
    """All tokens of a sequence at once, each seeing all."""

    def __call__(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        """(b n w), and which of them are there (b n) -> (b n w)."""
        shape, seen = (x.shape[0], x.shape[1]), None if present is None else present[:, None, None]
        x = x.flatten(0, 1)
        for number, layer in enumerate(self.layers):
            own = layer.own
            both = own.into(own.given(x)).view(*shape, -1)
            x = own.added(x, own.read(both[..., : own.widths[0]], both[..., own.widths[0] :], seen))
            x = self.rest(x, number, shape)
        return x.view(*shape, -1)


class FlatSteps(Flat):
    """One token after another: the new one of each row (b w) -> (b w), which sees those before it."""

    def __init__(self, stack: Stack, context: Tensor | None = None, present: Tensor | None = None) -> None:
        super().__init__(stack, context, present)
        self.length = 0
        self.kept: Tensor | None = None  # keys and values of every step, (t l b c)

    def __call__(self, x: Tensor) -> Tensor:
        """One step more."""
        kept = self._room(x)
        for number, layer in enumerate(self.layers):
            own = layer.own
            both = own.into(own.given(x))
            kept[self.length, number] = both[:, own.widths[0] :]
            past = kept[: self.length + 1, number].transpose(0, 1)  # (b t c)
            x = own.added(x, own.read(both[:, None, : own.widths[0]], past))
            x = self.rest(x, number, (len(x), 1))
        self.length += 1
        return x

    def reorder(self, rows: Tensor, *, contexts: bool = True) -> None:
        """Go on with these rows, each with its own past, and with its own context unless each place keeps the one it
        has.
        """
        if self.kept is not None:
            chosen = self.kept.new_empty(*self.kept.shape[:2], len(rows), self.kept.shape[3])
            torch.index_select(self.kept[: self.length], 2, rows, out=chosen[: self.length])
            self.kept = chosen
        if contexts:
            self.select(rows)

    def _room(self, x: Tensor) -> Tensor:
        """Where keys and values are put, with room for one step more."""
        if self.kept is None:
            self.kept = x.new_empty(ROOM, len(self.layers), x.shape[0], sum(self.layers[0].own.widths))
        elif self.length == self.kept.shape[0]:
            self.kept = torch.cat([self.kept, torch.empty_like(self.kept)])
        return self.kept


def flat(stack: Stack) -> bool:
    """Whether steps can be taken flat: of usual parts, evaluated, with no one who looks inside."""
    attentions: list[Any] = [block.attention.f for block in stack if block.attention is not None]
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in stack.modules())  # noqa: SLF001
    return (
        len(attentions) == len(stack)
        and all(_usual(one) for block in stack for one in block.sublayers())
        and len({f.widths for f in attentions}) == 1
        and not hooked
        and not stack.training
        and not any(parameter.is_inference() for parameter in stack.parameters())  # of which no change is known
    )


def _usual(sublayer: Sublayer) -> bool:
    f = sublayer.f
    attends = type(f) is Attention and type(f.kernel) is Softmax
    return type(sublayer.norm) is LayerNorm and (attends or type(f) is FeedForward)
