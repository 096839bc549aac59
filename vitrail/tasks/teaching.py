"""What a student learns from a teacher: its answers, its hidden states, and what its tokens are to each other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.block import Block, looked_at
from vitrail.core.masks import Mask
from vitrail.data import Batch
from vitrail.data.vocabulary import Vocabulary
from vitrail.errors import InputError
from vitrail.recipe import Teacher
from vitrail.weights import read

ROWS = 2  # tokens for each number of a hidden state, at least, that a map is found by
HEADS = 12  # that relations are cut in, at most
RIDGE = 1e-3  # of the mean variance, by which a map of hidden states is held back
UNSEEN = -1e4  # the score of a token that is not seen: its weight is exactly 0, and its logarithm a number


def answers_alike(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 KL(softmax(t / T) || softmax(s / T)), averaged over the batch (Hinton et al. 2015)."""
    t = temperature
    log_p, wanted = F.log_softmax(student.float() / t, -1), F.log_softmax(teacher.float() / t, -1)
    return t * t * F.kl_div(log_p, wanted, reduction="none", log_target=True).sum(-1).mean()


def hidden_alike(student: Tensor, teacher: Tensor) -> Tensor:
    """What of a teacher's hidden state (b n w) a linear map of the student's (b n v) cannot tell: 0 if all of it can.

    The map is the best one for the batch, by least squares (of the kind of FitNets, Romero et al. 2015): there is
    nothing of it to keep, and a training that is taken up again goes on as it would have. In float32 whatever the
    models are computed in: with moments in bf16 the map is none.
    """
    s, t = (x.flatten(0, -2).float() for x in (student, teacher))
    if len(s) < ROWS * s.shape[1]:
        raise InputError(
            f"{len(s)} tokens at a time are too few to find a map of {s.shape[1]} numbers by; choose a larger "
            f"train.batch, or leave teacher.hidden out."
        )
    s, t = s - s.mean(0), (t - t.mean(0)).detach()
    with torch.autocast(s.device.type, enabled=False):
        with torch.no_grad():
            moment = s.T @ s
            held = RIDGE * moment.diagonal().mean().clamp(min=1e-12) * torch.eye(len(moment), device=s.device)
            best = torch.linalg.solve(moment + held, s.T @ t)
        return (s @ best - t).square().sum() / t.square().sum().clamp(min=1e-12)


def relations_alike(student: "Seen", teacher: "Seen") -> Tensor:
    """KL between what tokens are to each other in the last layer: by queries and keys, and by values (MiniLM, Wang et
    al. 2020, eqs. 6 and 8); heads joined and cut in as many as both have room for (MiniLMv2, Wang et al. 2021).

    Only of tokens that are there, and to those that each may see.
    """
    loss, there = torch.zeros(()), teacher.there
    for pair in (("q", "k"), ("v", "v")):
        one, other = ([getattr(seen, name) for name in pair] for seen in (student, teacher))
        count = gcd(one[0].shape[-1], other[0].shape[-1])
        heads = max(number for number in range(1, min(count, HEADS) + 1) if count % number == 0)
        log_p, wanted = (_relation(both[0], both[1], heads, teacher.mask) for both in (one, other))
        apart = F.kl_div(log_p, wanted.detach(), reduction="none", log_target=True).sum(-1).mean(1)
        loss = loss + (apart if there is None else apart[there]).mean()
    return loss


def _relation(a: Tensor, b: Tensor, heads: int, mask: Mask | None) -> Tensor:
    """Log softmax(a b^T / sqrt(d)) of tokens (b n w), in so many parts of the width."""
    a, b = (x.float().unflatten(-1, (heads, -1)).transpose(1, 2) for x in (a, b))
    with torch.autocast(a.device.type, enabled=False):
        scores = a @ b.mT * a.shape[-1] ** -0.5
    seen = None if mask is None else mask.visible(scores.shape[-2], scores.shape[-1], scores.device)
    return F.log_softmax(scores if seen is None else scores.masked_fill(~seen, UNSEEN), -1)


