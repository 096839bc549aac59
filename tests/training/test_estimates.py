"""What a training takes is known before it: memory beside what a process really took, batches cut until they fit."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from drawing import numbers

import vitrail as vt
from vitrail.core import Stack
from vitrail.errors import InputError
from vitrail.families import ViT, configure, kept, speed
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import prepare
from vitrail.training import check_parts, estimates, fitted, forecast, paced

SMALL = {"image": 32, "patch": 4, "channels": 1, "width": 64, "depth": 6, "heads": 2, "stem": "patch"}
PROCESS = """
import re, sys, torch
from pathlib import Path
import vitrail as vt
from vitrail.machine import keep_memory, return_memory
def most():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

image, batch, recompute = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
model = vt.build("vit-ti/16", image=image, classes=10).train()
model.encoder.recompute = recompute
(return_memory if recompute else keep_memory)()
images = torch.zeros(batch, 3, image, image)
base = most()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(images, shortest=True).sum().backward()
    optimizer.step()
print(most() - base)
"""


def task_of(**train):
    return prepare(parse_recipe({"data": {"source": "digits"}, "model": SMALL, "train": train}))


@pytest.mark.parametrize(("image", "batch", "recompute"), [(224, 24, False), (384, 8, False), (384, 12, True)])
def test_the_memory_of_a_step_is_predicted(image, batch, recompute):
    ran = subprocess.run(
        [sys.executable, "-c", PROCESS, str(image), str(batch), str(recompute)], check=True, stdout=subprocess.PIPE
    )
    config = configure("vit-ti/16", image=image, classes=10)
    one = kept(config)
    activations = batch * (one.recomputing if recompute else one.training)
    predicted = 12 * config.parameters() + estimates.OVER * activations  # beside the weights, which were there
    assert 0.6 * predicted < int(ran.stdout) < 1.15 * predicted


def test_what_is_kept_is_what_a_real_pass_saves():
    model, seen = vt.build("vit", **SMALL, classes=3).train(), {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(numbers(1, 1, 32, 32).float(), shortest=True)
    saved = sum(tensor.untyped_storage().nbytes() for tensor in seen.values())
    assert kept(model.config).training == pytest.approx(saved, rel=0.02)


def test_a_batch_is_cut_until_it_fits(monkeypatch):
    task = task_of(batch=64)
    whole = estimates.memory(task)
    assert fitted(task) is task, "there is room here"
    parts = []
    for free in (2.0, 1.0, 0.97, 0.95):  # much of so small a model's is fixed
        monkeypatch.setattr(estimates, "available_memory", lambda free=free: int(free * whole / estimates.PLANNED))
        smaller = fitted(task)
        parts.append((smaller.recipe.train.accumulate, smaller.recipe.train.recompute))
        assert estimates.memory(smaller) <= free * whole
        if free < 1:
            assert "train.accumulate" in {choice.field for choice in smaller.choices}
    assert parts[:2] == [(1, False), (1, False)]
    assert parts == sorted(parts)
    assert parts[2][0] > 1


def test_what_is_given_is_not_changed_and_what_cannot_be_is_a_sentence(monkeypatch):
    task = task_of(batch=64, accumulate=2, recompute=False)
    monkeypatch.setattr(estimates, "available_memory", lambda: 2**28)
    with pytest.raises(
        InputError, match=r"takes [\d.]+ GB of memory even with 32 at a time, and 0\.2 GB are free here"
    ):
        fitted(task)


def test_batches_that_cannot_be_cut_are_a_sentence():
    with pytest.raises(InputError, match="cannot be cut in 8 micro-batches"):
        check_parts(task_of(batch=2, accumulate=4), 2)


def test_time_given_chooses_the_epochs():
    task = task_of(minutes=2.0)
    expected = replace(forecast(task), step=0.5, measurement=1.0)
    steps = -(-task.counts[0] // task.recipe.train.batch)
    chosen = paced(task, expected, 100.0)
    took = chosen.recipe.train.epochs * (steps * 0.5 + 1.0)
    assert 80 < took <= 130  # more than there is time for, as the rate falls by the clock
    assert expected.of(chosen).seconds == pytest.approx(took, rel=0.2)
    assert "2 minutes" in next(choice.why for choice in chosen.choices if choice.field == "train.epochs")
    asked = task_of(minutes=2.0, epochs=3)
    assert paced(asked, expected, 100.0) is asked


def test_speed_leaves_the_model_as_it_was():
    model = vt.build("vit", **{**SMALL, "stem": "conv"}, classes=3, norm="batch").eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert speed(model, training=True) > 0
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_steps_are_tried_in_the_precision_that_they_are_to_have(monkeypatch):
    precisions = []
    forward = ViT.forward

    def watched(self, *given, **how):
        precisions.append(torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))
        return forward(self, *given, **how)

    monkeypatch.setattr(ViT, "forward", watched)
    forecast(task_of(precision="bf16"))
    assert False in precisions  # of looking at pictures
    assert torch.bfloat16 in precisions
    precisions.clear()
    forecast(task_of())
    assert set(precisions) == {False}


def test_recomputed_blocks_give_the_same_gradients():
    torch.manual_seed(0)
    model = vt.build("vit", **SMALL, classes=3, drop_path=0.3, dropout=0.1).train()
    images, gradients = numbers(4, 1, 32, 32).float(), []
    for recompute in (False, True):
        next(module for module in model.modules() if isinstance(module, Stack)).recompute = recompute
        model.zero_grad()
        torch.manual_seed(1)
        model(images, shortest=True).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))
    assert any(gradient.abs().max() > 0 for gradient in gradients[0])
