"""The answer as a sum: what every head and every feed-forward layer wrote into the logits."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from vitrail.core import Attention, BatchNorm
from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.lens.recording import layer_sites, record
from vitrail.lens.tokens import check_head, looking


@dataclass(frozen=True, eq=False)
class Writes:
    """What each part wrote to the logits of each class; all of it sums to the logits.

    The last norm's mean and scale are taken as they were, so that the sum is exact. It is what was written directly,
    not what later layers made of it. NaN is what is not there: layers may have other numbers of heads, or none.
    """

    heads: Tensor  # (b l h classes)
    feed_forward: Tensor  # (b l classes)
    embedding: Tensor  # (b classes): the tokens as they came in
    biases: Tensor  # (b classes): of the attentions' outputs, of the last norm and of the head

    @property
    def logits(self) -> Tensor:
        """Their sum."""
        return self.heads.nansum((1, 2)) + self.feed_forward.nansum(1) + self.embedding + self.biases


@looking(ViT)
@torch.no_grad()
def writes(model: ViT, images: Tensor) -> Writes:
    """What each head and feed-forward layer wrote to the logits."""
    _check_additive(model)
    with record(model) as trace:
        model(images)
    stream = trace.residual("encoder")
    through = _Through(model, [stream[end] for end in _ends(model)[-model.config.last :]])
    most = model.config.most_heads
    nothing = through.constant[:, None].expand(-1, most, -1) * torch.nan  # (b h classes)
    heads, feed_forward, biases = list[Tensor](), list[Tensor](), through.constant
    written = iter(stream[1:] - stream[:-1])
    for layer, (block, site) in enumerate(zip(model.blocks, layer_sites(model), strict=True)):
        heads.append(nothing)
        feed_forward.append(nothing[:, 0])
        for sublayer in block.sublayers():
            wrote = next(written)
            if site is None or not isinstance(sublayer.f, Attention):
                feed_forward[-1] = through(wrote, layer)
                continue
            scale = wrote.new_ones(()) if sublayer.scale is None else sublayer.scale
            each = torch.stack([through(one * scale, layer) for one in trace.heads(site).unbind(1)], 1)
            heads[-1] = torch.cat([each, nothing[:, each.shape[1] :]], 1)
            biases = biases + through((sublayer.f.out.bias * scale).expand_as(stream[0]), layer)
    return Writes(torch.stack(heads, 1), torch.stack(feed_forward, 1), through(stream[0]), biases)


@looking(ViT)
@torch.no_grad()
def logit_lens(model: ViT, images: Tensor) -> Tensor:
    """The logits that the head gives to the stream as each layer left it, (l + 1 b classes): first the embedding's.

    The last norm and the head were trained for the last layer alone, so that early answers are a reading, not a fact.
    """
    check_head(model)
    with record(model) as trace:
        model(images)
    stream = trace.residual("encoder")
    return torch.stack([model.answer(stream[end]) for end in _ends(model)])


def _ends(model: ViT) -> list[int]:
    """Where the residual stream is before the first block, and after each."""
    return [0, *accumulate(len(list(block.sublayers())) for block in model.blocks)]


class _Through:
    """From the residual streams that the head reads to the logits, the last norm with the mean and scale that it had
    for each: an affine map.
    """

    def __init__(self, model: ViT, last: list[Tensor]) -> None:
        self.model, self.late, norm = model, model.config.norm_last, model.norm
        self.first = model.config.depth - len(last)  # the layer whose stream is the first that is read
        self.shift: Tensor
        if isinstance(norm, nn.LayerNorm):
            read = [model.pool(x) if self.late else x for x in last]
            self.scales = [(x.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt() * norm.weight for x in read]
            self.shift = norm.bias
        elif not isinstance(norm, BatchNorm) or norm.running_var is None or norm.running_mean is None:
            raise InputError(f"what {type(norm).__name__} does to a sum is not known; choose norm='layer' or 'batch'.")
        else:
            scale = (norm.running_var + norm.eps).rsqrt() * norm.weight
            self.scales, self.shift = [scale] * len(last), norm.bias - norm.running_mean * scale
        self.constant = self._affine([torch.zeros_like(last[0])] * len(last))

    def __call__(self, written: Tensor, layer: int = 0) -> Tensor:
        """What was written in a layer (b n w), and is in the streams from there on -> (b classes), the linear part."""
        nothing = torch.zeros_like(written)
        read = range(self.first, self.first + len(self.scales))
        return self._affine([written if layer <= after else nothing for after in read]) - self.constant

    def _affine(self, streams: list[Tensor]) -> Tensor:
        pool, head = self.model.pool, self.model.head
        *before, last = range(len(streams))
        x = self._normed(pool(streams[last]), last) if self.late else pool(self._normed(streams[last], last))
        return head(torch.cat([*(self._normed(streams[one], one)[:, 0] for one in before), x], dim=-1))

    def _normed(self, x: Tensor, number: int) -> Tensor:
        if isinstance(self.model.norm, nn.LayerNorm):
            x = x - x.mean(-1, keepdim=True)
        return x * self.scales[number] + self.shift


def _check_additive(model: ViT) -> None:
    config = model.config
    check_head(model)
    if config.order != "pre":
        raise InputError(
            "the model normalises after each addition (order='post'), so that every later layer scales what an earlier "
            "one wrote: its logits are no sum over the layers."
        )
    if config.prelogits:
        raise InputError("the model has a tanh before its logits (prelogits), which are no sum over the layers then.")
