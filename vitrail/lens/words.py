"""Sentences seen through: which word looks at which, in every head, and what would have been said after each layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.core import Attention
from vitrail.errors import InputError
from vitrail.families.bert.model import BERT
from vitrail.families.gpt.model import GPT
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.families.token_model import TokenModel
from vitrail.lens.recording import Trace, layer_sites, record, sites
from vitrail.lens.tokens import looking

SHOWN = 192  # tokens of a long text that are shown, the last ones
TOP = 3  # tokens that are shown of what would have been said


@dataclass(frozen=True, eq=False)
class Attended:
    """The attention of one kind in all layers: from which words, to which."""

    name: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    patterns: Tensor  # (l h i j)


@dataclass(frozen=True, eq=False)
class Reading:
    """A sentence and what is said of it, seen through."""

    groups: list[Attended]
    places: tuple[str, ...]  # the words at which something is said
    said: tuple[str, ...]  # what should be said at each
    probabilities: Tensor  # of that, (t)
    lens: list[list[list[tuple[str, float]]]]  # after each layer, at each place, what would be said: the likeliest
    asked: str = "follows"  # how what is said stands to the word: it follows it, stands there, or is its label
    written: Tensor | None = None  # by each head, and by the feed-forward, to the logit of what is said (t l h + 1)
    rest: Tensor | None = None  # of that logit: the embedding's and the biases' part (t)
    notes: tuple[str, ...] = ()


@looking(TokenModel)  # type: ignore[type-abstract]
@torch.no_grad()
def read_tokens(
    model: TokenModel, tokens: Tensor, words: Sequence[str], said: Sequence[int], *, names: Sequence[str], asked: str
) -> Reading:
    """One text (1 n), what its tokens are called, what should be said at each of them (or of all, if it is one; or
    nothing, of a model that says nothing), and what all that may be said is called.

    Of a long text the last tokens are shown, and the others in one column.
    """
    with record(model) as trace:
        logits = model(tokens)
    first = max(0, tokens.shape[1] - SHOWN)
    notes = [f"{first:,} tokens before these are in one column"] if first else []
    groups = [_among(model, trace, tuple(words), first)]
    if not said:
        return Reading(groups, (), (), torch.zeros(0), [], asked, notes=tuple(notes))
    alone = logits.ndim == 2  # noqa: PLR2004  # one answer for all
    rows = slice(None) if alone else slice(first, None)
    probabilities = (logits if alone else logits[0, rows]).double().softmax(-1).cpu()
    targets = torch.tensor(list(said))[rows]
    stream, lens = trace.residual("encoder"), []
    for end in _ends(model):
        answers = model.answer(stream[end][:, rows])
        lens.append(_likeliest((answers if alone else answers[0]).double().softmax(-1).cpu(), names))
    written, rest = None, None
    try:
        written, rest = token_writes(model, trace, targets, first)
    except InputError as error:
        notes.append(str(error))
    return Reading(
        groups=groups,
        places=("the text",) if alone else tuple(words[first:]),
        said=tuple(names[token] for token in targets.tolist()),
        probabilities=probabilities[torch.arange(len(targets)), targets],
        lens=lens,
        asked=asked,
        written=written,
        rest=rest,
        notes=tuple(notes),
    )


def token_writes(model: TokenModel, trace: Trace, said: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
    """What each head, and the feed-forward, of each layer wrote to the logit of what is said at each place from the
    first on, less the mean of all logits (t l h + 1); and what is left of it: the embedding and the biases (t).

    The last norm's mean and scale are taken as they were, so that all sums to the logit.
    """
    last, norm = _last_map(model), cast("nn.LayerNorm", model.norm)
    stream = trace.residual("encoder")[:, 0, first:]  # (s t w)
    weight = last.weight - last.weight.mean(0)
    scale = (stream[-1].var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
    into = weight[said]
    constant = into @ norm.bias
    bias: Tensor | None = last.bias
    if bias is not None:
        constant = constant + bias[said] - bias.mean()
    into = into * norm.weight * scale
    into = into - into.mean(-1, keepdim=True)
    most = model.config.most_heads
    written = torch.full((len(said), len(model.blocks), most + 1), torch.nan)
    rest, index = constant + (stream[0] * into).sum(-1), 0
    for layer, (block, site) in enumerate(zip(model.blocks, layer_sites(model), strict=True)):
        for sublayer in block.sublayers():
            wrote, index = stream[index + 1] - stream[index], index + 1
            if site is None or not isinstance(sublayer.f, Attention):
                written[:, layer, most] = (wrote * into).sum(-1)
                continue
            gain = wrote.new_ones(()) if sublayer.scale is None else sublayer.scale
            heads = trace.heads(site, rows=slice(first, None))[0] * gain  # (h t w)
            written[:, layer, : len(heads)] = (heads * into).sum(-1).T
            rest = rest + (into * (sublayer.f.out.bias * gain)).sum(-1)
    return written.cpu(), rest.cpu()


def _last_map(model: TokenModel) -> Any:
    if model.config.order == "pre" and not isinstance(model.norm, nn.LayerNorm):
        kind = type(model.norm).__name__
        raise InputError(f"what {kind} does to a sum is not known here: the logits are shown as a whole.")
    if model.config.order != "pre":
        raise InputError(
            "the model normalises after each addition (order='post'), so that every later layer scales what an earlier "
            "one wrote: its logits are no sum over the layers."
        )
    if isinstance(model, GPT):
        return model.logits
    if isinstance(model, BERT) and model.config.says == "tags":
        return model.classes
    raise InputError(
        "between the last layer and the logits stands more than a linear map: they are no sum over layers."
    )


def _ends(model: TokenModel) -> list[int]:
    """Where the residual stream is before the first block, and after each."""
    return [0, *accumulate(len(list(block.sublayers())) for block in model.blocks)]


def _among(model: TokenModel, trace: Trace, words: tuple[str, ...], first: int) -> Attended:
    """Of the last tokens among themselves; what they give to earlier ones is in a column of its own."""
    every = []
    for site in filter(None, layer_sites(model)):
        pattern = trace.pattern(site, rows=slice(first, None))[0].float().cpu()
        before = [pattern[..., :first].sum(-1, keepdim=True)] if first else []
        every.append(torch.cat([*before, pattern[..., first:]], -1))
    most = max(len(one) for one in every)
    patterns = torch.stack([F.pad(one, (0, 0, 0, 0, 0, most - len(one))) for one in every])
    columns = (f"{first:,} earlier", *words[first:]) if first else words
    about = "back to what came before" if model.mask(torch.zeros(1, 2, dtype=torch.long)).causal else "among all words"
    return Attended("attention", about, words[first:], columns, patterns)


@looking(Seq2Seq)
@torch.no_grad()
def read_words(
    model: Seq2Seq,
    inputs: tuple[Tensor, Tensor],
    words: tuple[Sequence[str], Sequence[str]],
    said: Sequence[int],
    names: Sequence[str],
) -> Reading:
    """One source and one target (1 n), what their tokens are called, the tokens that should be said, and the names of
    all of the vocabulary.
    """
    source, target = inputs
    if len(source) != 1 or len(target) != 1:
        raise InputError(f"{len(source)} sentences were given; look at them one at a time.")
    with record(model) as trace:
        logits = model(inputs)
    probabilities = logits[0].double().softmax(-1)
    layers = trace.residual("decoder")[0::3]  # each block writes three times
    lens = [_likeliest(model.answer(layer)[0].double().softmax(-1), names) for layer in layers]
    sides = tuple(words[0]), tuple(words[1])
    return Reading(
        groups=_groups(model, trace, *sides),
        places=sides[1],
        said=tuple(names[token] for token in said),
        probabilities=probabilities[torch.arange(len(said)), torch.tensor(list(said))].cpu(),
        lens=lens,
    )


def _groups(model: Seq2Seq, trace: Trace, source: tuple[str, ...], target: tuple[str, ...]) -> list[Attended]:
    every = list(sites(model))
    cross = [name for name in every if name.endswith(".cross")]
    encoder = [name for name in every if name.startswith("encoder.")]
    decoder = [name for name in every if name.startswith("decoder.") and name not in cross]

    def attended(name: str, about: str, some: list[str], rows: tuple[str, ...], columns: tuple[str, ...]) -> Attended:
        patterns = torch.stack([trace.pattern(site)[0].float().cpu() for site in some])
        return Attended(name, about, rows, columns, patterns)

    return [
        attended("cross", "from what is written to what is read", cross, rows=target, columns=source),
        attended("encoder", "among what is read", encoder, rows=source, columns=source),
        attended("decoder", "among what is written", decoder, rows=target, columns=target),
    ]


def _likeliest(probabilities: Tensor, names: Sequence[str]) -> list[list[tuple[str, float]]]:
    values, tokens = probabilities.topk(min(TOP, probabilities.shape[-1]))
    return [
        [(names[token], value) for token, value in zip(row, some, strict=True)]
        for row, some in zip(tokens.tolist(), values.tolist(), strict=True)
    ]
