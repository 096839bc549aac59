"""What a query may see. The one place that knows about minus infinity."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import InputError


@dataclass(frozen=True)
class TokenLayout:
    """Where tokens stand: so many before the others, then a grid (y, x), row by row."""

    prefix: int
    grid: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Mask:
    """What is done to the scores before they become weights: hidden pairs get weight exactly 0.

    causal   query i sees the keys up to its own position
    window   query i sees the keys at most this many positions away
    present  (b j), True where a key is really there and not padding
    bias     added to the scores, broadcast to (b h i j); minus infinity hides
    layout   where the tokens stand, which hides nothing: for kernels that look around a token

    Nothing of it is dense but the bias, and a kernel may go by the fields themselves. With fewer queries than keys the
    queries are the last ones, as in cached decoding. A query that may see nothing gives 0, not NaN. Masks combine with
    ``&``.
    """

    causal: bool = False
    window: int | None = None
    present: Tensor | None = None
    bias: Tensor | None = None
    layout: TokenLayout | None = None

    def __post_init__(self) -> None:
        if self.present is not None and (self.present.dtype != torch.bool or self.present.ndim != 2):  # noqa: PLR2004
            shown = f"{self.present.dtype} of shape {tuple(self.present.shape)}"
            raise InputError(f"present is {shown}; it should be bool (b j), True for a key.")
        if self.bias is not None and not self.bias.is_floating_point():
            raise InputError(
                f"bias is {self.bias.dtype}; it is added to the scores, so it should be floating point: to hide what "
                f"is False, give torch.zeros(bias.shape).masked_fill(~bias, -torch.inf)."
            )
        if self.window is not None and self.window < 0:
            raise InputError(f"window={self.window} does not fit; it should be 0 (a token sees itself) or more.")

    def __and__(self, other: "Mask") -> "Mask":
        """Hidden where either hides; biases add."""
        return Mask(
            causal=self.causal or other.causal,
            window=min((w for w in (self.window, other.window) if w is not None), default=None),
            present=_both(self.present, other.present, torch.logical_and),
            bias=_both(self.bias, other.bias, torch.add),
            layout=self.layout or other.layout,
        )

    @property
    def trivial(self) -> bool:
        """Whether it does nothing: every query sees every key, and no bias."""
        return not self.causal and self.window is None and self.present is None and self.bias is None

    def visible(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """True where a query may see a key, broadcastable to (b h i j); None when every pair is visible."""
        seen = self._visible_without_bias(queries, keys, device)
        return seen if self.bias is None else _both(seen, self.bias != -torch.inf, torch.logical_and)

    def scores(self, scores: Tensor) -> Tensor:
        """The scores (b h i j) with the bias added and minus infinity where hidden."""
        if self.bias is not None:
            scores = scores + self.bias.to(scores.dtype)
        seen = self._visible_without_bias(scores.shape[-2], scores.shape[-1], scores.device)
        return scores if seen is None else scores.masked_fill(~seen, -torch.inf)

    def weights(self, weights: Tensor) -> Tensor:
        """The weights (b h i j) with exact zeros where hidden, also in a row that may see nothing."""
        seen = self.visible(weights.shape[-2], weights.shape[-1], weights.device)
        return weights if seen is None else weights.masked_fill(~seen, 0)

    def count(self, queries: int, keys: int, device: torch.device) -> Tensor | int:
        """How many keys each query sees: a number, or (.. i 1); at least 1, to divide by."""
        seen = self.visible(queries, keys, device)
        return keys if seen is None else seen.sum(-1, keepdim=True).clamp(min=1)

    def fused(self, q: Tensor, k: Tensor) -> dict[str, Any]:
        """The same mask as arguments of scaled_dot_product_attention, as ``is_causal`` where that is enough."""
        queries, keys = q.shape[-2], k.shape[-2]
        if self.causal and queries == keys and replace(self, causal=False).trivial:
            return {"is_causal": True}
        if self.bias is None:
            return {"attn_mask": self._visible_without_bias(queries, keys, q.device)}
        return {"attn_mask": self.scores(q.new_zeros(1, 1, queries, keys))}

    def at(self, queries: int, k: Tensor, *, heads: Any = slice(None), rows: Any = slice(None)) -> "Mask":
        """The mask of some heads and some rows of so many queries, whose places no longer tell what they may see."""
        if self.trivial:
            return NONE
        keys = k.shape[-2]
        places = torch.arange(keys - queries, keys, device=k.device)[rows]
        bias = k.new_zeros(1, 1, len(places), keys)
        if self.bias is not None:
            given = self.bias if self.bias.shape[1] == 1 else self.bias[:, heads]
            bias = bias + (given if given.shape[2] == 1 else given[:, :, rows]).to(bias.dtype)
        seen = self._seen(places, keys)
        return Mask(bias=bias if seen is None else bias.masked_fill(~seen, -torch.inf))

    def _visible_without_bias(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        if self.window is None and self.present is None and queries == 1:  # the last, which sees all before it
            return None
        return self._seen(torch.arange(keys - queries, keys, device=device), keys)

    def _seen(self, places: Tensor, keys: int) -> Tensor | None:
        """What queries at some places see of so many keys, broadcastable to (b h i j)."""
        seen: Tensor | None = None
        if self.window is not None or self.causal:
            away = places[:, None] - torch.arange(keys, device=places.device)  # i - j
            near = torch.ones_like(away, dtype=torch.bool) if self.window is None else away.abs() <= self.window
            seen = near & (away >= 0) if self.causal else near
        if self.present is not None:
            seen = _both(seen, self.present[:, None, None, :], torch.logical_and)
        return seen


NONE = Mask()
CAUSAL = Mask(causal=True)


def _both(a: Tensor | None, b: Tensor | None, join: Any) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return join(a, b)
