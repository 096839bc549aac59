"""A stack that is called again and again, flat: the blocks' own formulas in few calls, for decoding.

What a small model does in a step takes less time than calling its modules. So their parameters are used as they are,
the keys and values of a context are made once, and those of all layers' steps have one place, which does not move as
they grow (bench/README.md). Whatever is not usual goes through the blocks themselves.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core.attention import Attention, Cache, join_heads, split_heads
from vitrail.core.block import Block, FeedForward, Stack, Sublayer
from vitrail.core.masks import CAUSAL, NONE, Mask
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
    """x W + b, x (n i), with the parameters of a linear map as they are at the time."""

    def __init__(self, map_: nn.Linear) -> None:
        self.weight = map_.weight.T
        self.bias: Tensor | None = map_.bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class Attending(Written):
    """A sublayer of attention."""

    def __init__(self, sublayer: Sublayer) -> None:
        super().__init__(sublayer)
        f: Any = sublayer.f
        self.f, self.query, self.key_value, self.out = f, Map(f.query), Map(f.key_value), Map(f.out)

    def read(self, q: Tensor, keys_values: Tensor, mask: Mask) -> Tensor:
        """Queries (b i hd), and keys with values (b j c) -> what is written, (b i w) with b and i as one."""
        k, v = keys_values.split(self.f.widths, dim=2)
        z = self.f.kernel.forward(*(split_heads(part, self.f.heads) for part in (q, k, v)), mask)
        return self.out(join_heads(z).flatten(0, 1))


class Feeding(Written):
    """A feed-forward sublayer."""

    def __init__(self, sublayer: Sublayer) -> None:
        super().__init__(sublayer)
        f: Any = sublayer.f
        self.inner, self.activation, self.out = Map(f.inner), f.activation, Map(f.out)

    def __call__(self, x: Tensor) -> Tensor:
        return self.added(x, self.out(self.activation(self.inner(self.given(x)))))


class Layer:
    """A block, those parts of it that there are, and the keys and values of its context (b s c)."""

    def __init__(self, block: Block, context: Tensor | None, mask: Mask) -> None:
        if block.attention is None:
            raise ValueError("a layer without attention keeps nothing from step to step")
        self.own = Attending(block.attention)
        self.cross = None if block.cross is None else Attending(block.cross)
        self.feed = None if block.feed_forward is None else Feeding(block.feed_forward)
        self.mask = mask
        self.context = context
        if self.cross is not None and context is not None:
            self.context = self.cross.key_value(context.flatten(0, 1)).view(*context.shape[:2], -1)

    def select(self, rows: Tensor) -> None:
        """Go on with the contexts of these rows."""
        self.context = None if self.context is None else self.context[rows]
        self.mask = self.mask if self.mask.present is None else Mask(present=self.mask.present[rows])

    def rest(self, x: Tensor, shape: tuple[int, int]) -> Tensor:
        """What comes after it looked at its own tokens, (b i w) with b and i as one."""
        if self.cross is not None and self.context is not None:
            q = self.cross.query(self.cross.given(x)).view(*shape, -1)
            x = self.cross.added(x, self.cross.read(q, self.context, self.mask))
        return x if self.feed is None else self.feed(x)


class Flat:
    """A stack, and a context (b s w) that all of it looks at, again and again."""

    def __init__(self, stack: Stack, context: Tensor | None = None, mask: Mask = NONE) -> None:
        self.layers = [Layer(block, context, mask) for block in stack]

    def select(self, rows: Tensor) -> None:
        """Go on with the contexts of these rows."""
        for layer in self.layers:
            layer.select(rows)


class FlatPasses(Flat):
    """All tokens of a sequence at once, each seeing all."""

    def __call__(self, x: Tensor, mask: Mask = NONE) -> Tensor:
        """(b n w) -> (b n w)."""
        shape = (x.shape[0], x.shape[1])
        x = x.flatten(0, 1)
        for layer in self.layers:
            own, y = layer.own, layer.own.given(x)
            x = own.added(x, own.read(own.query(y).view(*shape, -1), own.key_value(y).view(*shape, -1), mask))
            x = layer.rest(x, shape)
        return x.view(*shape, -1)


class FlatSteps(Flat):
    """One token after another: the new one of each row (b w) -> (b w), which sees those before it."""

    def __init__(self, stack: Stack, context: Tensor | None = None, mask: Mask = NONE) -> None:
        super().__init__(stack, context, mask)
        self.length = 0
        self.kept: Tensor | None = None  # keys and values of every step, (t l b c)

    def __call__(self, x: Tensor) -> Tensor:
        """One step more."""
        kept = self._room(x)
        for number, layer in enumerate(self.layers):
            own, y = layer.own, layer.own.given(x)
            kept[self.length, number] = own.key_value(y)
            past = kept[: self.length + 1, number].transpose(0, 1)  # (b t c)
            x = own.added(x, own.read(own.query(y)[:, None], past, CAUSAL))
            x = layer.rest(x, (x.shape[0], 1))
        self.length += 1
        return x

    def take(self, cache: Cache) -> None:
        """Go on after the tokens that a cache has seen."""
        seen = [cache.at(number).at("attention").grown for number in range(len(self.layers))]
        self.length = cache.length
        if self.length:
            kept = torch.stack([one for one in seen if one is not None]).permute(2, 0, 1, 3)  # (t l b c)
            self.kept = torch.cat([kept, torch.empty_like(kept[:ROOM])])

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
            self.kept = x.new_empty(ROOM, len(self.layers), x.shape[0], sum(self.layers[0].own.f.widths))
        elif self.length == self.kept.shape[0]:
            self.kept = torch.cat([self.kept, torch.empty_like(self.kept)])
        return self.kept


def flat(stack: Stack) -> bool:
    """Whether it can be called flat: of usual parts, evaluated without gradients, with no one who looks inside."""
    attentions: list[Any] = [block.attention.f for block in stack if block.attention is not None]
    return (
        not torch.is_grad_enabled()
        and not stack.training
        and len(attentions) == len(stack)
        and all(_usual(one) for block in stack for one in block.sublayers())
        and len({f.widths for f in attentions}) == 1
        and not any(module._forward_hooks or module._forward_pre_hooks for module in stack.modules())  # noqa: SLF001
    )


def _usual(sublayer: Sublayer) -> bool:
    f = sublayer.f
    return type(sublayer.norm) is LayerNorm and type(f) in (Attention, FeedForward) and getattr(f, "turn", None) is None
