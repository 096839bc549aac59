"""What every task keeps to, so that trainer, run, report and command line know of no picture and no word."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from vitrail.data import Aside, Batch, Examples
from vitrail.distributed import ALONE, World
from vitrail.errors import InputError
from vitrail.families import Model, check_memory, families, family_of
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.progress import Progress, silent
from vitrail.recipe import Recipe
from vitrail.registry import Registry
from vitrail.tasks.sections import Card, Section, Table
from vitrail.weights import Weights

if TYPE_CHECKING:
    from vitrail.lens.words import Reading


@dataclass(frozen=True)
class Metric:
    """The number that a model is judged by, and which way is better."""

    name: str
    higher: bool = True
    percent: bool = False

    def show(self, value: float) -> str:
        """As people read it."""
        return f"{value:.2%}" if self.percent else f"{value:.4f}"

    def better(self, one: float, other: float) -> bool:
        """Whether a value is better than another."""
        return one > other if self.higher else one < other

    def drop(self, before: float, after: float) -> float:
        """How many points worse a value is: of a hundred, of what it counts itself, or of a hundredth of a loss."""
        if not self.higher:
            return 100 * (after - before) / max(abs(before), 1e-12)
        return (before - after) * (100 if self.percent else 1)

    def best(self, points: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """Of pairs of an epoch and a value, the one with the best value, the first of equal ones."""
        return (max if self.higher else min)(points, key=lambda point: point[1])


@dataclass(frozen=True)
class Choice:
    """A field that the recipe left out, its value, and why."""

    field: str
    value: Any
    why: str


T = TypeVar("T")
AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def filled(recipe: AnyRecipe, choices: Iterable[Choice]) -> tuple[AnyRecipe, list[Choice]]:
    """The recipe with what is chosen for the fields that it leaves out, and those of the choices that were needed."""
    sections = recipe.model_dump(exclude_unset=True)  # so that it is still known what was given
    needed = []
    for choice in choices:
        section, name = choice.field.split(".")
        given = recipe.model if section == "model" else getattr(recipe, section).model_fields_set
        if name not in given:
            sections.setdefault(section, {})[name] = choice.value
            needed.append(choice)
    return type(recipe)(**sections), needed


def still_there(read: Callable[[], T], *, needed: bool = False) -> T | None:
    """What a run learned from, where it still is."""
    try:
        return read()
    except InputError:
        if needed:
            raise
        return None


@dataclass(frozen=True, eq=False)
class Measurement:
    """What a model is worth on some examples."""

    values: dict[str, float]  # the metric's and others, by name: what is logged and drawn while a model is trained
    summary: dict[str, Any]  # what a result says of it, such as how many examples there were
    scores: Any = None  # all numbers, a dataclass
    outputs: Any = None  # what the model said of each example


@dataclass(frozen=True)
class Changed:
    """An answer that is another now: to what, what is right, what was said before, and what is said now."""

    what: str
    right: str
    before: str
    after: str


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples: the p-value of their difference, by which test; and what they answer
    differently.
    """

    p_value: float
    test: str
    gained: int  # answers that became right
    lost: int  # and that became wrong
    changed: list[Changed]
    words: tuple[str, str] = ("right", "wrong")  # what answers became


class EvaluationSet(ABC):
    """Examples that a model is measured on."""

    part: str = "test"  # of the data: test, validation, or all
    aside: Sequence[Aside] = ()  # what of it could not be used, with a reason each
    seen: int = 0  # examples that are also trained on, as far as is known

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def measure(self, model: Model, world: World = ALONE) -> Measurement:
        """What a model is worth on them; each process computes a part, and all get the whole."""

    def seen_by(self, weights: Weights) -> "EvaluationSet":  # noqa: ARG002
        """The same examples, as the model of other weights wants them."""
        return self

    def interval(self, measurement: Measurement) -> tuple[float, float] | None:  # noqa: ARG002
        """Between what the metric lies with 95 % confidence, where that is known."""
        return None

    def compare(self, before: Measurement, after: Measurement) -> Comparison | None:  # noqa: ARG002
        """What another model made of the answers, example by example, where they are kept."""
        return None

    def asking(self, model: Any, count: int) -> Callable[[], Any]:
        """A call that has a model answer so many examples at once, for who wants to know how long that takes."""
        return ask(model, count)