class Seen:
    """What was seen of a model in one call: the stream after some blocks (b n w), by their numbers, and q, k, v of the
    last attention (b n w) with its mask; of blocks that ran.
    """

    def __init__(self) -> None:
        self.hidden: dict[int, Tensor] = {}
        self.q = self.k = self.v = torch.zeros(0)
        self.mask: Mask | None = None

    @property
    def there(self) -> Tensor | None:
        """Which tokens are no padding (b n); None where all are there."""
        return None if self.mask is None else self.mask.present


@contextmanager
def watched(blocks: Sequence[Block], layers: Sequence[int], *, relations: bool) -> Iterator[Seen]:
    """See what some blocks give, and what the last attention is given, of every token."""
    seen, handles = Seen(), []

    def stream(layer: int) -> None:
        def keep(_: nn.Module, __: Any, x: Tensor) -> None:
            seen.hidden[layer] = x

        handles.append(blocks[layer].register_forward_hook(keep))

    for layer in layers:
        stream(layer)
    last = next((block.attention.f for block in reversed(blocks) if block.attention is not None), None)
    if relations and not isinstance(last, Attention):
        raise InputError("teacher.relations are of attention, which a model here has none of; leave it out.")
    if isinstance(last, Attention) and (layers or relations):

        def keep(_: nn.Module, given: Any, __: Any) -> None:
            seen.q, seen.k, seen.v = (x.transpose(1, 2).flatten(2) for x in given[:3])
            seen.mask = next((one for one in given[3:] if isinstance(one, Mask)), None)

        handles.append(last.kernel.register_forward_hook(keep))
    before = looked_at.set(bool(handles) or looked_at.get())  # merged tokens are shown one by one
    try:
        yield seen
    finally:
        looked_at.reset(before)
        for handle in handles:
            handle.remove()


def layers_of(student: int, teacher: int, count: int = 4) -> list[tuple[int, int]]:
    """Which layers learn from which, so many at most: evenly, the last from the last."""
    count = min(count, student, teacher)
    return [
        (round(student * (number + 1) / count) - 1, round(teacher * (number + 1) / count) - 1)
        for number in range(count)
    ]


@dataclass(frozen=True, eq=False)
class Heard:
    """What a student and its teacher said of the same, and what they had inside."""

    said: Any
    taught: Any
    ours: Seen
    theirs: Seen
    pairs: list[tuple[int, int]]  # layers of the student, and those of the teacher that they learn from


