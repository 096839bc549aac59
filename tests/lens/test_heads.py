"""How far heads look, and what would be lost without them."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from copying import randomise
from drawing import numbers

import vitrail as vt
from vitrail.lens import attention_distance, loss_without, sensitivity

SHAPE = {"image": (12, 20), "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 29, "classes": 7}
LABELS = torch.tensor([3, 5])


def vit(**fields):
    torch.manual_seed(0)
    return randomise(vt.build("vit", **{**SHAPE, **fields})).double().eval()


def images():
    return numbers(2, 3, 12, 20)


@pytest.mark.parametrize("fields", [{}, {"pool": "mean"}, {"registers": 2}, {"pool": "distilled"}], ids=str)
def test_distance_by_hand(fields):
    model = vit(**fields)
    with vt.record(model) as trace:
        model(images())
    found = attention_distance(model, images())
    assert found.shape == (2, 2, 3)
    start = model.config.prefix + model.config.registers
    for layer in range(2):
        a = trace.pattern(layer)[:, :, start:, start:]
        for head in range(3):
            total = 0.0
            for i in range(15):
                weights = a[1, head, i] / a[1, head, i].sum()
                far = [4 * ((i // 5 - j // 5) ** 2 + (i % 5 - j % 5) ** 2) ** 0.5 for j in range(15)]
                total += sum(w * d for w, d in zip(weights.tolist(), far, strict=True)) / 15
            assert float(found[layer, 1, head]) == pytest.approx(total, rel=1e-5)


def test_a_head_that_looks_at_itself_looks_nowhere_else():
    model = vit()
    with vt.edit(model) as edits:
        edits.pattern(0, lambda a: torch.eye(a.shape[-1]).double().expand_as(a))
        found = attention_distance(model, images())
    assert found[0].abs().max() < 1e-6
    assert found[1].min() > 1


def test_groups_have_no_distance():
    with pytest.raises(vt.InputError, match="no distance"):
        attention_distance(vit(stem="resnet-small", tokens=4), images())


def test_what_is_lost_without_a_head():
    model = vit()
    found = loss_without(model, images(), LABELS)
    whole = F.cross_entropy(model(images()), LABELS)
    with torch.no_grad():
        model.encoder[1].attention.f.out.weight[:, 8:16] = 0
    torch.testing.assert_close(found[1, 1], (F.cross_entropy(model(images()), LABELS) - whole).detach())


def test_sensitivity_is_the_slope_by_a_gate():
    """|dL/dg| for a gate g on each head, a picture at a time, in the mean: Michel's definition."""
    model = vit()
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for image, label in zip(images(), LABELS, strict=True):
        gates = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        with vt.edit(model) as edits:
            for layer in range(2):
                edits.z(layer, partial(torch.mul, gates[layer][:, None, None]))
            loss = F.cross_entropy(model(image[None]), label[None])
        expected += torch.autograd.grad(loss, gates)[0].abs() / 2
    torch.testing.assert_close(sensitivity(model, images(), LABELS), expected)
