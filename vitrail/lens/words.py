"""Sentences seen through: which word looks at which, in every head, and what would have been said after each layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.lens.recording import Trace, record, sites
from vitrail.lens.tokens import looking

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
    said: tuple[str, ...]  # what should follow each word that is given
    probabilities: Tensor  # of that, (t)
    lens: list[list[list[tuple[str, float]]]]  # after each layer, at each place, what would be said: the likeliest


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
