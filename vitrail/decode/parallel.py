"""All tokens of a sequence at once, then again those that the model is least sure of (Ghazvininejad et al. 2019)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from vitrail.decode.autoregressive import NEVER, Hypothesis
from vitrail.errors import InputError

Decode: TypeAlias = Callable[[Tensor], Tensor]  # tokens (b n) -> the stream that they are said from (b n w)

if TYPE_CHECKING:
    from vitrail.families.seq2seq.config import Seq2SeqConfig
    from vitrail.families.seq2seq.model import Context, Seq2Seq


@torch.no_grad()
def mask_predict(
    model: "Seq2Seq",
    source: Tensor,
    *,
    passes: int = 4,
    candidates: int = 5,
    factor: float = 1.0,
    never: tuple[int, ...] = (),
) -> list[list[Hypothesis]]:
    """For each source (b s) what is said at each of the likeliest lengths, the best first.

    The score is the mean of the log-probabilities of the tokens and, as of one more, of the length: by the tokens alone
    a length that was never seen may look better than the right one. (The paper goes by the tokens.)
    In pass t of T, N (T - t) / T of a sequence's N tokens, those of the lowest probability, are masked and said anew.
    Lengths are predicted, times a factor; a model that predicts none is given room enough, and cut after END.
    """
    if passes < 1 or candidates < 1 or factor <= 0:
        raise InputError(
            f"passes={passes}, candidates={candidates}, length={factor} do not fit; passes and candidates are 1 or "
            f"more, the length above 0."
        )
    context = model.encode(source)
    if not model.config.lengths:
        return _cut_after_end(model, source, context, factor, never)
    lengths, likely = _lengths(model, source, context, candidates, factor)  # b l
    several = lengths.shape[1]
    rows = torch.arange(len(source), device=source.device).repeat_interleave(several)
    tokens, log_p = _filled(model, model.passes(context, rows), lengths.flatten(), passes, never)
    hypotheses: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    totals = (log_p.sum(1) + likely.flatten()) / (lengths.flatten() + 1)
    for row, (length, score) in enumerate(zip(lengths.flatten().tolist(), totals.tolist(), strict=True)):
        one = Hypothesis((*tokens[row, :length].tolist(), model.config.end), score)
        if one not in hypotheses[row // several]:  # of the same length, which short ones may have
            hypotheses[row // several].append(one)
    return [sorted(every, key=lambda one: -one.score) for every in hypotheses]


def room(sources: Tensor, config: "Seq2SeqConfig", factor: float = 1.0) -> Tensor:
    """Tokens enough for the targets of sources with so many each, where no length is predicted."""
    return (factor * (config.room * sources + 1)).ceil().long().clamp(1, config.length)


def _lengths(
    model: "Seq2Seq", source: Tensor, context: "Context", candidates: int, factor: float
) -> tuple[Tensor, Tensor]:
    """The likeliest lengths of the targets and their log-probabilities, (b l) each; with a factor all are as likely."""
    c = model.config
    counts = (source != c.pad).sum(1) - 1  # without END
    logits = model.length_logits(context).float()
    likely, classes = logits.log_softmax(-1).topk(min(candidates, logits.shape[1]))
    offsets = classes - c.lengths
    if factor != 1:  # the likeliest one times the factor, and those next to it
        near = torch.arange(offsets.shape[1], device=source.device)
        offsets, likely = offsets[:, :1] + (near + 1) // 2 * (1 - 2 * (near % 2)), torch.zeros_like(likely)
    return ((counts[:, None] + offsets).clamp(min=1) * factor).round().long().clamp(1, c.length), likely


def _filled(
    model: "Seq2Seq", decode: Decode, lengths: Tensor, passes: int, never: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Tokens (b n) of so many each, and the log-probability of each when it was said."""
    c, most = model.config, int(lengths.max())
    there = torch.arange(most, device=lengths.device) < lengths[:, None]
    tokens = torch.where(there, c.mask, c.pad)
    log_p, masked = torch.zeros(tokens.shape, device=tokens.device), there
    for number in range(passes):
        tokens[masked], log_p[masked] = _say(model, decode(tokens)[masked], never)
        if number + 1 == passes:
            break
        again = (lengths * (passes - number - 1)) // passes
        order = log_p.masked_fill(~there, torch.inf).argsort(1).argsort(1)  # the place of each, the least sure first
        masked = order < again[:, None]
        tokens = tokens.masked_fill(masked, c.mask)
    return tokens, log_p


def _cut_after_end(
    model: "Seq2Seq", source: Tensor, context: "Context", factor: float, never: tuple[int, ...]
) -> list[list[Hypothesis]]:
    """One pass over room enough for any target, of which what comes after END is left out."""
    c = model.config
    lengths = room((source != c.pad).sum(1), c, factor)
    there = torch.arange(int(lengths.max()), device=source.device) < lengths[:, None]
    allowed = tuple(token for token in never if token != c.end)
    stream = model.decode(torch.where(there, c.mask, c.pad), context)
    tokens, log_p = _say(model, stream[there], allowed)
    hypotheses = []
    for one, some in zip(tokens.split(lengths.tolist()), log_p.split(lengths.tolist()), strict=True):
        words = one.tolist()
        count = words.index(c.end) + 1 if c.end in words else len(words)
        hypotheses.append([Hypothesis(tuple(words[:count]), float(some[:count].mean()))])
    return hypotheses


def _say(model: "Seq2Seq", stream: Tensor, never: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The likeliest tokens at some places (n w), and their log-probabilities."""
    logits = model.answer(stream).float()
    logits[:, list(never)] = NEVER
    best, likeliest = logits.log_softmax(-1).max(-1)
    return likeliest, best
