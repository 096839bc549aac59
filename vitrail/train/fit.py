"""The training loop, as a generator of steps."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor, nn, optim

from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.families import Model

Objective = Callable[[Model, Batch], Tensor]


@dataclass(frozen=True)
class Step:
    """One update: its number from 0, the loss before it, its learning rate, the norm of its gradient, its pictures."""

    number: int
    loss: float
    lr: float
    norm: float
    pictures: int


def fit(
    model: Model,
    objective: Objective,
    batches: Iterable[Batch],
    optimizer: optim.Optimizer,
    schedule: Callable[[int], float],
    *,
    clip: float = 1.0,
) -> Iterator[Step]:
    """One update a batch; nothing happens between the steps but what the caller does there."""
    for number, batch in enumerate(batches):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * schedule(number)
        loss = objective(model, batch)
        _finite("loss", loss, number)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        _finite("norm of the gradient", norm, number)
        optimizer.step()
        yield Step(number, loss.item(), optimizer.param_groups[0]["lr"], norm.item(), len(batch.labels))


def _finite(what: str, value: Tensor, step: int) -> None:
    if not value.isfinite():
        raise InputError(
            f"the {what} is {value.item()} at step {step}, whose update was not made; "
            f"lower optim.lr, or look at the data."
        )
