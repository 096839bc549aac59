"""What is left is fitted to what there was: exactly where it can be, and better than as it is elsewhere."""

from dataclasses import replace

import pytest
import torch

import vitrail as vt
from vitrail.data import Batch
from vitrail.shrink.cut import Kept, cut, spread, without_layers
from vitrail.shrink.refit import absorbed, coming_in, refitted
from vitrail.weights import Weights

VIT = {"image": 8, "patch": 2, "channels": 1, "width": 16, "depth": 3, "heads": 4, "hidden": 24, "classes": 5}
GPT = {"tokens": 20, "length": 12, "width": 16, "depth": 3, "heads": 4, "hidden": 24}
SEQ2SEQ = {"source": 20, "target": 20, "width": 16, "depth": 2, "decoder": 3, "heads": 4, "hidden": 24}


def drawn(family="vit", **fields):
    torch.manual_seed(0)
    model = vt.build(family, **{**{"vit": VIT, "gpt": GPT, "seq2seq": SEQ2SEQ}[family], **fields}).eval()
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


def answer(weights, batches):
    with torch.no_grad():
        return ask(weights.model().eval(), batches[0])


@pytest.mark.parametrize("what", ["neurons", "heads"])
def test_what_others_can_say_too_is_not_missed(what):
    """Of two neurons, or heads, that always say the same one is enough."""
    weights, state = drawn(), None
    state = dict(weights.state)
    if what == "neurons":
        for name in ("encoder.1.feed_forward.f.inner.weight", "encoder.1.feed_forward.f.inner.bias"):
            state[name] = state[name].clone()
            state[name][5] = state[name][7]
        kept, path = Kept(neurons=[range(24), [n for n in range(24) if n != 5], range(24)]), "feed_forward.f.out"
        columns = torch.tensor([n for n in range(24) if n != 5])
    else:
        for name in ("query", "key_value"):
            for kind in ("weight", "bias"):
                key = f"encoder.1.attention.f.{name}.{kind}"
                state[key] = state[key].clone()
                for start in (0, 16) if name == "key_value" else (0,):
                    state[key][start : start + 4] = state[key][start + 8 : start + 12]
        kept, path = Kept(heads=[range(4), [1, 2, 3], range(4)]), "attention.f.out"
        columns = spread([1, 2, 3], 4)
    weights, batches = replace(weights, state=state), some()
    path = f"encoder.1.{path}"
    seen = coming_in(weights.model().eval(), [path], ask, batches)
    other = cut(weights, kept)
    fitted = refitted(other, weights.state, {path: columns}, seen)
    whole = answer(weights, batches)
    near, far = ((answer(one, batches) - whole).abs().max().item() for one in (fitted, other))
    assert near < 2e-4 * whole.abs().max().item()
    assert far > 20 * near


def test_keeping_all_changes_nothing():
    weights, batches = drawn(), some()
    path = "encoder.0.feed_forward.f.out"
    seen = coming_in(weights.model().eval(), [path], ask, batches)
    same = refitted(weights, weights.state, {path: torch.arange(24)}, seen)
    assert all(torch.equal(same.state[name], one) for name, one in weights.state.items())
    assert absorbed(weights, [], "encoder", ask, batches).state.keys() == weights.state.keys()


def test_what_is_fitted_is_the_least_squares():
    """By NumPy's own, of neurons with a constant beside them, on what comes in."""
    weights, batches = drawn(), some()
    path, columns = "encoder.2.feed_forward.f.out", torch.arange(0, 24, 2)
    model, given = weights.model().eval(), []
    model.get_submodule(path).register_forward_pre_hook(lambda _, x: given.append(x[0].detach()))
    seen = coming_in(model, [path], ask, batches)
    kept = Kept(neurons=[range(24), range(24), columns.tolist()])
    fitted = refitted(cut(weights, kept), weights.state, {path: columns}, seen)
    x = given[0].flatten(0, 1).double()
    wanted = x @ weights.state[f"{path}.weight"].double().T
    beside = torch.cat([x[:, columns], torch.ones(len(x), 1, dtype=torch.float64)], 1)
    best = (beside @ torch.linalg.lstsq(beside, wanted).solution - wanted).square().sum().item()
    offset = fitted.state[f"{path}.bias"] - weights.state[f"{path}.bias"]
    found = x[:, columns] @ fitted.state[f"{path}.weight"].double().T + offset.double()
    plain = x[:, columns] @ weights.state[f"{path}.weight"][:, columns].double().T
    assert (found - wanted).square().sum().item() == pytest.approx(best, rel=0.05)
    assert (plain - wanted).square().sum().item() > 3 * best


@pytest.mark.parametrize("fields", [{}, {"layer_scale": 0.1}])
@pytest.mark.parametrize("family", ["vit", "gpt", "seq2seq"])
def test_layers_that_always_add_the_same_are_not_missed(family, fields):
    """What they add is added by the layer before them."""
    stack = "decoder" if family == "seq2seq" else "encoder"
    weights = drawn(family, **(fields if family != "seq2seq" else {}))
    state = dict(weights.state)
    for name in list(state):
        if name.startswith(f"{stack}.1.") and name.endswith(".f.out.weight"):
            state[name] = torch.zeros_like(state[name])
    weights, batches = replace(weights, state=state), some(family)
    whole = answer(weights, batches)
    taken = without_layers(absorbed(weights, [1], stack, ask, batches), [1])
    near = (answer(taken, batches) - whole).abs().max()
    far = (answer(without_layers(weights, [1]), batches) - whole).abs().max()
    assert float(near) < 1e-3 * float(whole.abs().max())
    assert float(far) > 10 * float(near)


def test_norms_that_come_after_are_left_as_they_are():
    weights = drawn(order="post")
    assert absorbed(weights, [1], "encoder", ask, some()) is weights
