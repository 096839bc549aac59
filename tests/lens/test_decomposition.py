"""The logits as a sum over heads and layers, and as each layer would have them."""

import pytest
import torch
from copying import randomise
from drawing import numbers

import vitrail as vt
from vitrail.lens import logit_lens, writes

SHAPE = {"image": (12, 20), "patch": 4, "width": 24, "depth": 3, "heads": 3, "hidden": 29, "classes": 7}
FIELDS = [
    {},
    {"pool": "mean", "registers": 2},
    {"pool": "mean", "norm_last": True},
    {"pool": "distilled"},
    {"norm": "batch"},
    {"layer_scale": 0.3},
    {"kernel": "relu", "position": "relative"},
    {"stem": "resnet-small", "tokens": 6},
    {"rank": 5},
]
every_kind = pytest.mark.parametrize("fields", FIELDS, ids=str)


def vit(**fields):
    torch.manual_seed(0)
    return randomise(vt.build("vit", **{**SHAPE, **fields})).double().eval()


def images():
    return numbers(2, 3, 12, 20)


@every_kind
def test_all_that_was_written_sums_to_the_logits(fields):
    model = vit(**fields)
    torch.testing.assert_close(writes(model, images()).logits, model(images()))


def test_a_head_wrote_what_goes_with_it():
    """Where nothing after it bends what it wrote, the logits without a head are less by exactly that."""
    model = vit(norm="batch")
    with torch.no_grad():
        for parameter in model.encoder[-1].feed_forward.parameters():
            parameter.zero_()
    whole, written = model(images()), writes(model, images())
    for head in range(3):
        with vt.edit(model) as edits:
            edits.silence(-1, head)
            torch.testing.assert_close(whole - model(images()), written.heads[:, -1, head])


@every_kind
def test_the_logit_lens_ends_with_the_logits(fields):
    model = vit(**fields)
    lens = logit_lens(model, images())
    assert lens.shape == (4, 2, 7)
    torch.testing.assert_close(lens[-1], model(images()))
    shallow = vit(**{**fields, "depth": 2})
    shallow.load_state_dict({name: t for name, t in model.state_dict().items() if not name.startswith("encoder.2.")})
    torch.testing.assert_close(lens[2], shallow(images()))


def test_where_the_logits_are_no_sum():
    with pytest.raises(vt.InputError, match="order='post'"):
        writes(vit(order="post"), images())
    with pytest.raises(vt.InputError, match="prelogits"):
        writes(vit(prelogits=8), images())
    with pytest.raises(vt.InputError, match="no head"):
        logit_lens(vit(classes=0), images())