class Lessons:
    """A teacher, and how much of each lesson: ``loss`` is what a student is taught on a batch, beside its own task."""

    def __init__(
        self,
        teacher: Any,
        *,
        weight: float = 0.5,
        temperature: float = 1.0,
        hidden: float = 0.0,
        relations: float = 0.0,
        hard: bool = False,
        given: Callable[[Any], Any] = lambda inputs: inputs,
    ) -> None:
        self.given = given  # what the teacher is given, of what the student is
        self.teacher = teacher.eval().requires_grad_(requires_grad=False)
        self.weight, self.temperature, self.hidden, self.relations = weight, temperature, hidden, relations
        self.hard = hard

    def loss(
        self, student: Any, inputs: Any, own: Callable[[Tensor], Tensor], *, forward: Callable[..., Tensor]
    ) -> Tensor:
        """The student's own loss, of its answers, and the lessons, weighed.

        The student is called by ``forward``, which may be wrapped; its own blocks are those of ``student``.
        """
        if self.hidden or self.relations:
            _check_tokens(student, self.teacher)
        apart = {"apart": True} if self.hard else {}
        heard = self._heard(student, forward, inputs, {}, apart)
        loss = self._answers(heard.said, heard.taught[..., : heard.said.shape[-1]], own)
        return self._inside(loss, heard)

    def beside(self, model: Any, batch: Batch, lose: Callable[[Any, Batch], Tensor]) -> Tensor:
        """The loss of a task whose ``lose`` calls a model once, and the lessons, weighed."""
        heard = list[Heard]()

        def call(inputs: Any, **how: Any) -> Any:
            heard.append(self._heard(getattr(model, "module", model), model, inputs, how, {}))
            return heard[0].said

        own = lose(call, batch)
        if self.weight:
            logits, taught = (getattr(one, "words", one) for one in (heard[0].said, heard[0].taught))
            own = (1 - self.weight) * own + self.weight * answers_alike(logits, taught, self.temperature)
        return self._inside(own, heard[0])

    def _heard(
        self, student: Any, forward: Callable[..., Any], inputs: Any, how: Mapping[str, Any], own: Mapping[str, Any]
    ) -> Heard:
        """Ask both; ``how`` is of both, and ``own`` of the student."""
        inside, relations = bool(self.hidden or self.relations), bool(self.relations)
        self.teacher.to(next(student.parameters()).device)
        pairs = layers_of(len(student.blocks), len(self.teacher.blocks)) if self.hidden else []
        with torch.no_grad(), watched(self.teacher.blocks, [t for _, t in pairs], relations=relations) as theirs:
            taught = self.teacher(self.given(inputs), shortest=not inside, **how)
        with watched(student.blocks, [s for s, _ in pairs], relations=relations) as ours:
            logits = forward(inputs, shortest=not inside, **how, **own)
        return Heard(logits, taught, ours, theirs, pairs)

    def _inside(self, loss: Tensor, heard: Heard) -> Tensor:
        """With the lessons on what is inside."""
        ours, theirs = heard.ours, heard.theirs
        there = slice(None) if theirs.there is None else theirs.there
        ran = [(ours.hidden[s], theirs.hidden[t]) for s, t in heard.pairs if s in ours.hidden]  # all, without LayerDrop
        if ran:
            alike = [hidden_alike(one[there], other[there]) for one, other in ran]
            loss = loss + self.hidden * torch.stack(alike).mean()
        if self.relations and ours.q.numel():
            loss = loss + self.relations * relations_alike(ours, theirs)
        return loss

    def _answers(self, logits: Tensor, taught: Tensor, own: Callable[[Tensor], Tensor]) -> Tensor:
        if self.hard:  # the class token learns the labels, the distillation token what the teacher decides (DeiT)
            decided = F.cross_entropy(logits[:, -1].float(), taught.argmax(-1))
            return (1 - self.weight) * own(logits[:, 0]) + self.weight * decided
        if not self.weight:
            return own(logits)
        return (1 - self.weight) * own(logits) + self.weight * answers_alike(logits, taught, self.temperature)


def _check_tokens(student: Any, teacher: Any) -> None:
    """What two models have of a picture is token by token the same."""
    laid = [(one.config.grid, one.config.prefix, one.config.registers, one.config.tokens) for one in (student, teacher)]
    if laid[0] != laid[1]:
        raise InputError(
            "the student's tokens are not its teacher's (patches, class token, registers), so that their states are "
            "not alike; leave teacher.hidden and teacher.relations out."
        )


def learned_from(teacher: Teacher) -> Vocabulary | None:
    """The tokens of a teacher of text, which a student from scratch takes over; None without one."""
    return None if teacher.path is None else Vocabulary.beside(Path(read(teacher.path).path))


def lessons_of(
    teacher: Teacher, words: Vocabulary, labels: tuple[str, ...] | None = None, *, family: str = "bert"
) -> Lessons | None:
    """What a run teaches students of the same kind and tokens, and labels where there are some; None without one."""
    if teacher.path is None:
        return None
    weights, path = read(teacher.path), teacher.path
    if weights.family != family:
        raise InputError(f"the teacher {path!r} is a {weights.family}, which teaches no {family}; give one that is.")
    if Vocabulary.beside(Path(weights.path)).tokenizer.get_vocab() != words.tokenizer.get_vocab():
        raise InputError(
            f"the teacher {path!r} has other tokens than the weights that are given, so that what it says of them is "
            f"nothing to this student; leave one of them out."
        )
    if weights.labels != labels:
        some = ", ".join((weights.labels or ("none",))[:5])
        raise InputError(f"the teacher {path!r} answers with other labels ({some}) than the data have.")
    return Lessons(weights.model().float(), **teacher.model_dump(exclude={"path"}))
