"""All that is said of one picture, for every kind of model."""

import sys

import pytest
import torch
from copying import randomise
from drawing import numbers
from torch import nn

import vitrail as vt
from vitrail.lens import attention_distance, explain, loss_without, methods, sensitivity

SHAPE = {"image": (12, 20), "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 29, "classes": 7}
KINDS = [
    {},
    {"pool": "mean", "registers": 2},
    {"pool": "distilled"},
    {"order": "post"},
    {"prelogits": 8},
    {"kernel": "relu"},
    {"position": "relative"},
    {"stem": "resnet-small"},
    {"stem": "resnet-small", "tokens": 6},
]


def vit(**fields):
    torch.manual_seed(0)
    return randomise(vt.build("vit", **{**SHAPE, **fields})).eval()


def image(*size):
    return numbers(1, 3, *(size or (12, 20)), dtype=torch.float32)


@pytest.mark.parametrize("fields", KINDS, ids=str)
def test_every_kind_of_model(fields):
    model = vit(**fields)
    found = explain(model, image(), steps=5)
    assert list(found.maps) == list(methods)
    assert all(values.shape == (3, 5) and values.isfinite().all() for values in found.maps.values())
    torch.testing.assert_close(found.probabilities, model(image())[0].double().softmax(0).detach())
    torch.testing.assert_close(found.lens[-1], found.probabilities)
    additive = fields.get("order") != "post" and not fields.get("prelogits")
    assert (found.writes is not None) == additive
    assert any("no sum over the layers" in note for note in found.notes) != additive
    assert (found.distance is None) == bool(fields.get("tokens"))


def test_at_another_size():
    """Twice as many patches each way, from positions that are resampled."""
    found = explain(vit(), image(24, 40), steps=3)
    assert found.maps["rollout"].shape == (6, 10)
    assert found.tokens.count == 61


def test_layers_and_heads_from_the_end():
    found, same = explain(vit(), image(), layer=-2, head=-1, steps=0), explain(vit(), image(), layer=0, head=2, steps=0)
    assert (found.layer, found.head) == (same.layer, same.head) == (0, 2)
    assert torch.equal(found.maps["attention"], same.maps["attention"])
    torch.testing.assert_close(found.maps["attention"].flatten(), found.attended[0, 2, 1:])
    for wrong in ({"layer": 2}, {"head": 3}):
        with pytest.raises(vt.InputError, match="is not there"):
            explain(vit(), image(), names=["rollout"], **wrong)


def test_another_class_than_the_likeliest():
    likeliest, other = explain(vit(), image(), steps=0), explain(vit(), image(), label=2, steps=0)
    assert other.label == 2
    assert torch.equal(likeliest.maps["rollout"], other.maps["rollout"])
    assert not torch.equal(likeliest.maps["relevance"], other.maps["relevance"])
    with pytest.raises(vt.InputError, match="class 7 is not there; there are 7"):
        explain(vit(), image(), label=7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    """The same to the precision there is."""
    half = explain(vit().to(dtype), image().to(dtype), label=3, steps=0)
    whole = explain(vit(), image(), label=3, steps=0)
    for name in ("attention", "rollout"):
        torch.testing.assert_close(half.maps[name], whole.maps[name], rtol=0.1, atol=0.02)
    for name in ("relevance", "gradcam"):
        assert torch.corrcoef(torch.stack([half.maps[name].flatten(), whole.maps[name].flatten()]))[0, 1] > 0.98
    assert half.writes is not None
    torch.testing.assert_close(half.writes.logits.float(), whole.writes.logits, rtol=0.1, atol=0.15)


def test_double_precision():
    whole, double = explain(vit(), image(), steps=2), explain(vit().double(), image().double(), steps=2)
    for name, values in whole.maps.items():
        torch.testing.assert_close(double.maps[name], values, rtol=1e-3, atol=1e-5)


def test_one_layer_one_head_one_patch():
    tiny = vit(image=4, depth=1, heads=1, pool="mean")
    found = explain(tiny, image(4, 4), steps=3)
    assert all(values.shape == (1, 1) for values in found.maps.values())
    assert found.attended.shape == (1, 1, 1)


def test_where_gradients_are_switched_off():
    model, picture = vit(), image()
    with torch.inference_mode():
        found = explain(model, picture, steps=0)
    for name, values in explain(model, picture, steps=0).maps.items():
        torch.testing.assert_close(found.maps[name], values)


def test_classes_may_be_one_number_a_list_or_none():
    model, both = vit(), numbers(2, 3, 12, 20, dtype=torch.float32)
    relevance = methods["relevance"]
    assert torch.equal(relevance(model, both, 3), relevance(model, both, [3, 3]))
    assert torch.equal(relevance(model, both), relevance(model, both, model(both).argmax(1)))
    for wrong in (7, -1, 0.5, [1, 9]):
        with pytest.raises(vt.InputError, match="a class is a number from 0 to 6"):
            relevance(model, both, wrong)


def test_what_heads_read_may_be_changed_meanwhile():
    """With every head silent no patch has anything to do with the answer, and no head matters."""
    model, labels = vit(), torch.tensor([3])
    with vt.edit(model) as edits:
        edits.silence(None, [0, 1, 2])
        assert methods["relevance"](model, image(), 3).abs().max() == 0
        assert sensitivity(model, image(), labels).abs().max() == 0
        assert loss_without(model, image(), labels).abs().max() == 0


def test_pictures_are_explained_one_at_a_time():
    with pytest.raises(vt.InputError, match="2 pictures were given"):
        explain(vit(), numbers(2, 3, 12, 20, dtype=torch.float32))
    with pytest.raises(vt.InputError, match="no head"):
        explain(vit(classes=0), image())
    broken = vit()
    torch.nn.init.constant_(broken.head.logits.bias, float("nan"))
    with pytest.raises(vt.InputError, match="not finite"):
        explain(broken, image())


def test_a_kernel_with_negative_weights():
    """Its patterns are no fractions, which rollout and distances would take them for."""
    model = vit()
    with vt.edit(model) as edits:
        edits.pattern(None, lambda a: a - 0.5)
        with pytest.raises(vt.InputError, match="negative"):
            methods["rollout"](model, image())
        with pytest.raises(vt.InputError, match="negative"):
            attention_distance(model, image())
        found = explain(model, image(), steps=2)
        with pytest.raises(vt.InputError, match="negative"):
            explain(model, image(), names=["rollout"])
    assert "rollout" not in found.maps
    assert "relevance" in found.maps
    assert any("rollout takes them for fractions" in note for note in found.notes)


def test_a_compiled_model():
    """Its hooks do not fire, so it is looked into as it was before."""
    plain = vit()
    compiled = torch.compile(plain, backend="eager")
    compiled(image())
    ours, theirs = explain(compiled, image(), steps=2), explain(plain, image(), steps=2)
    for name, values in theirs.maps.items():
        torch.testing.assert_close(ours.maps[name], values)
    assert torch.equal(
        loss_without(compiled, image(), torch.tensor([1])), loss_without(plain, image(), torch.tensor([1]))
    )


def test_frozen_weights_are_explained_as_well():
    free, frozen = vit(), vit().requires_grad_(requires_grad=False)
    for name in methods:
        torch.testing.assert_close(
            methods[name](frozen, image(), torch.tensor([3])), methods[name](free, image(), torch.tensor([3]))
        )


def test_a_model_in_training_is_explained_as_it_answers():
    """Without dropout, and with what its norms have learned so far, which stays as it is; then it goes on training."""
    model = vit(norm="batch", dropout=0.5, drop_path=0.5)
    model.norm.eval()
    expected, before = explain(model, image(), steps=2), {name: t.clone() for name, t in model.state_dict().items()}
    model.train()
    model.encoder[0].eval()
    found = explain(model, image(), steps=2)
    for name, values in expected.maps.items():
        torch.testing.assert_close(found.maps[name], values)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training
    assert model.encoder[1].training
    assert not model.encoder[0].training


def test_many_pictures_are_taken_a_few_at_a_time(monkeypatch):
    model, many, labels = vit(), numbers(7, 3, 12, 20, dtype=torch.float32), torch.arange(7)
    found = [attention_distance(model, many), loss_without(model, many, labels), sensitivity(model, many, labels)]
    monkeypatch.setattr("vitrail.lens.tokens.MEMORY", 3_000_000)
    again = [attention_distance(model, many), loss_without(model, many, labels), sensitivity(model, many, labels)]
    for one, other in zip(found, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fields", [{}, {"position": "relative"}, {"kernel": "relu"}], ids=str)
def test_patterns_larger_than_memory_are_taken_in_rows(fields, monkeypatch):
    model, classes = vit(**fields), torch.tensor([3])
    found = {name: methods[name](model, image(), classes) for name in methods}
    far = attention_distance(model, image())
    monkeypatch.setattr(sys.modules["vitrail.lens.recording"], "WEIGHTS", 3 * 16 * 5)
    for name, values in found.items():
        torch.testing.assert_close(methods[name](model, image(), classes), values)
    torch.testing.assert_close(attention_distance(model, image()), far)


@pytest.mark.parametrize("call", [explain, lambda m, x: methods["rollout"](m, x, None)])
def test_a_model_without_attention_gets_a_sentence(call):
    with pytest.raises(vt.InputError, match="Linear has no attention to look at"):
        call(nn.Linear(3, 4), image())


def test_a_stranger_with_attention_gets_another():
    from vitrail.core import Attention

    with pytest.raises(vt.InputError, match="its tokens have no known place"):
        methods["rollout"](Attention(12, 3), torch.zeros(1, 5, 12), None)
