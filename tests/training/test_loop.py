"""The training loop, its optimizer and its schedule."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import vitrail as vt
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.tasks.pictures.examples import classify
from vitrail.training import adamw, fit, warmup_cosine
from vitrail.training.loop import Precision

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


def test_the_average_is_its_formula():
    """A <- d A + (1 - d) W, d = min(decay, (1 + t) / (10 + t)), beginning with the first W; counts are copied."""
    from vitrail.training.job import _average

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    averaged = _average(model, 0.6)
    plain = {}
    for step in range(12):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter))
        model(torch.randn(5, 3))  # which moves the statistics
        averaged.update_parameters(model)
        decay = min(0.6, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            now = value.double().numpy()
            first = not step or not value.is_floating_point()
            plain[name] = now if first else decay * plain[name] + (1 - decay) * now
    for name, value in averaged.module.state_dict().items():
        torch.testing.assert_close(value.double(), torch.from_numpy(np.asarray(plain[name])), atol=1e-6, rtol=1e-6)
    assert int(averaged.module[1].num_batches_tracked) == 12


def test_an_overflow_in_fp16_is_left_out_and_the_next_step_is_made():
    """The scale is halved, neither weights nor moments move, and the update after it is that of exact gradients."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision = Precision("fp16")
    before, scale = model.weight.detach().clone(), precision.scaler.get_scale()
    inputs = torch.randn(8, 4)

    def batches(factor):
        return [Batch(inputs * factor, None, 8)]

    def loss(model, batch):
        return (model(batch.inputs) ** 2).mean().float() * (1e6 if batch.inputs.abs().max() > 50 else 1.0)

    steps = fit(model, loss, [batches(30.0), batches(1.0)], optimizer, lambda _: 1.0, clip=1e9, precision=precision)
    next(steps)
    assert torch.equal(model.weight, before)
    assert precision.scaler.get_scale() == scale / 2
    exact = nn.Linear(4, 3)
    exact.load_state_dict(model.state_dict())
    with torch.autocast("cpu", torch.float16):
        loss(exact, batches(1.0)[0]).backward()
    next(steps)
    torch.testing.assert_close(model.weight, before - 0.1 * exact.weight.grad, atol=1e-4, rtol=1e-3)
    assert not torch.equal(model.weight, before)
