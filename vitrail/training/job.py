"""A whole training of a task, whatever it is: the loop, the average, checkpoints, the log, several processes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from vitrail.core import Stack
from vitrail.data import Batches
from vitrail.distributed import World
from vitrail.errors import InputError
from vitrail.families import Model, check_memory, count_parameters
from vitrail.recipe import Train
from vitrail.tasks.task import Measurement, Task
from vitrail.training.checkpoint import Checkpoints, unpack
from vitrail.training.estimates import LEARNED
from vitrail.training.log import Log
from vitrail.training.loop import NotFinite, Optimizer, Precision, Step, fit
from vitrail.training.optim import adamw, hold, muon, warmup_cosine, zeros
from vitrail.training.result import Best, Measured, Result

Tensors = tuple[Tensor, ...] | list[Tensor]

WARM = 10  # steps at least in which the rate rises, where there are twice as many (bench/README.md)


class Directory(Protocol):
    """Where a training keeps what it needs to go on, and what it came to."""

    @property
    def path(self) -> Path: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    def log(self, step: int, *, on: bool, board: bool) -> Log: ...
    def keep(self, step: int, model: Model, task: Task) -> None: ...
    def keep_last(self, model: Model | None, task: Task) -> None: ...
    def finish(self, model: Model, task: Task, result: Result) -> None: ...


class Interrupted(InputError):  # noqa: N818
    """The run was asked to stop, and has saved what it needs to go on."""


class Job:
    """A training ready to start, or to go on. ``steps`` trains, ``finish`` measures and writes the run.

    With a budget of seconds it ends in that time, if not before; so many of them are gone before its first step, and
    again when it goes on.
    """

    def __init__(
        self, task: Task, run: Directory, world: World, budget: float | None = None, gone: float = 0.0
    ) -> None:
        self.task, self.recipe, self.run, self.world = task, task.recipe, run, world
        train = self.recipe.train
        if world.device.type == "cpu":
            check_memory(task.config, LEARNED * world.size)
        torch.manual_seed(train.seed)
        self.model = hold(task.model(), self.recipe.weights.layers).to(world.device)
        self.kept = zeros(self.model) if self.recipe.weights.zeros else {}  # where they are not 0, and may change
        self.batches = self._batches()
        self.optimizer = self._optimizer()
        self.precision = Precision(train.precision, world.device.type)
        self.average = _average(self.model, train.ema) if train.ema else None
        for module in self.model.modules():
            if isinstance(module, Stack):
                module.recompute = train.recompute
        self.step, self.seconds, self.waited = 0, 0.0, 0.0
        self.whole, self.lost = budget, gone
        self.spent = 0.0  # seconds by the clock, since the first step
        self.best: Best | None = None
        self.damaged: list[str] = []  # checkpoints that could not be gone on from

    @property
    def total(self) -> int:
        """Steps in all."""
        return min(len(self.batches), self.recipe.train.steps or len(self.batches))

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return count_parameters(self.model)

    @property
    def trained(self) -> Model:
        """The model that is measured and kept: the running average, if there is one."""
        return self.model if self.average is None else cast("Model", self.average.module)

    @property
    def budget(self) -> float | None:
        """Seconds for the steps, and what is done between them."""
        return None if self.whole is None else max(1.0, self.whole - self.lost)

    @property
    def gone(self) -> float:
        """The steps that are done; or those that would be, if they went as the time does."""
        return self.step if self.budget is None else max(self.step, self.total * self.spent / self.budget)

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or the time is up."""
        return self.gone >= self.total

    def resume(self) -> int:
        """Go on from the newest complete checkpoint; the step it stands at."""
        newest = self.world.same(self.run.checkpoints.newest() if self.world.first else None)
        if newest is not None:
            self.step, data, self.damaged = newest
            self._restore(unpack(data))
        return self.step

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step | Measured]:
        """Train, one update at a time; each goes into metrics.jsonl, and so does each measurement."""
        train, saved, kept = self.recipe.train, time.monotonic(), self._moments()
        began = time.monotonic() - self.spent
        if self.step in kept:
            self._keep()
        with self.run.log(self.step, on=self.world.first, board=train.tensorboard) as log:
            for update in () if self.finished else self.updates():
                step, asked = self._together(update, asked=stop(), spent=time.monotonic() - began)
                log(step.line())
                yield step
                if self.step in kept:
                    self._keep()
                epoch, rest = divmod(self.step, self.batches.per_epoch)
                if rest == 0 and (epoch % train.evaluate == 0 or self.finished):
                    measured = self.measure(epoch)
                    self._compare(measured)
                    log(measured.line())
                    yield measured
                if asked:
                    self._save(log)
                    raise Interrupted(f"stopped after step {self.step:,} of {self.total:,}, and saved")
                if self.finished or time.monotonic() - saved >= train.checkpoint:
                    self._save(log)
                    saved = time.monotonic()
                if self.finished:
                    break

    def updates(self) -> Iterator[Step]:
        """The updates alone, with nothing logged, measured or saved between them."""
        optim = self.recipe.optim
        least = min(WARM, self.total // 2) if optim.warmup else 0
        schedule = warmup_cosine(self.total, max(round(optim.warmup * self.total), least))
        updates = fit(
            self.world.wrap(self.model),
            self.task.objective,
            self.batches.starting(self.step),
            self.optimizer,
            lambda step: schedule(max(step, self.gone)),
            clip=optim.clip,
            start=self.step,
            precision=self.precision,
        )
        try:
            for step in updates:
                self._took(step)
                yield step
        except NotFinite as error:
            epoch, batch = divmod(error.step - 1, self.batches.per_epoch)
            where = f" (epoch {epoch + 1}, batch {batch + 1} of {self.batches.per_epoch})"
            raise NotFinite(error.what, error.value, error.step, where) from None

    def _together(self, step: Step, *, asked: bool, spent: float) -> tuple[Step, bool]:
        """A step with the loss over all processes, and whether any of them was asked to stop; by the first's clock."""
        if self.world.size == 1:
            self.spent = spent
            return step, asked
        numbers = (step.loss * step.weight, step.weight, float(asked), spent * self.world.first)
        total, weight, asking, self.spent = self.world.sums(*numbers)
        return replace(step, loss=total / weight), asking > 0

    def measure(self, epoch: int) -> Measured:
        """What the model is worth now."""
        held = self.task.held_out
        return Measured(self.step, epoch, held.part, held.measure(self.trained, self.world).values)

    def _compare(self, measured: Measured) -> None:
        """Keep the best model; not by test pictures, which would then have had a part in the training."""
        metric, value = self.task.metric, measured.values[self.task.metric.name]
        if measured.part == "validation" and (self.best is None or metric.better(value, self.best.value)):
            self.best = Best(self.step, value, {name: one.clone() for name, one in self.trained.state_dict().items()})

    def _choose(self) -> tuple[Measurement, int]:
        """Take the best model for the last, if it is better; what it is worth, and its step."""
        metric, held = self.task.metric, self.task.held_out
        last = held.measure(self.trained, self.world)
        better = self.best is not None and metric.better(self.best.value, last.values[metric.name])
        if self.world.first:
            self.run.keep_last(self.trained if better else None, self.task)
        if self.best is None or not better:
            return last, self.step
        self.trained.load_state_dict(self.best.state)
        return held.measure(self.trained, self.world), self.best.step

    def finish(self) -> Result:
        """Test, and write the model into the run directory: the best on validation, where there is such a part."""
        measurement, kept = self._choose()
        result = Result(
            measurement=measurement,
            parameters=self.parameters,
            epochs=_whole(self.step / self.batches.per_epoch),
            steps=self.step,
            seconds=round(self.seconds, 1),
            waited=round(self.waited / max(self.seconds, 1e-9), 4),
            run=str(self.run.path),
            kept=kept,
        )
        if self.world.first:
            self.run.finish(self.trained, self.task, result)
        return result

    def _took(self, step: Step) -> None:
        """What follows an update."""
        self.step = step.step
        self.seconds += step.seconds
        self.waited += step.wait
        with torch.no_grad():
            for name, there in self.kept.items():
                self.model.get_parameter(name).mul_(there)
        self.world.average(self.model.buffers())
        if self.average is not None:
            self.average.update_parameters(self.model)

    def _moments(self) -> set[int]:
        """The steps after which a model is kept: the first, the last, and others evenly between."""
        keep = self.recipe.train.keep
        return {self.total * (number + (keep == 1)) // max(1, keep - 1) for number in range(keep)}

    def _keep(self) -> None:
        """Write the model as it is now into history/STEP, a run directory of its own."""
        if not self.world.first:
            return
        with _written(f"the model at step {self.step}"):
            self.run.keep(self.step, self.trained, self.task)

    def _save(self, log: Log) -> None:
        if not self.world.first:
            return
        state = {
            "model": self.model.state_dict(),
            "average": self.average.state_dict() if self.average is not None else {},
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.precision.scaler.state_dict(),
            "seconds": self.seconds,
            "waited": self.waited,
            "spent": self.spent,
            "lost": self.lost,
            "best": vars(self.best) if self.best is not None else {},
        }
        with _written(f"the checkpoint at step {self.step}"):
            log.sync()
            self.run.checkpoints.save(self.step, state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.precision.scaler.load_state_dict(state["scaler"])
        self.seconds, self.waited = state["seconds"], state["waited"]
        self.spent = state.get("spent", self.seconds) + self.lost  # what starting again takes is time too
        self.lost = state.get("lost", 0.0)
        self.best = Best(**best) if (best := state.get("best")) else None

    def _optimizer(self) -> Optimizer:
        o = self.recipe.optim
        if o.name == "muon":
            return muon(self.model, o.lr, o.decay, (o.beta1, o.beta2), blocks=o.muon)
        return adamw(self.model, o.lr, o.decay, (o.beta1, o.beta2), layer_decay=o.layer_decay)

    def _batches(self) -> Batches:
        train, world, examples = self.recipe.train, self.world, self.task.examples
        parts = check_parts(task=self.task, processes=world.size)
        mine = range(world.rank * train.accumulate, (world.rank + 1) * train.accumulate)
        epochs = epochs_of(train, examples.per_epoch(train.batch))
        return Batches(examples, train.batch, epochs, train.seed, parts, mine, world.device)


def finish_head(task: Task, run: Directory, world: World, seconds: float) -> Result:
    """Measure and write weights whose head alone was fitted, in so many seconds: as a training's ``finish``."""
    model = task.model().to(world.device)
    result = Result(
        measurement=task.held_out.measure(model, world),
        parameters=count_parameters(model),
        epochs=1,
        steps=0,
        seconds=round(seconds, 1),
        waited=0.0,
        run=str(run.path),
    )
    run.finish(model, task, result)
    return result


def epochs_of(train: Train, per_epoch: int) -> int:
    """Epochs, the last of which may not be whole: as many as are said, or as the steps that are said take."""
    return train.epochs if train.steps is None else -(-train.steps // per_epoch)


def check_parts(task: Task, processes: int) -> int:
    """In how many micro-batches a batch is cut over all processes, each of which has an example at least."""
    train = task.recipe.train
    parts = processes * train.accumulate
    if task.smallest < parts:
        raise InputError(
            f"batches of {task.smallest} examples cannot be cut in {parts} micro-batches "
            f"({processes} processes, train.accumulate={train.accumulate}); choose a larger train.batch."
        )
    return parts


def _whole(number: float) -> float:
    return int(number) if number == int(number) else round(number, 2)


@contextmanager
def _written(what: str) -> Iterator[None]:
    """Say what could not be written, and what is to be done."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} could not be written: {error.strerror}; the ones before it are whole. Mend that, then go on with "
            f"the same command and --resume."
        ) from None


def _average(model: Model, decay: float) -> AveragedModel:
    """A <- d A + (1 - d) W with d = min(decay, (1 + t) / (10 + t)), so that what it began with is soon forgotten."""

    @torch.no_grad()
    def blend(averages: Tensors, weights: Tensors, count: Tensor | int) -> None:
        kept = min(decay, (1 + int(count)) / (10 + int(count)))
        for average, weight in zip(averages, weights, strict=True):
            if average.is_floating_point():
                average.lerp_(weight, 1 - kept)
            else:  # a count
                average.copy_(weight)

    return AveragedModel(model, multi_avg_fn=blend, use_buffers=True)
