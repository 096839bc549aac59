"""The training loop, as a generator of steps."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitrail.data import Batch
from vitrail.errors import InputError

Objective = Callable[[nn.Module, Batch], Tensor]


class Optimizer(Protocol):
    """What the loop asks of an optimizer."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    def zero_grad(self) -> None: ...
    def step(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Step:
    """One update, the one that makes it so many steps: its loss, learning rate, norm of the gradient, and the count
    that the loss is an average over.

    Its seconds, and those of them spent waiting for data. With several processes loss and count are those of this one's
    micro-batches, and weight is the fraction of the update that they are.
    """

    step: int
    loss: float
    lr: float
    norm: float
    count: int
    weight: float
    seconds: float
    wait: float

    def line(self) -> dict[str, float]:
        """What is logged of it."""
        return {name: value for name, value in vars(self).items() if name != "weight"}


class NotFinite(InputError):  # noqa: N818
    """A number that is not finite, found before the update that it would have spoiled."""

    def __init__(self, what: str, value: float, step: int, where: str = "") -> None:
        super().__init__(
            f"the {what} is {value} at step {step}{where}, whose update was not made; "
            f"lower optim.lr, or look at the data."
        )
        self.what, self.value, self.step = what, value, step


class Precision:
    """The numbers that the forward pass calculates with: float32, bf16, or fp16 with the loss scaled up."""

    def __init__(self, name: str = "float32", device: str = "cpu") -> None:
        self.dtype = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        self.device = device
        self.scaler = torch.amp.GradScaler(device, enabled=name == "fp16")

    def forward(self) -> Any:
        """The context that the forward pass runs in."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device, self.dtype)


def fit(
    model: nn.Module,
    objective: Objective,
    updates: Iterable[Iterable[Batch]],
    optimizer: Optimizer,
    schedule: Callable[[int], float],
    *,
    clip: float = 1.0,
    start: int = 0,
    precision: Precision | None = None,
) -> Iterator[Step]:
    """One update for the micro-batches of each batch; between the steps happens what the caller does there, no more."""
    precision = precision or Precision()
    began = perf_counter()
    for done, batches in enumerate(updates, start):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * schedule(done)
        optimizer.zero_grad()
        loss, count, weight, wait = _gradients(model, objective, batches, precision)
        scaler = precision.scaler
        if scaler.is_enabled():
            scaler.unscale_(optimizer)  # type: ignore[arg-type]
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip).item()
        if not scaler.is_enabled() or not math.isfinite(loss):  # a scaled gradient may overflow, and is then left out
            _finite("loss", loss, done + 1)
            _finite("norm of the gradient", norm, done + 1)
        scaler.step(optimizer)  # type: ignore[arg-type]
        scaler.update()
        if scaler.is_enabled() and scaler.get_scale() < 1:  # halved at every overflow, it would end at nothing
            raise NotFinite("norm of the gradient in fp16", norm, done + 1)
        now = perf_counter()
        yield Step(done + 1, loss, optimizer.param_groups[0]["lr"], norm, count, weight, now - began, wait)
        began = perf_counter()


def _gradients(
    model: nn.Module, objective: Objective, batches: Iterable[Batch], precision: Precision
) -> tuple[float, int, float, float]:
    """The gradients of one update, in the parameters; its loss, count and weight, and the seconds waited for data."""
    parallel = isinstance(model, DistributedDataParallel)
    world = torch.distributed.get_world_size() if parallel else 1  # whose gradients are averaged, where a sum is meant
    total, weight, count, wait, asked = 0.0, 0.0, 0, 0.0, perf_counter()
    for batch in batches:
        wait += perf_counter() - asked
        with model.no_sync() if parallel and not batch.last else nullcontext():  # type: ignore[operator]
            with precision.forward():
                loss = objective(model, batch)
            precision.scaler.scale(loss * (batch.weight * world)).backward()
        total, weight = total + loss.item() * batch.weight, weight + batch.weight
        count += batch.count
        asked = perf_counter()
    return total / weight, count, weight, wait


def _finite(what: str, value: float, step: int) -> None:
    if not math.isfinite(value):
        raise NotFinite(what, value, step)
