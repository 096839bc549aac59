"""Token by token: greedy, sampled, or by beam search. Of a model all of them know one cached step, and no more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vitrail.errors import InputError

NEVER = -torch.inf
COLD = 1e-6  # a temperature below which the likeliest token is taken
LEFT = 0.875  # of the rows: when no more than these go on, the others leave the batch, which moves all that is kept


class Steps(Protocol):
    """A model that is asked for one token after another."""

    device: torch.device  # of all tensors

    def __call__(self, tokens: Tensor) -> Tensor:
        """The last token of each row (b) -> the logits of the next (b v)."""

    def select(self, rows: Tensor, *, sources: bool = True) -> None:
        """Go on with these rows, each with its own past and source; without sources, each place keeps the one it has,
        since rows change places among those of one source.
        """


@dataclass(frozen=True)
class Limits:
    """What sequences begin and end with, how many tokens they have at most, and which are never said."""

    begin: int
    end: int
    most: int  # tokens, the end among them
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.most < 1:
            raise InputError(f"most={self.most} does not fit; a sequence has one token at least.")

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Of each token (b v), with none of those that are never said."""
        log_probabilities = logits.float().log_softmax(-1)
        return log_probabilities.index_fill_(
            -1, torch.tensor(self.never, dtype=torch.long, device=log_probabilities.device), NEVER
        )


@dataclass(frozen=True)
class Hypothesis:
    """A sequence without its beginning, and its score: the sum of its tokens' log-probabilities, over its length to the
    power of the penalty (Wu et al. 2016).
    """

    tokens: tuple[int, ...]
    score: float


@torch.no_grad()
def greedy(steps: Steps, count: int, limits: Limits, *, penalty: float = 1.0) -> list[Hypothesis]:
    """The likeliest token each time, for so many sources."""
    return _one_each(steps, count, limits, penalty, lambda logits: logits.argmax(-1))


@torch.no_grad()
def sample(
    steps: Steps,
    count: int,
    limits: Limits,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    penalty: float = 1.0,
) -> list[Hypothesis]:
    """Each token drawn by its probability, after logits were divided by the temperature: of the likeliest k alone, and
    of those of the fewest that have probability p together (Holtzman et al. 2020).
    """
    if temperature <= 0:
        raise InputError(f"temperature={temperature} does not fit; it should be above 0.")
    return _one_each(steps, count, limits, penalty, Drawing(temperature, top_k, top_p, generator))


@dataclass(frozen=True)
class Drawing:
    """Tokens drawn by their probabilities, as ``sample`` has it; at temperature 0 the likeliest."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < torch.inf or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise InputError(
                f"temperature={self.temperature}, top_k={self.top_k}, top_p={self.top_p} do not fit; the temperature "
                f"is 0 (the likeliest) or more, top_k 0 (all) or more, top_p above 0 and at most 1."
            )

    def __call__(self, logits: Tensor) -> Tensor:
        """Logits, or log-probabilities (b v) -> tokens (b)."""
        if self.temperature < COLD:
            return logits.argmax(-1)
        logits = logits - logits.amax(-1, keepdim=True)  # lest large logits over a small temperature are infinite
        probabilities = narrowed(logits / self.temperature, self.top_k, self.top_p).softmax(-1)
        device = "cpu" if self.generator is None else self.generator.device
        return torch.multinomial(probabilities.to(device), 1, generator=self.generator)[:, 0].to(logits.device)


@torch.no_grad()
def stream(
    begin: Callable[[Tensor], Steps],
    prompt: Tensor,
    choose: Callable[[Tensor], Tensor],
    *,
    room: int,
    most: int,
    never: Sequence[int] = (),
) -> Iterator[Tensor]:
    """What follows a prompt (b n), token by token (b), so many at most. A model has room for so many at a time: when
    they are full it begins anew with the last half of them.
    """
    past, steps, seen = prompt, begin(prompt), prompt.shape[1]
    hidden = torch.tensor(list(never), dtype=torch.long, device=prompt.device)
    for _ in range(most):
        if seen > room:
            past = past[:, -max(1, room // 2) :]
            steps, seen = begin(past), past.shape[1]
        tokens = choose(steps(past[:, -1]).float().index_fill(-1, hidden, NEVER))
        yield tokens
        past, seen = torch.cat([past, tokens[:, None]], dim=1)[:, -room:], seen + 1


def narrowed(logits: Tensor, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Logits (b v) with minus infinity for all but the likeliest k, and of those the fewest that have p together."""
    if 0 < top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], NEVER)
    if top_p < 1:
        ordered, places = logits.sort(descending=True)
        probabilities = ordered.softmax(-1)
        over = probabilities.cumsum(-1) - probabilities >= top_p  # without the token itself, so that one is left
        logits = logits.masked_fill(over.scatter(-1, places, over), NEVER)
    return logits


