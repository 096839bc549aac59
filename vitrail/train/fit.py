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
    model.train()
    rates = [group["lr"] for group in optimizer.param_groups]
    for number, batch in enumerate(batches):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * schedule(number)
        loss = objective(model, batch)
        if not loss.isfinite():
            raise InputError(
                f"the loss is {loss.item()} at step {number}, whose update was not made; lower optim.lr, "
                f"or look at the data."
            )
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        yield Step(number, loss.item(), optimizer.param_groups[0]["lr"], norm.item(), len(batch.labels))
