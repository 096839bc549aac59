"""What is missed least is what the others can do without, by NumPy's own least squares."""

import numpy as np
import pytest
import torch

import vitrail as vt
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.shrink.cutting import Heads, Neurons
from vitrail.shrink.importance import every_token
from vitrail.shrink.surgeon import _order, _seen, missed

NEURONS, HEADS = "encoder.0.feed_forward.f.out", "encoder.0.attention.f.out"


def loss(model, batch):
    return torch.nn.functional.cross_entropy(model(batch.inputs), batch.targets)


@pytest.fixture(autouse=True)
def _unheld(monkeypatch):
    monkeypatch.setattr("vitrail.shrink.refit.RIDGE", 1e-9)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = vt.build("vit", image=8, patch=2, channels=1, width=16, depth=2, heads=4, hidden=24, classes=5).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    return model


def batches():
    torch.manual_seed(1)
    return [Batch(torch.randn(40, 1, 8, 8), torch.randint(5, (40,)), 40) for _ in range(2)]


def seen(model, path):
    """What comes into a map, its weight, and the squares of the gradient on what comes out."""
    given, out = [], []

    def keep(_, x, y):
        y.retain_grad()
        given.append(x[0].detach())
        out.append(y)

    handle = model.get_submodule(path).register_forward_hook(keep)
    with every_token():
        for batch in batches():
            (loss(model, batch) * batch.count).backward()
    handle.remove()
    squares = sum(y.grad.square().sum((0, 1)) for y in out) / 80
    x = torch.cat([one.flatten(0, 1) for one in given]).double().numpy()
    return x, model.get_submodule(path).weight.detach().double().numpy(), squares.double().numpy()


@pytest.mark.parametrize(("path", "wide"), [(NEURONS, 1), (HEADS, 4)])
def test_the_first_to_go_is_missed_by_what_the_others_cannot_say(model, path, wide):
    x, weight, squares = seen(model, path)
    x = x - x.mean(0)
    lost = []
    for group in range(weight.shape[1] // wide):
        rest = np.delete(np.arange(weight.shape[1]), np.arange(group * wide, (group + 1) * wide))
        solution, *_ = np.linalg.lstsq(x[:, rest], x @ weight.T, rcond=None)
        lost.append((np.square(x[:, rest] @ solution - x @ weight.T).mean(0) * squares).sum())
    found = missed(model, {path: wide}, loss, batches())[path]
    first = int(found.argmin())
    assert first == int(np.argmin(lost))
    assert float(found[first]) == pytest.approx(lost[first], rel=1e-3)
    assert found.argmax() == found.isinf().nonzero().item()


def test_of_two_that_say_the_same_one_is_missed(model):
    inner = model.get_submodule("encoder.0.feed_forward.f.inner")
    inner.weight.data[7], inner.bias.data[7] = inner.weight.data[3], inner.bias.data[3]
    found = missed(model, {NEURONS: 1}, loss, batches())[NEURONS]
    one, other = sorted((float(found[3]), float(found[7])))
    assert one < 1e-4 * other
    assert sorted(found.tolist())[:2].count(one) == 1


def test_no_two_go_at_once_that_stand_in_for_each_other():
    """Also of many, of which several are looked at together: of each pair one is missed."""
    torch.manual_seed(0)
    half = torch.randn(2000, 100)
    x = torch.cat([half, half + 1e-4 * torch.randn(2000, 100)], 1).double()
    weight = torch.randn(6, 200).double()
    found = _order(weight, torch.linalg.inv(x.T @ x / 2000), 1).view(2, 100).sort(0).values
    assert float(found[0].max()) < 1e-4 * float(found[1].min())


def test_tokens_that_nothing_is_read_off_do_not_count():
    """In the last block of a ViT whose class token answers, there is one that does."""
    torch.manual_seed(0)
    model = vt.build("vit", image=8, patch=2, channels=1, width=16, depth=2, heads=4, hidden=24, classes=5).eval()
    seen, _ = _seen(model, [NEURONS, NEURONS.replace("0", "1")], loss, batches())
    assert [one.count for one in seen.values()] == [80 * 17, 80]


def test_amounts_say_how_parts_are_chosen():
    assert str(Heads("0.25,ablation")) == "heads=0.25,ablation"
    assert str(Heads("0.25,ablation").milder(None)) == "heads=0.125,ablation"
    assert str(Neurons(0.5)) == "neurons=0.5"
    assert Neurons("0.5, gradient").fraction == 0.5
    for way, amount in ((Neurons, "0.5,ablation"), (Heads, "0.5,"), (Heads, "2,gradient")):
        with pytest.raises(InputError, match=way.name()):
            way(amount)
