"""The training loop, its optimizer and its schedule."""

import math
from functools import partial

import pytest
import torch
from torch import nn

import vitrail as vt
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.tasks.pictures.examples import classify
from vitrail.training import adamw, fit, warmup_cosine

TINY = {"image": 8, "patch": 4, "channels": 1, "width": 12, "depth": 1, "heads": 3, "classes": 10}


def test_a_step_is_adamw_s():
    """One fit step, clipped, is what PyTorch's parts do when called one by one."""
    torch.manual_seed(0)
    model, again = vt.build("vit", **TINY).double(), vt.build("vit", **TINY).double()
    again.load_state_dict(model.state_dict())
    batch = Batch(torch.randn(5, 1, 8, 8).double(), torch.arange(5), 5)
    list(
        fit(
            model,
            partial(classify, smoothing=0.1),
            [[batch]] * 3,
            adamw(model, 1e-2, 0.3),
            lambda step: 1 / (step + 1),
            clip=0.5,
        )
    )

    matrices = [m.weight for m in again.modules() if isinstance(m, nn.Linear)]
    rest = [p for p in again.parameters() if all(p is not m for m in matrices)]
    optimizer = torch.optim.AdamW([{"params": matrices}, {"params": rest, "weight_decay": 0}], weight_decay=0.3)
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (step + 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(again(batch.inputs), batch.targets, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(again.parameters(), 0.5)
        optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, again.get_parameter(name))


@pytest.mark.parametrize("fields", [{}, {"position": "relative", "registers": 2, "layer_scale": 0.1}, {"stem": "conv"}])
def test_only_matrices_are_decayed(fields):
    model = vt.build("vit", **TINY, **fields)
    decayed, rest = (group["params"] for group in adamw(model, 1e-3, 0.1).param_groups)
    names = {id(p): name for name, p in model.named_parameters()}
    assert len(decayed) + len(rest) == len(names)
    assert all(p.ndim in (2, 4) for p in decayed)
    left_out = {names[id(p)] for p in rest if p.ndim >= 2}
    assert left_out <= {
        "embed.position.embedding",
        "embed.registers",
        "embed.position.bias",
        "embed.position.prefix_bias",
    }


def test_warmup_then_cosine():
    share = warmup_cosine(100, 10)
    assert [share(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert share(10) == 1
    assert share(55) == pytest.approx(0.5)
    assert share(99) == pytest.approx((1 + math.cos(math.pi * 89 / 90)) / 2)
    assert warmup_cosine(5, 0)(0) == 1


def test_a_loss_that_is_not_finite_stops_before_the_update():
    model = vt.build("vit", **TINY)
    good = Batch(torch.randn(2, 1, 8, 8), torch.tensor([1, 2]), 2)
    optimizer = adamw(model, 1e-3, 0.1)

    def objective(model, batch):
        loss = classify(model, batch)
        return loss * torch.nan if batch is not good else loss

    steps = fit(model, objective, [[good], [Batch(good.inputs, good.targets, 2)]], optimizer, lambda _: 1.0)
    next(steps)
    before = {name: p.clone() for name, p in model.named_parameters()}
    with pytest.raises(InputError, match="the loss is nan at step 2, whose update was not made"):
        next(steps)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_a_gradient_that_is_not_finite_stops_before_the_update_too():
    model = vt.build("vit", **TINY)
    before = {name: p.clone() for name, p in model.named_parameters()}

    def objective(model, batch):
        return classify(model, batch) + (model.head.logits.bias * 0).square().sum().sqrt()

    batch = Batch(torch.randn(2, 1, 8, 8), torch.tensor([1, 2]), 2)
    with pytest.raises(InputError, match="the norm of the gradient is nan at step 1, whose update was not made"):
        list(fit(model, objective, [[batch]], adamw(model, 1e-3, 0.1), lambda _: 1.0))
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_fit_goes_on_as_it_began():
    """Looking between the steps leaves the model in training; a second fit starts from the first one's rate."""
    model = vt.build("vit", **TINY)
    batch, optimizer = Batch(torch.randn(2, 1, 8, 8), torch.tensor([1, 2]), 2), adamw(model, 1e-3, 0.1)
    for _ in range(2):
        rates = []
        for step in fit(model, classify, [[batch]] * 3, optimizer, lambda step: 1 / (step + 1)):
            rates.append(step.lr)
            assert model.training
            model.eval()
        assert rates == pytest.approx([1e-3, 5e-4, 1e-3 / 3])
