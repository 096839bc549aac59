"""A whole training: from a recipe to a run directory."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from vitrail.data import Batches, Normalise, augmenter
from vitrail.errors import InputError
from vitrail.families import Model, families, family_of
from vitrail.files import make_folder, write_json
from vitrail.train.checkpoint import Checkpoints, unpack
from vitrail.train.distributed import World
from vitrail.train.fit import NotFinite, Optimizer, Precision, Step, fit
from vitrail.train.log import Log
from vitrail.train.measure import Scores, answers, scores
from vitrail.train.objectives import classify
from vitrail.train.optim import adamw, muon, warmup_cosine
from vitrail.train.prepare import Prepared
from vitrail.weights import save

HISTORY = "history"  # the folder of a run in which models are kept along the way
Tensors = tuple[Tensor, ...] | list[Tensor]


@dataclass(frozen=True)
class Measured:
    """What the model is worth after so many steps and epochs."""

    step: int
    epoch: int
    accuracy: float
    loss: float


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    accuracy: float
    correct: int
    tested: int
    parameters: int
    epochs: int
    steps: int
    seconds: float
    waited: float  # share of the seconds that the model waited for data
    run: str


class Interrupted(InputError):  # noqa: N818
    """The run was asked to stop, and has saved what it needs to go on."""


class Job:
    """A training ready to start, or to go on. ``steps`` trains, ``finish`` measures and writes the run."""

    def __init__(self, prepared: Prepared, out: Path, world: World) -> None:
        self.prepared, self.recipe, self.parts = prepared, prepared.recipe, prepared.parts
        self.out, self.world = out, world
        train = self.recipe.train
        torch.manual_seed(train.seed)
        self.model, self.normalise = start(prepared)
        self.model.to(world.device)
        self.batches = self._batches(prepared.config)
        self.optimizer = self._optimizer()
        self.precision = Precision(train.precision, world.device.type)
        self.average = _average(self.model, train.ema) if train.ema else None
        self.checkpoints = Checkpoints(out)
        self.step, self.seconds, self.waited = 0, 0.0, 0.0

    @property
    def total(self) -> int:
        """Steps in all."""
        return len(self.batches)

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def trained(self) -> Model:
        """The model that is measured and kept: the running average, if there is one."""
        return self.average.module if self.average is not None else self.model  # type: ignore[return-value]

    def estimate(self) -> float:
        """About how many seconds a step takes, tried on a copy."""
        model, objective = deepcopy(self.model).train(), classify(self.recipe.train.smoothing)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            for batch in next(self.batches.starting(0)):
                with self.precision.forward():
                    objective(model, batch).backward()
            times.append(time.perf_counter() - began)
        return min(times)

    def resume(self) -> int:
        """Go on from the newest complete checkpoint; the step it stands at."""
        found = self.world.same(self.checkpoints.newest() if self.world.first else None)
        if found is not None:
            step, data = found
            self._restore(unpack(data))
            self.step = step
        return self.step

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step | Measured]:
        """Train, one update at a time; each goes into metrics.jsonl, and so does each measurement."""
        train, saved, kept = self.recipe.train, time.monotonic(), self._moments()
        if self.step in kept:
            self._keep()
        with Log(self.out, self.step, on=self.world.first, board=train.tensorboard) as log:
            for step in self._updates():
                self._took(step)
                loss, asked = self.world.means(step.loss, float(stop()))
                step = replace(step, loss=loss)  # noqa: PLW2901
                log(step)
                yield step
                if self.step in kept:
                    self._keep()
                epoch, rest = divmod(self.step, self.batches.per_epoch)
                if rest == 0 and (epoch % train.evaluate == 0 or self.step == self.total):
                    measured = self.measure(epoch)
                    log(measured)
                    yield measured
                if asked:
                    self._save(log)
                    raise Interrupted(f"stopped after step {self.step:,} of {self.total:,}, and saved")
                if self.step == self.total or time.monotonic() - saved >= train.checkpoint:
                    self._save(log)
                    saved = time.monotonic()

    def _updates(self) -> Iterator[Step]:
        train, optim = self.recipe.train, self.recipe.optim
        updates = fit(
            self.world.wrap(self.model),
            classify(train.smoothing),
            self.batches.starting(self.step),
            self.optimizer,
            warmup_cosine(self.total, round(optim.warmup * self.total)),
            clip=optim.clip,
            start=self.step,
            precision=self.precision,
        )
        try:
            yield from updates
        except NotFinite as error:
            epoch, batch = divmod(error.step - 1, self.batches.per_epoch)
            where = f" (epoch {epoch + 1}, batch {batch + 1} of {self.batches.per_epoch})"
            raise NotFinite(error.what, error.value, error.step, where) from None

    def measure(self, epoch: int) -> Measured:
        """What the model is worth now."""
        logits = answers(self.trained, self.parts.test, self.normalise, self.world)
        labels = self.parts.test.labels
        return Measured(
            self.step,
            epoch,
            (logits.argmax(1) == labels).double().mean().item(),
            nn.functional.cross_entropy(logits.double(), labels).item(),
        )

    def finish(self) -> tuple[Result, Scores, Tensor]:
        """Test, and write the model into the run directory: the result, the scores, and the logits they come from."""
        logits = answers(self.trained, self.parts.test, self.normalise, self.world)
        measured = scores(logits, self.parts.test.labels, self.parts.test.names)
        result = Result(
            accuracy=measured.accuracy,
            correct=measured.correct,
            tested=measured.tested,
            parameters=self.parameters,
            epochs=self.recipe.train.epochs,
            steps=self.total,
            seconds=round(self.seconds, 1),
            waited=round(self.waited / max(self.seconds, 1e-9), 4),
            run=str(self.out),
        )
        if self.world.first:
            write_run(self.prepared, self.trained, self.normalise, result, measured)
        return result, measured, logits

    def _took(self, step: Step) -> None:
        """What follows an update."""
        self.step = step.step
        self.seconds += step.seconds
        self.waited += step.wait
        self.world.share(self.model.buffers())
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
            save(
                self.trained,
                make_folder(self.out / HISTORY) / f"{self.step:08}",
                labels=self.parts.train.names,
                normalise=(self.normalise.mean, self.normalise.std),
            )

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
        }
        with _written(f"the checkpoint at step {self.step}"):
            log.sync()
            self.checkpoints.save(self.step, state)

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.precision.scaler.load_state_dict(state["scaler"])
        self.seconds, self.waited = state["seconds"], state["waited"]

    def _optimizer(self) -> Optimizer:
        o = self.recipe.optim
        if o.name == "muon":
            return muon(self.model, o.lr, o.decay, (o.beta1, o.beta2), blocks=o.muon)
        return adamw(self.model, o.lr, o.decay, (o.beta1, o.beta2), layer_decay=o.layer_decay)

    def _batches(self, config: Any) -> Batches:
        train, world = self.recipe.train, self.world
        shares = world.size * train.accumulate
        per_epoch = -(-len(self.parts.train) // train.batch)
        if len(self.parts.train) // per_epoch < shares:
            raise InputError(
                f"batches of {len(self.parts.train) // per_epoch} pictures cannot be cut in {shares} shares "
                f"({world.size} processes, train.accumulate={train.accumulate}); choose a larger train.batch."
            )
        mine = range(world.rank * train.accumulate, (world.rank + 1) * train.accumulate)
        change = augmenter(self.recipe.augment, config.size, config.channels, config.classes)
        return Batches(
            self.parts.train,
            train.batch,
            train.epochs,
            train.seed,
            shares,
            mine,
            change,
            self.normalise,
            world.device,
        )


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


def start(prepared: Prepared) -> tuple[Model, Normalise]:
    """The model as it is before the first step, and how pictures are normalised for it."""
    weights = prepared.weights
    if weights is None:
        model: Model = families[family_of(prepared.config)](prepared.config)
        return model, prepared.parts.train.statistics()
    normalise = Normalise(*weights.normalise) if weights.normalise else prepared.parts.train.statistics()
    return weights.model().float(), normalise


def write_run(prepared: Prepared, model: Model, normalise: Normalise, result: Result, measured: Scores) -> None:
    """What a finished run holds: the model, its labels, and what it is worth."""
    out = Path(result.run)
    write_json(out / "scores.json", asdict(measured))
    save(
        model,
        out,
        labels=prepared.parts.train.names,
        normalise=(normalise.mean, normalise.std),
        recipe=prepared.recipe.model_dump(mode="json"),
        result=asdict(result),
    )


def _average(model: Model, decay: float) -> AveragedModel:
    """A <- d A + (1 - d) W with d = min(decay, (1 + t) / (10 + t)), so that what it began with is soon forgotten."""

    @torch.no_grad()
    def blend(averages: Tensors, weights: Tensors, count: Tensor | int) -> None:
        share = min(decay, (1 + int(count)) / (10 + int(count)))
        for average, weight in zip(averages, weights, strict=True):
            if average.is_floating_point():
                average.lerp_(weight, 1 - share)
            else:  # a count
                average.copy_(weight)

    return AveragedModel(model, multi_avg_fn=blend, use_buffers=True)
