"""What is left is fitted to what there was: exactly where it can be, and better than as it is elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import vitrail as vt
from vitrail.data import Batch
from vitrail.shrink.cut import Kept, cut, without_layers
from vitrail.shrink.importance import every_token
from vitrail.shrink.refit import followed
from vitrail.weights import Weights

VIT = {"image": 8, "patch": 2, "channels": 1, "width": 16, "depth": 3, "heads": 4, "hidden": 24, "classes": 5}
BERT = {"tokens": 20, "pad": 0, "length": 12, "width": 16, "depth": 3, "heads": 4, "hidden": 24}
GPT = {"tokens": 20, "length": 12, "width": 16, "depth": 3, "heads": 4, "hidden": 24}
SEQ2SEQ = {"source": 20, "target": 20, "width": 16, "depth": 2, "decoder": 3, "heads": 4, "hidden": 24}

STACKS = {"vit": "encoder", "gpt": "encoder", "seq2seq": "decoder"}


@pytest.fixture(autouse=True)
def _unheld(monkeypatch):
    monkeypatch.setattr("vitrail.shrink.refit.RIDGE", 1e-7)


def drawn(family="vit", **fields):
    torch.manual_seed(0)
    model = vt.build(family, **{**{"vit": VIT, "bert": BERT, "gpt": GPT, "seq2seq": SEQ2SEQ}[family], **fields}).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return Weights("here", "vitrail", family, model.config, state)


def some(family="vit", count=40):
    torch.manual_seed(1)
    tokens = torch.randint(3, 20, (count, 12))
    inputs = {"vit": torch.randn(count, 1, 8, 8), "gpt": tokens, "seq2seq": (tokens, tokens)}[family]
    return [Batch(inputs, None, count)]


def ask(model, batch):
    return model(batch.inputs)


def missed(weights, batches, whole):
    return (answer(weights, batches) - whole).abs().max().item()


def square(weights, batches, whole):
    return (answer(weights, batches) - whole).square().mean().item()


def answer(weights, batches):
    with torch.no_grad():
        return ask(weights.model().eval(), batches[0])


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("what", ["neurons", "heads"])
def test_what_others_can_say_too_is_not_missed(what, order):
    """Of two neurons, or heads, that always say the same, one is enough."""
    weights = drawn(order=order)
    state = dict(weights.state)
    if what == "neurons":
        for name in ("encoder.1.feed_forward.f.inner.weight", "encoder.1.feed_forward.f.inner.bias"):
            state[name] = state[name].clone()
            state[name][:12] = state[name][12:]
        kept = Kept(neurons=[range(24), range(12, 24), range(24)])
    else:
        for name in ("query", "key_value"):
            for kind in ("weight", "bias"):
                key = f"encoder.1.attention.f.{name}.{kind}"
                state[key] = state[key].clone()
                for start in (0, 16) if name == "key_value" else (0,):
                    state[key][start : start + 4] = state[key][start + 8 : start + 12]
        kept = Kept(heads=[range(4), [1, 2, 3], range(4)])
    weights, batches = replace(weights, state=state), some()
    other = cut(weights, kept)
    whole = answer(weights, batches)
    near, far = (missed(one, batches, whole) for one in (followed(other, weights, ask, batches), other))
    assert near < 2e-3 * whole.abs().max().item()
    assert far > 20 * near


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("family", ["vit", "gpt", "seq2seq"])
def test_cutting_nothing_changes_nothing(family, order):
    weights, batches = drawn(family, order=order), some(family)
    same = followed(weights, weights, ask, batches, stack=STACKS[family])
    assert same.state.keys() == weights.state.keys()
    assert all(torch.equal(same.state[name], one) for name, one in weights.state.items())


@pytest.mark.parametrize(("layer", "rows"), [(1, slice(None)), (2, slice(1))])
def test_what_is_fitted_is_the_least_squares(layer, rows):
    """By NumPy's own, of neurons with a constant beside them, on what comes in; at the end, for the class token."""
    weights, batches = drawn(layer_scale=0.5), some(count=400)
    path, columns = f"encoder.{layer}.feed_forward.f.out", torch.arange(0, 24, 2)
    model, given = weights.model().eval(), []
    model.get_submodule(path).register_forward_pre_hook(lambda _, x: given.append(x[0].detach()))
    with every_token():
        ask(model, batches[0])
    fitted = followed(
        cut(weights, Kept(neurons=[columns.tolist() if one == layer else range(24) for one in range(3)])),
        weights,
        ask,
        batches,
    )
    x = given[0][:, rows].flatten(0, 1).double()
    wanted = x @ weights.state[f"{path}.weight"].double().T
    beside = torch.cat([x[:, columns], torch.ones(len(x), 1, dtype=torch.float64)], 1).numpy()
    solution, *_ = np.linalg.lstsq(beside, wanted.numpy(), rcond=None)
    best = float(np.square(beside @ solution - wanted.numpy()).sum())
    offset = fitted.state[f"{path}.bias"] - weights.state[f"{path}.bias"]
    found = x[:, columns] @ fitted.state[f"{path}.weight"].double().T + offset.double()
    plain = x[:, columns] @ weights.state[f"{path}.weight"][:, columns].double().T
    assert (found - wanted).square().sum().item() == pytest.approx(best, rel=1e-3)
    assert (plain - wanted).square().sum().item() > 3 * best


