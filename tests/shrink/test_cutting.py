"""Ways that cut: what they leave is what they say, however it was chosen, and several in a step are fitted as one."""

import pytest
import torch

import vitrail as vt
from vitrail.data import Batch
from vitrail.shrink.cut import without_layers
from vitrail.shrink.plan import parse
from vitrail.shrink.refit import followed
from vitrail.shrink.way import FIT, Workshop
from vitrail.weights import Weights

VIT = {"image": 8, "patch": 2, "channels": 1, "width": 16, "depth": 4, "heads": 4, "hidden": 32, "classes": 5}


class Shop(Workshop):
    """With pictures of its own."""

    def batches(self, *_, **__):
        torch.manual_seed(1)
        return [Batch(torch.randn(60, 1, 8, 8), torch.randint(5, (60,)), 60)]

    def loss(self, model, batch):
        return torch.nn.functional.cross_entropy(model(batch.inputs), batch.targets)


@pytest.fixture
def weights():
    torch.manual_seed(0)
    model = vt.build("vit", **VIT).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    return Weights("here", "vitrail", "vit", model.config, dict(model.state_dict()))


@pytest.mark.parametrize(
    ("way", "left"),
    [
        ("heads=0.5", (8, 128)),
        ("heads=0.5,gradient", (8, 128)),
        ("heads=0.5,ablation", (8, 128)),
        ("neurons=0.5", (16, 64)),
        ("neurons=0.5,gradient", (16, 64)),
        ("heads=0.25+neurons=0.25", (12, 96)),
    ],
)
def test_as_many_stay_as_are_to(weights, way, left):
    made = parse(way).make(weights, Shop())
    heads, hidden = zip(*made.weights.config.layers, strict=True)
    assert (sum(heads), sum(hidden)) == left
    assert made.weights.model()(torch.randn(2, 1, 8, 8)).isfinite().all()


def test_several_are_fitted_to_what_there_was_before_all_of_them(weights):
    """Two layers in two ways: those that stay are counted as at first, and fitted as if both had gone at once."""
    shop = Shop()
    one = parse("layers=1").make(weights, Shop(fit=1))
    two = parse("layers=1").make(one.weights, Shop(fit=1))
    stay = [one.stay[layer] for layer in two.stay]
    made = parse("layers=1+layers=1").make(weights, shop)
    assert list(made.stay) == stay
    assert len(stay) == 2
    gone = [layer for layer in range(4) if layer not in stay]
    wanted = followed(two.weights, weights, shop.loss, shop.batches(None), stay=stay)
    for name, tensor in wanted.state.items():
        torch.testing.assert_close(made.weights.state[name], tensor)
    plain, batches = without_layers(weights, gone), shop.batches(None)
    whole, left, cut = (one.model().eval()(batches[0].inputs) for one in (weights, made.weights, plain))
    assert (left - whole).square().mean() < 0.9 * (cut - whole).square().mean()


def test_nothing_is_fitted_where_there_is_no_time_for_it(weights):
    made = parse("layers=1").make(weights, Shop(fit=0))
    gone = [layer for layer in range(4) if layer not in made.stay]
    for name, tensor in without_layers(weights, gone).state.items():
        assert torch.equal(made.weights.state[name], tensor)
    assert Shop().fit == FIT
