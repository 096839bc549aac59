"""The steps of attention against PyTorch's own."""

import pytest
import torch
from copying import randomise
from drawing import numbers
from torch import nn

import vitrail as vt
from vitrail.core import CAUSAL, NONE, Attention, BareAttention, LayerNorm, Mask, Sublayer
from vitrail.lens.walkthrough import example, walk

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def sublayer(**how):
    torch.manual_seed(0)
    return randomise(Sublayer(Attention(12, 3), LayerNorm(12), 12, **how)).eval()


def by_name(steps):
    return {step.name: step for step in steps}


@pytest.mark.parametrize("mask", [NONE, CAUSAL], ids=["all", "causal"])
@pytest.mark.parametrize("head", range(3))
def test_against_torch(mask, head):
    """Weights and output are those of nn.MultiheadAttention with the same matrices."""
    ours, x = sublayer(), numbers(5, 12, dtype=torch.float32)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.f.query.weight, ours.f.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.f.query.bias, ours.f.key_value.bias]))
        theirs.out_proj.weight.copy_(ours.f.out.weight)
        theirs.out_proj.bias.copy_(ours.f.out.bias)
        y = nn.functional.layer_norm(x, (12,), ours.norm.weight, ours.norm.bias, ours.norm.eps)[None]
        hidden = torch.ones(5, 5).triu(1).bool() if mask.causal else None
        out, weights = theirs(y, y, y, attn_mask=hidden, average_attn_weights=False)
    steps = by_name(walk(ours, x, head=head, mask=mask))
    torch.testing.assert_close(steps["A"].values, weights[0, head], **CLOSE)
    torch.testing.assert_close(steps["o"].values, out[0], **CLOSE)
    torch.testing.assert_close(steps["r"].values, x + out[0], **CLOSE)


@pytest.mark.parametrize(
    "how", [{}, {"order": "post"}, {"layer_scale": 0.3}, {"order": "post", "layer_scale": 0.3}], ids=str
)
def test_it_ends_with_what_the_layer_gives(how):
    layer, x = sublayer(**how), numbers(5, 12, dtype=torch.float32)
    for mask in (NONE, CAUSAL, Mask(window=1), Mask(bias=numbers(1, 3, 5, 5, dtype=torch.float32))):
        steps = walk(layer, x, mask=mask)
        torch.testing.assert_close(steps[-1].values, layer(x[None], mask)[0].detach(), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_in_any_precision(dtype):
    layer, x = sublayer().to(dtype), numbers(5, 12, dtype=torch.float32).to(dtype)
    steps = walk(layer, x)
    torch.testing.assert_close(steps[-1].values, layer(x[None])[0].detach().float(), rtol=2e-2, atol=2e-2)


def test_every_step_is_made_of_what_it_says():
    """A reader who multiplies, adds and compares the numbers shown gets the numbers shown."""
    for layer, x, head in ((*example(), 1), (sublayer(layer_scale=0.3), numbers(5, 12, dtype=torch.float32), 2)):
        steps = by_name(walk(layer, x, head=head, mask=CAUSAL))
        seen = set()
        for step in steps.values():
            assert set(step.made_of) <= seen, "made of what was not shown yet"
            seen.add(step.name)
            parts = [steps[name].values for name in step.made_of]
            if step.how == "product":
                expected = parts[0] @ parts[1] + sum(parts[2:], torch.zeros(()))
            elif step.how == "transposed":
                expected = parts[0] @ parts[1].T
            elif step.how == "sum":
                expected = parts[0] + parts[1]
            else:
                continue
            torch.testing.assert_close(step.values, expected, **CLOSE)
        torch.testing.assert_close(steps["t"].values, steps["s"].values * steps["q"].values.shape[1] ** -0.5)
        torch.testing.assert_close(steps["A"].values.sum(1), torch.ones(len(x)))
        assert steps["A"].values.triu(1).eq(0).all()
        width = steps["z"].values.shape[1]
        torch.testing.assert_close(steps["Z"].values[:, head * width : (head + 1) * width], steps["z"].values)


def test_the_example_is_worth_looking_at():
    """Its four tokens look at different ones, and neither at one alone nor at all alike."""
    for head in (0, 1):
        a = by_name(walk(*example(), head=head))["A"].values
        assert len(set(a.argmax(1).tolist())) > 1
        assert a.max() < 0.9
        assert a.max(1).values.min() > 0.4


def test_what_cannot_be_walked_through():
    x = torch.zeros(3, 12)
    with pytest.raises(vt.InputError, match="only softmax attention"):
        walk(Sublayer(BareAttention(), nn.Identity(), 12), x)
    with pytest.raises(vt.InputError, match="head 4 is not there; there are 3"):
        walk(sublayer(), x, head=3)
