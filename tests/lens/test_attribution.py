"""Explanations against the papers' formulas, on Hugging Face's own attention and gradients with the same weights."""

import pytest
import torch
from copying import randomise
from drawing import numbers
from transformers import ViTConfig, ViTForImageClassification

import vitrail as vt
from vitrail.lens import methods

CLASSES = torch.tensor([3, 5])
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=20,
        patch_size=4,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=29,
        num_labels=7,
        attn_implementation="eager",
    )
    theirs = randomise(ViTForImageClassification(config)).eval()
    folder = tmp_path_factory.mktemp("hf")
    theirs.save_pretrained(folder)
    return vt.load(folder), theirs


def images():
    return numbers(2, 3, 20, 20, dtype=torch.float32)


def on_patches(values):
    return values[:, 1:].reshape(-1, 5, 5)


@torch.no_grad()
def test_attention(pair):
    ours, theirs = pair
    attentions = theirs(images(), output_attentions=True).attentions
    found = methods["attention"](ours, images(), CLASSES)
    torch.testing.assert_close(found, on_patches(attentions[-1].mean(1)[:, 0]), **CLOSE)
    found = methods["attention"](ours, images(), CLASSES, layer=1, head=2)
    torch.testing.assert_close(found, on_patches(attentions[1][:, 2, 0]), **CLOSE)


@torch.no_grad()
def test_rollout(pair):
    ours, theirs = pair
    joint = torch.eye(26)
    for a in theirs(images(), output_attentions=True).attentions:
        joint = (0.5 * a.mean(1) + 0.5 * torch.eye(26)) @ joint
    torch.testing.assert_close(methods["rollout"](ours, images(), CLASSES), on_patches(joint[:, 0]), **CLOSE)


def test_relevance(pair):
    """As the authors' code does it: R += mean over heads of the positive part of gradient times attention, times R."""
    ours, theirs = pair
    out = theirs(images(), output_attentions=True)
    logit = out.logits[torch.arange(2), CLASSES].sum()
    gradients = torch.autograd.grad(logit, out.attentions)
    joint = torch.eye(26).repeat(2, 1, 1)
    for a, gradient in zip(out.attentions, gradients, strict=True):
        joint = joint + torch.bmm((gradient * a).clamp(min=0).mean(1), joint)
    torch.testing.assert_close(methods["relevance"](ours, images(), CLASSES), on_patches(joint[:, 0]).detach(), **CLOSE)


def test_gradcam(pair):
    ours, theirs = pair
    kept = []
    handle = theirs.vit.layers[-1].layernorm_before.register_forward_hook(lambda _m, _a, out: kept.append(out))
    logit = theirs(images()).logits[torch.arange(2), CLASSES].sum()
    handle.remove()
    (gradient,) = torch.autograd.grad(logit, kept)
    cam = (gradient[:, 1:].mean(1, keepdim=True) * kept[0][:, 1:]).sum(-1).clamp(min=0).reshape(2, 5, 5)
    torch.testing.assert_close(methods["gradcam"](ours, images(), CLASSES), cam.detach(), **CLOSE)


FIELDS = [
    {},
    {"pool": "mean"},
    {"registers": 3},
    {"pool": "mean", "registers": 2, "norm_last": True},
    {"pool": "distilled"},
    {"order": "post"},
    {"kernel": "relu"},
    {"position": "relative"},
    {"stem": "resnet-small", "tokens": 6},
    {"layer_scale": 0.1},
    {"norm": "batch"},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("name", sorted(methods))
def test_every_method_on_every_kind_of_model(name, fields):
    """One picture's explanation does not depend on those beside it, has the picture's shape, and leaves no trace."""
    shape = {"image": (12, 20), "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 29, "classes": 7}
    model = vt.build("vit", **{**shape, **fields}).eval()
    some = numbers(2, 3, 12, 20, dtype=torch.float32)
    before = model(some)
    both = methods[name](model, some, CLASSES)
    assert both.shape == (2, 3, 5)
    assert not both.requires_grad
    assert both.isfinite().all()
    alone = methods[name](model, some[1:], CLASSES[1:])
    torch.testing.assert_close(both[1:], alone, rtol=1e-3, atol=1e-6)
    assert torch.equal(model(some), before)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", ["relevance", "gradcam"])
def test_without_a_head_there_is_no_class_to_explain(name):
    model = vt.build("vit", image=8, patch=4, width=24, depth=1, heads=3, classes=0)
    with pytest.raises(vt.InputError, match="no head"):
        methods[name](model, torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("name", ["attention", "gradcam"])
def test_a_layer_that_is_not_there(name):
    model = vt.build("vit", image=8, patch=4, width=24, depth=2, heads=3, classes=2)
    with pytest.raises(vt.InputError, match="layer=2 is not there; there are 2"):
        methods[name](model, torch.zeros(1, 3, 8, 8), torch.zeros(1, dtype=torch.long), layer=2)