def ask(model: Any, count: int) -> Callable[[], Any]:
    """The same of examples that say nothing, of the model's own size."""
    inputs = tree_map(lambda one: one.expand(count, *one.shape[1:]).contiguous(), model.example())
    if isinstance(model, Seq2Seq) and not model.config.parallel:  # which says one token after another
        return partial(model.spelled, *inputs)
    return partial(model, inputs, shortest=True)


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished model as its task finds it again: the weights, where they are, and what its run says of itself."""

    weights: Weights
    folder: Path  # with what ``Task.keep`` wrote
    recipe: Any = None  # of the task's own type; None of weights that are no run's
    record: dict[str, Any] = field(default_factory=dict)  # what ``Task.record`` gave


@dataclass(frozen=True, eq=False)
class Read:
    """A text as a model is given it, one of a batch, and what its tokens are called."""

    model: Model
    inputs: Any
    names: tuple[str, ...]


@dataclass(eq=False, kw_only=True)
class Task(ABC):
    """A task on some data, ready to be learned: a recipe with nothing left out, examples, an objective, a measure."""

    metric: ClassVar[Metric]
    unit: ClassVar[str] = "examples"  # what the loss is an average over, in the plural
    varied: ClassVar[bool] = False  # whether batches have ever other shapes
    batched: ClassVar[str] = ""  # what train.batch counts, if not examples
    sampled: ClassVar[bool] = False  # whether a report shows what the finished model says: ``samples``
    head_alone: ClassVar[str] = "the head alone"  # what is done where the other weights are frozen

    recipe: Any  # of the task's own type, with nothing left out
    config: Any  # of the model
    choices: list[Choice] = field(default_factory=list)  # what was chosen for the recipe, and why
    given: Weights | None = None  # to start from, as they were read
    weights: Weights | None = None  # the same, as the configuration has them

    @classmethod
    @abstractmethod
    def prepare(cls, recipe: Any, progress: Progress = silent) -> Self:
        """Find the data and choose what the recipe leaves out: what takes seconds, after which the plan is known."""

    def gathered(self, progress: Progress = silent) -> Self:  # noqa: ARG002
        """With the examples at hand: what may take minutes, such as decoding them."""
        return self

    def gathering(self) -> float:
        """About how many seconds that takes, one example after the other."""
        return 0.0

    def stand_in(self) -> Self | None:
        """With noise for examples, so that what a step takes can be tried before they are at hand; None of a task that
        cannot.
        """
        return None

    @property
    def counts(self) -> tuple[int, int]:
        """How many examples there are to learn from, and to measure on, as far as is known before they are at hand."""
        return len(self.examples), len(self.held_out)

    @property
    def per_epoch(self) -> int:
        """Updates in an epoch."""
        return -(-self.counts[0] // self.recipe.train.batch)

    @property
    def per_update(self) -> int:
        """To how many examples of the model's own size an update comes."""
        return self.recipe.train.batch

    @property
    def smallest(self) -> int:
        """Examples in the smallest update."""
        return self.counts[0] // self.per_epoch

    @classmethod
    def evaluation_set(
        cls,
        trained: "Trained",
        data: Sequence[str] = (),
        progress: Progress = silent,
        options: Mapping[str, Any] | None = None,
    ) -> EvaluationSet:
        """What a finished model is measured on: data that is named, or the part that its run held out.

        A task that can read data by its name, or the held-out part alone, or asks a model in more than one way
        (options), says so.
        """
        if trained.recipe is None:
            raise InputError(f"{trained.weights.path!r} does not say what it was trained on: nothing to measure on.")
        if data:
            raise InputError(
                f"the task {trained.recipe.task!r} is measured on what its run held out; leave {data[0]!r} out."
            )
        cls.no_options(options)
        return cls.prepare(trained.recipe, progress).gathered(progress).held_out

    @classmethod
    def no_options(cls, options: Mapping[str, Any] | None) -> None:
        """Refuse options, of a task whose models are asked in one way."""
        for name in options or ():
            raise InputError(f"{name!r} is no option of this model, which is asked in one way; leave it out.")

    @classmethod
    def predict(cls, trained: "Trained", inputs: Sequence[str], **options: Any) -> list[Any]:  # noqa: ARG003
        """What a finished model says of inputs, given as a user has them: files, or texts."""
        raise InputError(f"{trained.weights.path!r} is a {trained.weights.family}, whose task answers no inputs yet.")

    @classmethod
    def reading(cls, trained: "Trained") -> "Callable[[str, str | None], tuple[Reading, str]]":
        """How a text is seen through: of a text, and of what should be said of it if that is given, what is to be seen,
        and what the model says.
        """
        raise InputError(f"{trained.weights.path!r} is a {trained.weights.family}, which reads no text; give pictures.")

    @classmethod
    def read(cls, trained: "Trained", text: str) -> "Read":
        """A text as the model is given it."""
        raise InputError(f"{trained.weights.path!r} is a {trained.weights.family}, which reads no text{text[:0]}.")

    @property
    def stored(self) -> int:
        """Bytes of data that are kept in memory."""
        return 0

    @property
    @abstractmethod
    def examples(self) -> Examples:
        """What is learned from."""

    @property
    @abstractmethod
    def held_out(self) -> EvaluationSet:
        """What is measured on while the model is trained, and at its end."""

    @abstractmethod
    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss, averaged over the batch's count."""

    def model(self) -> Model:
        """The model as it is before the first step."""
        check_memory(self.config)
        if self.weights is not None:
            return self.weights.model().float()
        return families[family_of(self.config)](self.config)

    @property
    def at_once(self) -> bool:
        """Whether the model is fitted by looking at each example once, with no steps: a head alone, or a whole model
        that has a closed form.
        """
        return self.recipe.weights.freeze

    def with_head(self, progress: Progress = silent) -> Self:  # noqa: ARG002
        """With weights whose head was fitted to the examples, while the others stay as they are (weights.freeze)."""
        if self.recipe.weights.freeze:
            raise InputError(f"weights.freeze is not for the task {self.recipe.task!r}; leave it out.")
        return self

    def head_found(self) -> str:
        """What is said of the head that ``with_head`` fitted."""
        return ""

    def usage(self) -> dict[str, Any]:
        """What ``weights.save`` should say of the model."""
        return {}

    def keep(self, folder: Path) -> None:  # noqa: B027  # most have nothing to write
        """Write what the model is used with beside it, such as a tokenizer."""

    @abstractmethod
    def fingerprint(self) -> str:
        """What tells these examples from others, so that a run goes on with those that it began with."""

    def record(self) -> dict[str, Any]:
        """What a run keeps about its data: counts, and what was not used."""
        return {"train": len(self.examples), self.held_out.part: len(self.held_out)}

    def plan(self) -> list[tuple[str, str]]:
        """What is said of the data before a training begins: a name and a line each; no name goes on with the last."""
        train, held = self.counts
        return [("data", f"{train:,} examples to train on, {held:,} to measure on")]

    def findings(self) -> list[tuple[str, str]]:
        """What came to light when the examples were gathered, likewise."""
        return []

    def settings(self) -> list[tuple[str, str]]:
        """What is said of how they are changed on the way to the model, likewise."""
        return []

    def cards(self, measurement: Measurement) -> list[Card]:
        """The numbers that a report opens with."""
        return [
            Card(self.metric.show(measurement.values[self.metric.name]), f"{self.held_out.part} {self.metric.name}")
        ]

    def sections(self, measurement: Measurement) -> list[Section]:  # noqa: ARG002
        """What a report shows of the answers and the data."""
        return []

    def samples(self, model: Model) -> list[Section]:  # noqa: ARG002
        """What a report shows of the finished model's own doing, such as texts that it wrote."""
        return []

    def preview(self) -> list[Section]:
        """What a page shows of the examples as the model is given them, before a training."""
        return []

    def headline(self, measurement: Measurement) -> str:
        """The result in a line."""
        value = self.metric.show(measurement.values[self.metric.name])
        return f"{self.held_out.part} {self.metric.name} {value} ({len(self.held_out):,} {self.unit})"

    @classmethod
    def score_tables(cls, measurement: Measurement) -> list[Table]:  # noqa: ARG003
        """What ``vitrail evaluate`` prints first."""
        return []

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        """And last."""
        return [f"{name:<12} {value:.4f}" for name, value in measurement.values.items()]


tasks: Registry[type[Task]] = Registry("task")
