"""Heads, neurons and layers cut out are as if they had said nothing."""

import pytest
import torch

import vitrail as vt
from vitrail.core import FeedForward
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.families import count_parameters
from vitrail.shrink.cut import Kept, cut, without_layers
from vitrail.shrink.importance import by_gradient, heads_left_out, layers_left_out
from vitrail.weights import Weights, read

VIT = {"image": 16, "patch": 4, "channels": 1, "width": 24, "depth": 3, "heads": 4, "classes": 5}
GPT = {"tokens": 11, "width": 24, "depth": 3, "heads": 4, "length": 12}


def weights_of(family="vit", **fields):
    model = vt.build(family, **{**(VIT if family == "vit" else GPT), **fields})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return Weights("here", "vitrail", family, model.config, {k: v.clone() for k, v in model.state_dict().items()})


def inputs(family):
    return torch.randn(3, 1, 16, 16) if family == "vit" else torch.randint(11, (3, 9))


HEADS = [[0, 2, 3], [1], [0, 1, 2, 3]]


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("vit", {}),
        ("vit", {"rank": 3, "head": 5}),
        ("vit", {"bias": False, "layer_scale": 0.5, "kernel": "linear"}),
        ("gpt", {"position": "rotary"}),
        ("vit", {"factors": {"encoder.0.attention.f.query": 5, "encoder.1.attention.f.out": 7}}),
    ],
)
def test_cut_heads_are_silenced_heads(family, fields):
    whole = weights_of(family, **fields)
    small, x = cut(whole, Kept(heads=HEADS)), inputs(family)
    model = whole.model()
    with vt.edit(model) as edits:
        for layer, stay in enumerate(HEADS):
            edits.silence(layer, [head for head in range(4) if head not in stay] or []) if len(stay) < 4 else None
        expected = model(x)
    torch.testing.assert_close(small.model()(x), expected, rtol=0, atol=1e-5)
    assert small.config.heads == (3, 1, 4)
    assert count_parameters(small.model()) < count_parameters(model)


@torch.no_grad()
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_cut_neurons_say_nothing(activation):
    whole = weights_of(activation=activation, hidden=10)
    stay = [[1, 2, 9], [0], list(range(10))]
    small, x, model = cut(whole, Kept(neurons=stay)), inputs("vit"), whole.model()
    for block, alive in zip(model.blocks, stay, strict=True):
        feed = block.feed_forward.f
        assert isinstance(feed, FeedForward)
        gone = [n for n in range(10) if n not in alive]
        feed.out.weight[:, gone] = 0
    torch.testing.assert_close(small.model()(x), model(x), rtol=0, atol=1e-5)
    assert small.config.hidden == (3, 1, 10)


@torch.no_grad()
def test_cutting_nothing_changes_nothing():
    whole, x = weights_of(), inputs("vit")
    for same in (cut(whole, Kept()), cut(whole, Kept(heads=[range(4)] * 3)), without_layers(whole, [])):
        assert torch.equal(same.model()(x), whole.model()(x))
        assert same.config == whole.config


@torch.no_grad()
def test_layers_left_out_are_stepped_over():
    whole, x = weights_of(factors={"encoder.2.feed_forward.f.inner": 4}, merge=[0, 1, 2]), inputs("vit")
    small, model = without_layers(whole, [1]), whole.model()
    assert small.config.factors == {"encoder.1.feed_forward.f.inner": 4}
    assert small.config.merge == (0, 2)
    model.encoder.counts = (0, 0, 2)
    model.encoder[1].attention = model.encoder[1].feed_forward = None
    torch.testing.assert_close(small.model()(x), model(x), rtol=0, atol=1e-6)


@torch.no_grad()
def test_what_is_cut_is_saved_and_loaded_to_the_bit(tmp_path):
    small = without_layers(cut(weights_of(), Kept(HEADS, [[0, 5], range(96), [7]])), [2])
    vt.save(small.model(), tmp_path / "small")
    again, x = read(tmp_path / "small"), inputs("vit")
    assert again.config == small.config
    assert torch.equal(again.model()(x), small.model()(x))


def test_what_cannot_be_cut_is_said():
    with pytest.raises(InputError, match="one of which stays"):
        cut(weights_of(), Kept(heads=[[], [0], [0]]))
    with pytest.raises(InputError, match="relative"):
        cut(weights_of(position="relative"), Kept(heads=HEADS))
    with pytest.raises(InputError, match="give each its own"):
        cut(weights_of(), Kept(heads=[[0]]))
    with pytest.raises(InputError, match="not there"):
        without_layers(weights_of(), [7])
    with pytest.raises(InputError, match="weights of its own"):
        cut(weights_of(kernel="lowrank"), Kept(heads=HEADS))
    with pytest.raises(InputError, match="keep one"):
        without_layers(weights_of(), [0, 1, 2])
    seq = vt.build("seq2seq", source=9, target=9, width=8, depth=1, heads=2)
    with pytest.raises(InputError, match="whole layers of it can go"):
        cut(Weights("here", "vitrail", "seq2seq", seq.config, dict(seq.state_dict())), Kept())


def loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch.inputs, shortest=True), batch.targets)


@pytest.mark.parametrize("kernel", ["softmax", "local"])
def test_importance_finds_what_matters(kernel):
    """A head and neurons that write nothing have none; by leaving out, it is the loss's own difference."""
    model = weights_of(kernel=kernel).model()
    with torch.no_grad():
        model.blocks[1].attention.f.out.weight[:, 6:12] = 0  # of head 1
        model.blocks[2].feed_forward.f.out.weight[:, :4] = 0
    batches = [Batch(inputs("vit"), torch.tensor([0, 3, 1]), 3) for _ in range(2)]
    heads, neurons = by_gradient(model, loss, batches)
    assert heads[1][1] == 0
    assert (heads[1][[0, 2, 3]] > 0).all()
    assert (heads[2] > 0).all()
    assert (neurons[2][:4] == 0).all()
    assert (neurons[2][4:] > 0).any()
    left = heads_left_out(model, loss, batches)
    assert abs(float(left[1][1])) < 1e-6
    with vt.edit(model) as edits, torch.no_grad():
        edits.silence(0, 2)
        without = sum(float(loss(model, one)) for one in batches) / 2
    with torch.no_grad():
        whole = sum(float(loss(model, one)) for one in batches) / 2
    assert float(left[0][2]) == pytest.approx(without - whole, abs=1e-5)
    assert layers_left_out(model, loss, batches).shape == (3,)
    assert model.blocks[0].attention is not None