def _one_each(
    steps: Steps, count: int, limits: Limits, penalty: float, choose: Callable[[Tensor], Tensor]
) -> list[Hypothesis]:
    """One sequence for each source; those that have ended leave the batch, some at a time."""
    best: dict[int, Hypothesis] = {}
    alive, scores = torch.arange(count, device=steps.device), torch.zeros(count, device=steps.device)
    tokens = torch.full((count,), limits.begin, device=steps.device)
    past = tokens[:, None][:, :0]
    for length in range(1, limits.most + 1):
        log_p = limits.log_probabilities(steps(tokens))
        tokens = choose(log_p)
        scores = scores + log_p.gather(1, tokens[:, None])[:, 0]
        past = torch.cat([past, tokens[:, None]], dim=1)
        ended = (tokens == limits.end) if length < limits.most else torch.ones_like(tokens, dtype=torch.bool)
        if bool(ended.any()):
            for row in ended.nonzero()[:, 0].tolist():
                last = Hypothesis(tuple(past[row].tolist()), float(scores[row]) / length**penalty)
                best.setdefault(int(alive[row]), last)  # the first end counts
            going = [row for row, source in enumerate(alive.tolist()) if source not in best]
            if not going:
                break
            if len(going) <= LEFT * len(alive):
                rows = torch.tensor(going, device=steps.device)
                alive, tokens, scores, past = alive[rows], tokens[rows], scores[rows], past[rows]
                steps.select(rows)
    return [best[source] for source in range(count)]


@torch.no_grad()
def beam_search(
    steps: Steps, count: int, limits: Limits, *, beam: int = 5, penalty: float = 1.0
) -> list[list[Hypothesis]]:
    """For each of so many sources the best sequences found, the best first: so many begun ones are gone on with.

    A source is finished when it has as many ended sequences as beams, and no begun one scores better than the worst of
    them, as long as it is. With a beam of 1 it is greedy.
    """
    if beam < 1:
        raise InputError(f"beam={beam} does not fit; it should be 1 or more.")
    if beam == 1:
        return [[one] for one in greedy(steps, count, limits, penalty=penalty)]
    ended: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive, done = list(range(count)), set[int]()
    token = torch.full((count, 1), limits.begin, device=steps.device)
    scores = torch.zeros(count, 1, device=steps.device)  # of what was begun, (b k): nothing yet, of each source once
    past = token[:, :, None][:, :, :0]  # its tokens, (b k t)
    log_p = limits.log_probabilities(steps(token.flatten()))[:, None]  # of what may follow, (b k v)
    for length in range(1, limits.most + 1):
        values, source, token = _best(scores[:, :, None] + log_p, 2 * beam)
        stops = (token == limits.end) if length < limits.most else torch.ones_like(token, dtype=torch.bool)
        stops &= values > NEVER
        for row, index in stops[:, :beam].nonzero().tolist():  # what is not among the best as many as beams is no end
            if alive[row] in done:
                continue
            tokens = (*past[row, source[row, index]].tolist(), int(token[row, index]))
            _keep(ended[alive[row]], Hypothesis(tokens, float(values[row, index]) / length**penalty), beam)
        values, order = values.masked_fill(stops, NEVER).topk(min(beam, values.shape[1]))
        source, token = source.gather(1, order), token.gather(1, order)
        done |= {
            one
            for best, one in zip(values[:, 0].tolist(), alive, strict=True)
            if best == NEVER or _settled(ended[one], best / length**penalty, beam)
        }
        going = [row for row, one in enumerate(alive) if one not in done]
        if not going or length == limits.most:
            break
        going = going if len(going) <= LEFT * len(alive) else list(range(len(alive)))
        rows = torch.tensor(going, device=steps.device)
        moved = len(going) < len(alive) or source.shape[1] != past.shape[1]  # sources have left, or have more beams
        steps.select((rows[:, None] * past.shape[1] + source[rows]).flatten(), sources=moved)
        alive = [alive[row] for row in going]
        scores, source, token = values[rows], source[rows], token[rows]
        past = torch.cat([past[rows[:, None], source], token[:, :, None]], dim=2)
        log_p = limits.log_probabilities(steps(token.flatten())).view(len(going), -1, log_p.shape[-1])
    return [sorted(every, key=lambda one: -one.score) for every in ended]


def _best(scores: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best of all that may follow (b k v): their scores, which of the begun ones each goes on with, its token."""
    flat = scores.flatten(1)
    values, places = flat.topk(min(most, flat.shape[1]))
    tokens = scores.shape[-1]
    return values, places // tokens, places % tokens


def _keep(ended: list[Hypothesis], one: Hypothesis, beam: int) -> None:
    """Put one with those that have ended, of which the best as many as beams are kept."""
    ended.append(one)
    if len(ended) > beam:
        ended.remove(min(ended, key=lambda other: other.score))


def _settled(ended: list[Hypothesis], best: float, beam: int) -> bool:
    """Whether nothing begun, the best of which would have this score now, is better than what has ended."""
    return len(ended) >= beam and min(one.score for one in ended) >= best
