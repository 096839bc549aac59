"""The answer as a sum: what every head and every feed-forward layer wrote into the logits."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.lens.record import record
from vitrail.lens.tokens import attention_sites, check_head, looking


@dataclass(frozen=True, eq=False)
class Writes:
    """What each part wrote to the logits of each class; all of it sums to the logits.

    The last norm's mean and scale are taken as they were, so that the sum is exact. It is what was written directly,
    not what later layers made of it.
    """

    heads: Tensor  # (b l h classes)
    feed_forward: Tensor  # (b l classes)
    embedding: Tensor  # (b classes): the tokens as they came in
    biases: Tensor  # (b classes): of the attentions' outputs, of the last norm and of the head

    @property
    def logits(self) -> Tensor:
        """Their sum."""
        return self.heads.sum((1, 2)) + self.feed_forward.sum(1) + self.embedding + self.biases


@looking
@torch.no_grad()
def writes(model: Model, images: Tensor) -> Writes:
    """What each head and feed-forward layer wrote to the logits."""
    _check_additive(model)
    with record(model) as trace:
        model(images)
    stream = trace.residual("encoder")
    through = _Through(model, stream[-1])
    heads, feed_forward, biases = [], [], through.constant
    for layer, site in enumerate(attention_sites(trace.names())):
        attention: Any = model.get_submodule(site)
        scale = 1 if attention.scale is None else attention.scale
        heads.append(torch.stack([through(one * scale) for one in trace.heads(site).unbind(1)], 1))
        biases = biases + through((attention.f.out.bias * scale).expand_as(stream[0]))
        feed_forward.append(through(stream[2 * layer + 2] - stream[2 * layer + 1]))
    return Writes(torch.stack(heads, 1), torch.stack(feed_forward, 1), through(stream[0]), biases)


@looking
@torch.no_grad()
def logit_lens(model: Model, images: Tensor) -> Tensor:
    """The logits that the head gives to the stream as each layer left it, (l + 1 b classes): first the embedding's.

    The last norm and the head were trained for the last layer alone, so that early answers are a reading, not a fact.
    """
    check_head(model)
    with record(model) as trace:
        model(images)
    return torch.stack([model.answer(x) for x in trace.residual("encoder")[::2]])  # type: ignore[operator]


class _Through:
    """From the residual stream to the logits, the last norm with the mean and scale that it had: an affine map."""

    def __init__(self, model: Any, last: Tensor) -> None:
        self.model, self.late, norm = model, model.config.norm_last, model.norm
        x = model.pool(last) if self.late else last
        if isinstance(norm, nn.LayerNorm):
            self.scale = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt() * norm.weight
            self.shift = norm.bias
        else:
            self.scale = (norm.running_var + norm.eps).rsqrt() * norm.weight
            self.shift = norm.bias - norm.running_mean * self.scale
        self.constant = self._affine(torch.zeros_like(last))

    def __call__(self, written: Tensor) -> Tensor:
        """(b n w) -> (b classes), the linear part."""
        return self._affine(written) - self.constant

    def _affine(self, x: Tensor) -> Tensor:
        pool, head = self.model.pool, self.model.head
        return head(self._normed(pool(x)) if self.late else pool(self._normed(x)))

    def _normed(self, x: Tensor) -> Tensor:
        if isinstance(self.model.norm, nn.LayerNorm):
            x = x - x.mean(-1, keepdim=True)
        return x * self.scale + self.shift


def _check_additive(model: Model) -> None:
    config: Any = model.config
    check_head(model)
    if config.order != "pre":
        raise InputError(
            "the model normalises after each addition (order='post'), so that every later layer scales what an earlier "
            "one wrote: its logits are no sum over the layers."
        )
    if config.prelogits:
        raise InputError("the model has a tanh before its logits (prelogits), which are no sum over the layers then.")
