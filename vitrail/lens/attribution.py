"""Which patches an answer comes from, by methods that do not agree: ``faithfulness`` measures which to trust."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from einops import einsum
from torch import Tensor, nn

from vitrail.core import Attention
from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.lens.gradients import gradients, with_gradients
from vitrail.lens.hooks import Lens, opened
from vitrail.lens.recording import Trace, layer_sites, record
from vitrail.lens.tokens import Tokens, check_head, looking
from vitrail.registry import Registry

# (model, images (b c H W), classes) -> (b y x): how much each patch has to do with the class of its picture: a number
# for each picture, one for all, or None for the likeliest.
Method = Callable[..., Tensor]
Classes = Tensor | Sequence[int] | int | None
methods: Registry[Method] = Registry("method")


@methods.add("attention")
@looking(ViT)
def attention(
    model: ViT, images: Tensor, classes: Classes = None, *, layer: int | None = None, head: int | None = None
) -> Tensor:
    """A of the token that answers: in the last layer, or another, the mean of its heads, or one of them.

    The same for every class.
    """
    del classes
    trace = _recorded(model, images)
    tokens = Tokens.of(model, trace, images)
    number = _last_attention(model) if layer is None else index_of("layer", layer, len(model.blocks))
    return tokens.on_patches(answering(trace, tokens, site_of(model, number), head).mean(1))


def answering(trace: Trace, tokens: Tokens, site: str, head: int | None = None) -> Tensor:
    """The attention of the token that answers, (b h n); the mean over all patches, where their mean answers."""
    rows = tokens.answer.nonzero()[:, 0].tolist()
    if rows == [0]:
        return trace.pattern(site, heads=head, rows=0)[:, :, 0].float()
    weight = tokens.answer.to(trace.q(site).device)
    parts = (einsum(weight[rows], a.float(), "i, b h i j -> b h j") for rows, a in trace.in_rows(site, heads=head))
    return sum(parts, weight.new_zeros(()))


def index_of(what: str, number: int, count: int) -> int:
    """A layer or a head by its number, from the end if that is negative."""
    if not -count <= number < count:
        raise InputError(f"{what}={number} is not there; there are {count}, counted from 0.")
    return number % count


def site_of(model: ViT, layer: int) -> str:
    """The attention of a layer, by name."""
    site = layer_sites(model)[layer]
    if site is None:
        raise InputError(f"layer={layer} has no attention, only a feed-forward; choose another.")
    return site


def _last_attention(model: ViT) -> int:
    return max(number for number, site in enumerate(layer_sites(model)) if site is not None)


@methods.add("rollout")
@looking(ViT)
def rollout(model: ViT, images: Tensor, classes: Classes = None) -> Tensor:
    """The product over the layers of (A + I) / 2, A the mean of the heads (Abnar and Zuidema 2020).

    The same for every class.
    """
    del classes
    trace = _recorded(model, images)

    def mixed(_: str, rows: slice, a: Tensor) -> Tensor:
        if (a < 0).any():
            raise InputError("weights of attention are negative here, and rollout takes them for fractions.")
        both = _with_identity(a.mean(1), rows)
        return both / both.sum(-1, keepdim=True)

    tokens = Tokens.of(model, trace, images)
    return tokens.on_patches(_carried(model, tokens, trace, mixed))


@methods.add("relevance")
@looking(ViT)
def relevance(model: ViT, images: Tensor, classes: Classes = None) -> Tensor:
    """R <- R + mean_h(relu(A * dy/dA)) R, layer by layer from R = I, y the logit (Chefer et al. 2021, eqs. 5 and 6).

    What a token that answers has from itself, the I, is left out.
    """
    trace, by_z = gradients(model, images, partial(_logit, _chosen(model, images, classes)))

    def mixed(site: str, rows: slice, a: Tensor) -> Tensor:
        gradient = by_z[site][:, :, rows] @ trace.v(site).mT
        return _with_identity((a * gradient.float()).clamp(min=0).mean(1), rows)

    tokens = Tokens.of(model, trace, images)
    with torch.no_grad():
        return tokens.on_patches(_carried(model, tokens, trace, mixed) - tokens.answer.to(images.device))


def _carried(model: ViT, tokens: Tokens, trace: Trace, mixed: Callable[[str, slice, Tensor], Tensor]) -> Tensor:
    """What came into the answer from each token, (b n): from the last layer to the first, x <- x M.

    M, (b i j), is made of the rows of a pattern, some at a time, so that it never has to be whole.
    """
    x = tokens.answer.to(trace.q(0).device).expand(len(trace.q(0)), 1, -1)
    for site in filter(None, reversed(layer_sites(model))):
        x = sum((x[..., rows] @ mixed(site, rows, a.float()) for rows, a in trace.in_rows(site)), x.new_zeros(()))
    return x[:, 0]


def _with_identity(part: Tensor, rows: slice) -> Tensor:
    part.diagonal(rows.start, -2, -1).add_(1)
    return part


@methods.add("gradcam")
@looking(ViT)
def gradcam(model: ViT, images: Tensor, classes: Classes = None, *, layer: int | None = None) -> Tensor:
    """The positive part of sum_w a_w x_w, a_w the mean over the patches of dy/dx_w (Selvaraju et al. 2017).

    x is what the attention of the last block, or of another, is given.
    """
    number = _last_attention(model) if layer is None else index_of("layer", layer, len(model.blocks))
    given = _Given(model.get_submodule(f"{site_of(model, number)}.f"))
    chosen = _chosen(model, images, classes)
    with with_gradients(), record(model) as trace, opened(given):
        logit = _logit(chosen, model(images.detach().clone().requires_grad_()))
        (gradient,) = torch.autograd.grad(logit, given.inputs)
    tokens = Tokens.of(model, trace, images)
    weights = gradient[:, len(tokens.prefix) :].mean(1)
    cam = einsum(weights, given.inputs[0].detach(), "b w, b n w -> b n").clamp(min=0)
    return tokens.on_patches(cam)


class _Given(Lens):
    """What one attention is given."""

    def __init__(self, attention: nn.Module) -> None:
        self.attention, self.inputs = attention, list[Tensor]()

    def modules(self) -> list[nn.Module]:
        return [self.attention]

    def see_attention(self, attention: Attention, x: Tensor) -> None:
        if attention is self.attention:
            self.inputs.append(x)


def _recorded(model: ViT, images: Tensor) -> Trace:
    with torch.no_grad(), record(model) as trace:
        model(images)
    return trace


def _chosen(model: ViT, images: Tensor, classes: Classes) -> Tensor:
    """The class of each picture that is explained, (b)."""
    check_head(model)
    if classes is None:
        with torch.no_grad():
            return model(images).argmax(1)
    given = torch.as_tensor(classes, device=images.device).reshape(-1).expand(len(images))
    count = model.config.classes
    if given.is_floating_point() or not ((given >= 0) & (given < count)).all():
        raise InputError(f"classes={classes} does not fit; a class is a number from 0 to {count - 1}.")
    return given


def _logit(classes: Tensor, logits: Tensor) -> Tensor:
    """The sum of the logits of each picture's class: its gradient by a picture's numbers is that picture's own."""
    return logits.gather(1, classes.clone()[:, None]).sum()  # a copy, which may be had where gradients are
