"""A step made: what a way leaves of a model, learned again where that helps, written as a run of its own."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from vitrail.config import override
from vitrail.errors import InputError
from vitrail.files import read_json, write_json
from vitrail.progress import Progress
from vitrail.recipe import Recipe
from vitrail.runs import Run
from vitrail.shrink.answers import keeping, quantize_all, small_name, write_whole
from vitrail.shrink.material import Material, size_of
from vitrail.shrink.ranges import column_maxima
from vitrail.shrink.students import Tickets
from vitrail.shrink.tickets import ROUNDS, first_values, fractions, largest, ticket
from vitrail.shrink.way import FIT, Change, Way, Workshop
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.trainer import Training
from vitrail.weights import Weights

MADE = "made.json"
FITTING = 0.25  # of the time of a step, at most, in which what is left is fitted
SEEN = 32  # pictures by which those are known
TEACHER = {"weight": 0.7}  # how a model learns again from the one that it was cut from (bench/README.md)


@dataclass(frozen=True)
class Outcome:
    """What was done in a line, and the number before what was left had learned again."""

    note: str
    cut: float | None = None


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes steps. ``value`` gives the headline number of a run, and ``loses`` how many points it is below the
    original's.
    """

    original: Run
    material: Material | None
    value: Callable[[Run], float]
    loses: Callable[[float], float]
    most: float  # points that may be lost
    settings: Sequence[str]  # fields of the recipe by which what is left learns, as FIELD=VALUE
    command: str
    progress: Progress
    quiet: bool

    @property
    def recipe(self) -> Recipe | None:
        """How the task is learned; None where there is no data."""
        return None if self.material is None else self.material.recipe

    def check(self) -> None:
        """Refuse settings that no training here could have, before anything is made."""
        if self.recipe is not None and self.settings:
            parse_recipe(override(self._taught(self.original, {}, None), self.settings))

    def ready(self) -> None:
        """Have a teacher whose answers are written down, as a translator's are, say them before a training's time
        begins.
        """
        if self.recipe is not None and self.recipe.task == "translate":
            table = override(self._taught(self.original, {}, None), self.settings)
            tasks[self.recipe.task].prepare(parse_recipe(table), self.progress).gathered(self.progress)

    def cut(self, way: Way, before: Run, folder: Path, minutes: float | None = None) -> None:
        """The first half of a step: what a way leaves of a model, unless that was done before it was interrupted."""
        aside = _aside(folder)
        if isinstance(way, Tickets):
            first_values(self.original, before.weights())  # which there may be none of
        elif isinstance(way, Change) and not (aside / MADE).is_file():
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            weights = before.weights()
            looked = None if self.material is None else self.material.seen_by
            sparse = bool(before.about.get("zeros"))
            fit = 0.0 if sparse else FIT if minutes is None else min(FIT, FITTING * 60 * minutes)  # zeros stay zeros
            made = way.make(weights, Workshop(progress=self.progress, looked=looked, fit=fit).seen_by(weights))
            before.derive(aside, made.weights, self.command, sparse=sparse)
            rest = {"note": made.note, "lessons": dict(made.lessons), "fresh": made.fresh, "sparse": sparse}
            bits, int8 = made.bits or before.about.get("packed"), made.int8 or "answers" in before.about
            write_json(aside / MADE, {**rest, "bits": bits, "int8": int8})

    def finish(self, way: Way, before: Run, folder: Path, minutes: float | None) -> Outcome:
        """The second half: what is left learns again, where that helps, and is written as it is to be used."""
        if isinstance(way, Tickets):
            return self._ticket(way.fraction, before, folder, minutes)
        aside = _aside(folder)
        plan = read_json(aside / MADE)
        if "learned" not in plan:
            plan["learned"] = self._learned(way, Run(aside), folder, plan, minutes)
            write_json(aside / MADE, plan)
        note = plan["note"]
        if plan["bits"] or plan["int8"] or plan["sparse"]:
            note += self._few_bits(Run(folder), plan["bits"], int8=plan["int8"], sparse=plan["sparse"])
        return Outcome(note, plan["learned"])

    def done(self, folder: Path) -> None:
        """Remove what was needed to make it."""
        shutil.rmtree(_aside(folder), ignore_errors=True)
        for one in (folder, *folder.parent.glob(f"{folder.name}.*")):
            shutil.rmtree(one / "checkpoints", ignore_errors=True)

    def undo(self, folder: Path) -> None:
        """Remove a step that came to nothing."""
        for one in (folder, *folder.parent.glob(f"{folder.name}.*")):
            shutil.rmtree(one, ignore_errors=True)

    def _learned(self, way: Way, cut: Run, folder: Path, plan: dict[str, Any], minutes: float | None) -> float | None:
        """Have what is left learn again, unless it lost little; the number that it had before."""
        if way.trains and self.recipe is not None:
            value = self.value(cut)
            if plan["fresh"] or self.loses(value) > self.most / 2:
                recipe = self._taught(cut, plan["lessons"], minutes)
                recipe["weights"] |= {"zeros": True} if plan["sparse"] else {}
                self._train(self._from_scratch(recipe, cut) if plan["fresh"] else recipe, folder)
                return None if plan["fresh"] else value
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(cut.path, folder, ignore=shutil.ignore_patterns(MADE))
        return None

    def _train(self, table: dict[str, Any], folder: Path) -> Run:
        """A training as any other, from the beginning or from where it was interrupted."""
        training = Training(
            [], {}, [], quiet=self.quiet, recipe=parse_recipe(override(table, self.settings)), typed=self.command
        )
        return training.run(str(folder), None, resume=Run(folder).started)

    def _taught(self, cut: Run, lessons: dict[str, float], minutes: float | None) -> dict[str, Any]:
        """The recipe by which what is left learns from the original."""
        recipe = cast("Recipe", self.recipe)
        table = recipe.model_dump(mode="json", exclude_unset=True)
        table["weights"] = {"path": str(cut.path.resolve()), "freeze": False}
        table["model"] = {**table.get("model", {}), **size_of(cut.weights())}
        train = {name: value for name, value in table.get("train", {}).items() if name in ("batch", "seed", "device")}
        table["train"] = train if minutes is None else {**train, "minutes": minutes}
        if "teacher" in type(recipe).model_fields:
            inside = lessons if _same_tokens(cut, self.original) else {}
            how = {} if recipe.task == "translate" else {**TEACHER, **inside}  # which learns what its teacher says
            table["teacher"] = {"path": str(self.original.path.resolve()), **how}
        if recipe.task == "pictures":
            table["train"] |= {"smoothing": 0.0}
        return table

    def _from_scratch(self, table: dict[str, Any], cut: Run) -> dict[str, Any]:
        """The same for a student that knows nothing: as the original was trained, if that was from scratch too."""
        model = {"name": cut.about["family"], **cut.about["model"]}
        own = self.original.recipe
        how = {} if own is None or own.weights.path is not None else own.model_dump(mode="json", exclude_unset=True)
        minutes = {name: value for name, value in table["train"].items() if name == "minutes"}
        alike = ("optim", "augment") if cut.about["family"] == self.original.about["family"] else ("augment",)
        same: dict[str, Any] = {name: value for name, value in how.items() if name in alike}
        train = {**how.get("train", {}), **minutes}
        if minutes:
            train.pop("epochs", None)
        rest = {name: value for name, value in table.items() if name not in ("weights", "optim", "augment")}
        return {**rest, **same, "train": train, "model": model}

    def _ticket(self, sparsity: float, before: Run, folder: Path, minutes: float | None) -> Outcome:
        """The winning ticket, and a random one beside it, each trained as the original was."""
        weights, original = before.weights(), self.original
        own = original.recipe
        if own is None:
            raise InputError(f"{original.name!r} does not say how it was trained, as a ticket is; name a run.")
        table = own.model_dump(mode="json")
        if minutes is not None:
            table["train"] |= {"minutes": minutes / (ROUNDS + 1)}

        def trained(name: str, state: dict[str, Tensor]) -> Run:
            home = folder.with_name(f"{folder.name}.{name}")
            start = home.with_name(f"{home.name}.cut")
            if not (start / "config.json").is_file():
                before.derive(start, replace(weights, state=state), self.command)
            given = {"path": str(start.resolve()), "zeros": True, "freeze": False}
            run = self._train({**table, "weights": given, "model": size_of(weights)}, home)
            shutil.rmtree(start, ignore_errors=True)
            return run

        first, learned = first_values(original, weights), weights.state
        for number, fraction in enumerate(fractions(sparsity), 1):
            stays = largest(learned, fraction)
            run = trained(f"round-{number}", ticket(first, stays))
            learned = run.weights().state
        other = trained("random", ticket(first_values(original, weights, seed=10_007), stays))
        shutil.rmtree(folder, ignore_errors=True)
        before.derive(folder, run.weights(), self.command, sparse=True)
        bits, int8 = before.about.get("packed"), "answers" in before.about
        if bits or int8:
            self._few_bits(Run(folder), bits, int8=int8, sparse=True)
        value = "" if self.material is None else self.material.metric.show(self.value(other))
        kept = sum(int(one.sum()) for one in stays.values())
        whole = sum(one.numel() for one in stays.values())
        return Outcome(f"{kept:,} of {whole:,} numbers stay, in {ROUNDS} rounds; a random ticket comes to {value}")

    def _few_bits(self, run: Run, bits: int | None, *, int8: bool, sparse: bool) -> str:
        """Write its matrices in few bits, and a file that runs as int8; what more is to be said of it."""
        weights = run.weights()
        about: dict[str, Any] = {name: run.about[name] for name in ("result",) if name in run.about}
        run.derive(run.path, weights, self.command, bits=bits, sparse=sparse, **about)
        if not int8:
            return ""
        aside = run.path / "whole"
        try:
            most = self._ranges(weights)
            files = write_whole(weights, aside, most)  # not what few bits left of them, lest they be rounded twice
            names = [small_name(file) for file in files]
            named = names[0] if len(names) == 1 else names
            run.derive(run.path, weights, self.command, bits=bits, sparse=sparse, **about, answers=named)
            for kept, note in keeping(files, lambda: self._pictures(weights), self.progress):  # noqa: B007
                quantize_all(files, kept, run.path)
                if self.material is None or self.loses(self.value(Run(run.path))) <= self.most:
                    break
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return note

    def _ranges(self, weights: Weights) -> dict[str, Tensor]:
        """The largest numbers that come into the maps of a ViT, on some examples to learn from."""
        if self.material is None or weights.family != "vit":
            return {}
        shop, model = Workshop(task=self.material.seen_by(weights)), weights.model().float()
        return column_maxima(model, shop.loss, shop.batches(model))

    def _pictures(self, weights: Weights) -> Any:
        """Some to learn from, with values from 0 to 1, as weights look at them."""
        task = cast("Any", cast("Material", self.material).seen_by(weights))
        examples = task.examples
        torch.manual_seed(0)
        images, *_ = examples.batch(torch.arange(min(SEEN, len(examples))).numpy(), torch.device("cpu"))
        return task.normalise.undone(images).clamp(0, 1).numpy()


def _aside(folder: Path) -> Path:
    """Where a step is before it has learned again."""
    return folder.with_name(f"{folder.name}.cut")


def _same_tokens(one: Run, other: Run) -> bool:
    """Whether two models have the same tokens, none of them merged, so that their hidden states can be compared."""
    names = ("image", "patch", "stem", "tokens", "registers", "pool", "merge")
    first, second = (run.about.get("model", {}) for run in (one, other))
    return all(first.get(name) == second.get(name) for name in names) and not first.get("merge")


def refuse(ways: list[Way], run: Run, *, data: bool) -> None:
    """Say at once which of some ways cannot be."""
    weights = run.weights()
    for way in ways:
        way.check(weights)
        if not data and not way.bare:
            raise InputError(
                f"{way.name()} needs data to find what matters, and {run.name!r} says of none; name some: "
                f"vitrail shrink {run.name} DATA."
            )
