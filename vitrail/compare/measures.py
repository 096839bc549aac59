"""More numbers of a finished cell than its own report has: what an experiment is about."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data import Pictures, unit
from vitrail.registry import Registry

SEEN = 1_000  # pictures of no class
SURE = 0.9

# Of these numbers, those that are fractions.
PERCENT = (
    "accuracy by batch statistics",
    "gathered variances off by",
    "calibration error",
    "sure of noise",
    "sure of shuffled",
)

measures: Registry[Callable[[Any, Any], dict[str, float]]] = Registry("measure")


@measures.add("batch_statistics")
@torch.no_grad()
def batch_statistics(model: Any, task: Any) -> dict[str, float]:
    """Of a model with batch norms: its accuracy where they go by the examples of a batch as large as those it learned
    from, instead of by what they gathered; and how far the variances they gathered are from those of pictures to learn
    from, changed at random as they were there.
    """
    norms: list[Any] = [one for one in model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]  # noqa: SLF001
    if not norms:
        return {}
    state = {name: one.clone() for name, one in model.state_dict().items()}
    gathered = [one.running_var.clone() for one in norms]
    momentum = [one.momentum for one in norms]
    model.eval()
    for one in norms:
        one.train()
    held, right = task.held_out, 0
    shown = _mixed(held.pictures)[torch.arange(min(SEEN, len(held)))]  # lest a batch be of one class
    size = task.recipe.train.batch
    for rows, labels in zip(shown.rows.split(size), shown.labels.split(size), strict=True):
        right += int((model(held.normalise(unit(held.pictures.store[rows]))).argmax(1) == labels).sum())
    for one in norms:
        one.reset_running_stats()
        one.momentum = None  # a plain average over what comes
    for images in _learned(task):
        model(images)
    ratios = [(one / norm.running_var).log().abs().mean() for one, norm in zip(gathered, norms, strict=True)]
    model.load_state_dict(state)
    model.eval()
    for one, before in zip(norms, momentum, strict=True):
        one.momentum = before
    return {
        "accuracy by batch statistics": right / len(shown),
        "gathered variances off by": float(torch.stack(ratios).mean().exp() - 1),
    }


def _learned(task: Any) -> Iterator[Tensor]:
    """Pictures as a model learns from them, always the same, some at a time."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(task.examples), generator=draw)[:SEEN]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for some in rows.split(SEEN // 4):
            yield task.examples.batch(some.numpy(), torch.device("cpu"))[0]


@measures.add("calibration")
def calibration(model: Any, task: Any) -> dict[str, float]:
    """How far confidence is from how often it is right, over bins of confidence (Guo et al. 2017); and the loss."""
    scores = task.held_out.measure(model).scores
    return {"calibration error": scores.calibration, "loss": scores.loss}


@measures.add("no_class")
@torch.no_grad()
def no_class(model: Any, task: Any) -> dict[str, float]:
    """How sure a model is of pictures of no class: noise, and test pictures with their pixels in another order."""
    held = task.held_out
    shown = _mixed(held.pictures)
    some = shown.store[shown.rows[:SEEN]]
    draw = torch.Generator().manual_seed(0)
    order = torch.randperm(some[0, 0].numel(), generator=draw)
    strange: dict[str, Tensor] = {
        "noise": torch.randint(0, 256, some.shape, generator=draw, dtype=torch.uint8),
        "shuffled": some.flatten(2)[:, :, order].reshape(some.shape),
    }
    values, model = {}, model.eval()
    for name, images in strange.items():
        sure = torch.cat([model(held.normalise(unit(part))).double().softmax(1).amax(1) for part in images.split(256)])
        values[f"sure of {name}"] = float((sure > SURE).double().mean())
    return values


def _mixed(pictures: Pictures) -> Pictures:
    """In an order that is drawn, and always the same."""
    return pictures[torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0))]
