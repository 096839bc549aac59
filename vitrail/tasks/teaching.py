"""What a student learns from a teacher: its answers, its hidden states, and what its tokens are to each other."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.block import Block, looked_at
from vitrail.errors import InputError

ROWS = 2  # tokens for each number of a hidden state, at least, that a map is found by
HEADS = 12  # that relations are cut in, at most
RIDGE = 1e-3  # of the mean variance, by which a map of hidden states is held back


def answers_alike(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """T^2 KL(softmax(t / T) || softmax(s / T)), averaged over the batch (Hinton et al. 2015)."""
    t = temperature
    said, wanted = F.log_softmax(student.float() / t, -1), F.log_softmax(teacher.float() / t, -1)
    return t * t * F.kl_div(said, wanted, reduction="none", log_target=True).sum(-1).mean()


def hidden_alike(student: Tensor, teacher: Tensor) -> Tensor:
    """What of a teacher's hidden state (b n w) a linear map of the student's (b n v) cannot tell: 0 if all of it can.

    The map is the best one for the batch, by least squares (of the kind of FitNets, Romero et al. 2015): there is
    nothing of it to keep, and a training that is taken up again goes on as it would have.
    """
    s, t = (x.flatten(0, -2).float() for x in (student, teacher))
    if len(s) < ROWS * s.shape[1]:
        raise InputError(
            f"{len(s)} tokens at a time are too few to find a map of {s.shape[1]} numbers by; choose a larger "
            f"train.batch, or leave teacher.hidden out."
        )
    s, t = s - s.mean(0), (t - t.mean(0)).detach()
    with torch.no_grad():
        moment = s.T @ s
        held = RIDGE * moment.diagonal().mean().clamp(min=1e-12) * torch.eye(len(moment), device=s.device)
        best = torch.linalg.solve(moment + held, s.T @ t)
    return (s @ best - t).square().sum() / t.square().sum().clamp(min=1e-12)


def relations_alike(student: "Seen", teacher: "Seen") -> Tensor:
    """KL between what tokens are to each other in the last layer: by queries and keys, and by values (MiniLM, Wang et
    al. 2020, eqs. 6 and 8); heads joined and cut in as many as both have room for (MiniLMv2, Wang et al. 2021).
    """
    loss = torch.zeros(())
    for pair in (("q", "k"), ("v", "v")):
        one, other = ([getattr(seen, name) for name in pair] for seen in (student, teacher))
        count = gcd(one[0].shape[-1], other[0].shape[-1])
        heads = max(number for number in range(1, min(count, HEADS) + 1) if count % number == 0)
        said, wanted = (_relation(both[0], both[1], heads) for both in (one, other))
        loss = loss + F.kl_div(said, wanted.detach(), reduction="none", log_target=True).sum(-1).mean()
    return loss


def _relation(a: Tensor, b: Tensor, heads: int) -> Tensor:
    """Log softmax(a b^T / sqrt(d)) of tokens (b n w), in so many parts of the width."""
    a, b = (x.float().unflatten(-1, (heads, -1)).transpose(1, 2) for x in (a, b))
    return F.log_softmax(a @ b.mT * a.shape[-1] ** -0.5, -1)


class Seen:
    """What was seen of a model in one call: the stream after some blocks (b n w), by their numbers, and q, k, v of the
    last attention (b n w); of blocks that ran.
    """

    def __init__(self) -> None:
        self.hidden: dict[int, Tensor] = {}
        self.q = self.k = self.v = torch.zeros(0)


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
    if relations:
        last = next((block.attention.f for block in reversed(blocks) if block.attention is not None), None)
        if not isinstance(last, Attention):
            raise InputError("teacher.relations are of attention, which a model here has none of; leave it out.")

        def keep(_: nn.Module, given: Any, __: Any) -> None:
            seen.q, seen.k, seen.v = (x.transpose(1, 2).flatten(2) for x in given[:3])

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
        inside, relations = bool(self.hidden or self.relations), bool(self.relations)
        self.teacher.to(next(student.parameters()).device)
        if inside:
            _check_tokens(student, self.teacher)
        pairs = layers_of(len(student.blocks), len(self.teacher.blocks)) if self.hidden else []
        with torch.no_grad(), watched(self.teacher.blocks, [t for _, t in pairs], relations=relations) as theirs:
            taught = self.teacher(self.given(inputs), shortest=not inside)
        with watched(student.blocks, [s for s, _ in pairs], relations=relations) as ours:
            apart = {"apart": True} if self.hard else {}
            said = forward(inputs, shortest=not inside, **apart)
        loss = self._answers(said, taught[..., : said.shape[-1]], own)
        ran = [(ours.hidden[s], theirs.hidden[t]) for s, t in pairs if s in ours.hidden]  # all, without LayerDrop
        if ran:
            loss = loss + self.hidden * torch.stack([hidden_alike(*pair) for pair in ran]).mean()
        if relations and ours.q.numel():
            loss = loss + self.relations * relations_alike(ours, theirs)
        return loss

    def _answers(self, said: Tensor, taught: Tensor, own: Callable[[Tensor], Tensor]) -> Tensor:
        if self.hard:  # the class token learns the labels, the distillation token what the teacher decides (DeiT)
            decided = F.cross_entropy(said[:, -1].float(), taught.argmax(-1))
            return (1 - self.weight) * own(said[:, 0]) + self.weight * decided
        if not self.weight:
            return own(said)
        return (1 - self.weight) * own(said) + self.weight * answers_alike(said, taught, self.temperature)


def _check_tokens(student: Any, teacher: Any) -> None:
    """What two models have of a picture is token by token the same."""
    laid = [(one.config.grid, one.config.prefix, one.config.registers, one.config.tokens) for one in (student, teacher)]
    if laid[0] != laid[1]:
        raise InputError(
            "the student's tokens are not its teacher's (patches, class token, registers), so that their states are "
            "not alike; leave teacher.hidden and teacher.relations out."
        )