@pytest.mark.parametrize("fields", [{}, {"layer_scale": 0.1}])
@pytest.mark.parametrize("family", ["vit", "gpt", "seq2seq"])
@pytest.mark.parametrize("gone", [1, 2])
def test_layers_that_always_add_the_same_are_not_missed(family, fields, gone):
    """What they add is added by the layer before them."""
    stack = STACKS[family]
    weights = drawn(family, **(fields if family != "seq2seq" else {}))
    state = dict(weights.state)
    for name in list(state):
        if name.startswith(f"{stack}.{gone}.") and name.endswith(".f.out.weight"):
            state[name] = torch.zeros_like(state[name])
    weights, batches = replace(weights, state=state), some(family)
    whole, stay = answer(weights, batches), [layer for layer in range(3) if layer != gone]
    other = without_layers(weights, [gone])
    fitted = followed(other, weights, ask, batches, stack=stack, stay=stay)
    near, far = (missed(one, batches, whole) for one in (fitted, other))
    assert near < 1e-3 * whole.abs().max().item()
    assert far > 10 * near


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("family", ["vit", "gpt", "seq2seq"])
def test_what_is_left_is_nearer_to_what_there_was(family, order):
    """With a layer gone, the first too, and with half of the neurons and a head of each layer."""
    weights, batches = drawn(family, order=order), some(family, 200)
    whole, stack = answer(weights, batches), STACKS[family]
    last = order == "post"  # whose norm would have to change, so that what is before it stays as it is
    others = [(without_layers(weights, [gone]), [n for n in range(3) if n != gone]) for gone in range(3 - last)]
    if family != "seq2seq":
        others.append((cut(weights, Kept([[0, 2, 3]] * 3, [range(0, 24, 2)] * 3)), None))
        both = cut(without_layers(weights, [1]), Kept([[0, 2, 3]] * 2, [range(0, 24, 2)] * 2))
        others.append((both, [0, 2]))
    for other, stay in others:
        fitted = followed(other, weights, ask, batches, stack=stack, stay=stay)
        assert square(fitted, batches, whole) < 0.9 * square(other, batches, whole)


def test_padding_is_not_looked_at(monkeypatch):
    """Shorter texts in a longer batch are fitted to as by themselves."""
    monkeypatch.setattr("vitrail.shrink.refit.RIDGE", 1e-3)  # so that there is one answer in single precision
    weights = drawn("bert")
    torch.manual_seed(2)
    tokens = torch.randint(3, 20, (60, 7))
    padded = torch.nn.functional.pad(tokens, (0, 5))
    other = cut(weights, Kept(neurons=[range(0, 24, 2)] * 3))

    def said(model, batch):
        return ask(model, batch)[batch.inputs != 0]

    one, two = (followed(other, weights, said, [Batch(given, None, 60)]) for given in (tokens, padded))
    for name, tensor in one.state.items():
        torch.testing.assert_close(tensor, two.state[name], rtol=1e-2, atol=1e-2)


def test_tokens_that_are_merged_are_fitted_as_if_they_were_not():
    plain, merging, kept = drawn(), drawn(merge=2), Kept(neurons=[range(0, 24, 2)] * 3)
    one, other = (followed(cut(weights, kept), weights, ask, some()) for weights in (plain, merging))
    assert other.config.merge == cut(merging, kept).config.merge
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())


@pytest.mark.parametrize(
    "fields",
    [
        {"heads": [4, 0, 2], "hidden": [24, 16, 0], "head": 4},
        {"heads": [4, 0, 2], "hidden": [24, 0, 16], "head": 4},
        {"activation": "swiglu"},
        {"bias": False},
        {"factors": {"encoder.0.feed_forward.f.out": 4}},
    ],
)
def test_layers_of_all_kinds_are_fitted(fields):
    """Also beside one in which there is nothing, and before one that is gone."""
    weights, batches = drawn(**fields), some(count=200)
    whole, other = answer(weights, batches), without_layers(weights, [2])
    fitted = followed(other, weights, ask, batches, stay=[0, 1])
    assert square(fitted, batches, whole) <= square(other, batches, whole)


def test_what_is_written_nowhere_stays():
    """Where a scale is 0, there is nothing to fit."""
    weights = drawn(layer_scale=0.5)
    weights.state["encoder.1.feed_forward.scale"][3] = 0
    other = cut(weights, Kept(neurons=[range(0, 24, 2)] * 3))
    fitted = followed(other, weights, ask, some())
    assert all(tensor.isfinite().all() for tensor in fitted.state.values())


def test_streams_are_kept_within_bounds(monkeypatch):
    monkeypatch.setattr("vitrail.shrink.refit.STREAM", 1)
    weights, calls = drawn(), []

    def counted(model, batch):
        calls.append(1)
        return ask(model, batch)

    followed(weights, weights, counted, some() * 5)
    assert len(calls) == 1
