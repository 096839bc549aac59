"""A translator whose steps ONNX Runtime takes: attention as one operator of its own, and nothing moved about.

encoder.onnx: source (b s), padded at its end -> there (b s), and of each layer of the decoder the keys and values
              (b h s d) that it looks at
step.onnx:    tokens (b 1), there, those keys and values, and the past ones (b h j d) -> logits (b v), and the past
              ones with those of the step

A step of a small model is hundreds of calls in PyTorch, which take longer than what they compute (bench/README.md).
Files that other programs are to run are those of ``onnx_steps``.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail.core import Mask
from vitrail.core.attention import Attention
from vitrail.core.block import Block
from vitrail.core.masks import NONE
from vitrail.core.tokens import FactoredTable, TokenEmbedding
from vitrail.errors import InputError
from vitrail.families import empty
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.files import make_folder
from vitrail.weights.onnx import quiet, written
from vitrail.weights.onnx_decoding import NAMES, FileSteps, Sessions
from vitrail.weights.onnx_fused import attended, fused, joined, plain
from vitrail.weights.weights import Usage, Weights, described

MOST = 2**20  # rows at most
TRIED = ((2, 3), (1, 1), (3, 6))  # rows and tokens that the files are tried with
Pair = tuple[Tensor, Tensor]


class Encoder(nn.Module):
    """Sources (b s) -> which tokens are there, and what each layer of the decoder looks at."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, ...]:
        there = source != self.model.config.pad
        x = self.model.encoder(self.model.source(source), Mask(present=there))
        memory = self.model.encoder_norm(x)
        looked = []
        for block in self.model.decoder:
            attention = _attention(block, "cross")
            looked += [one.contiguous() for one in attention.apart(attention.key_value(memory))]
        return (there.to(torch.int32), *looked)


class Step(nn.Module):
    """The last tokens (b 1), what is there, what is looked at and what was seen -> logits (b v), what was seen."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.joints = nn.ModuleList(joined(_attention(block, "attention")) or nn.Identity() for block in model.decoder)

    def forward(self, tokens: Tensor, there: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        model, blocks, middle = self.model, list(self.model.decoder), len(kept) // 2
        contexts, pasts = (list(zip(some[::2], some[1::2], strict=True)) for some in (kept[:middle], kept[middle:]))
        presents = list[Tensor]()
        with ExitStack() as changed:
            for block, joint, context, past in zip(blocks, self.joints, contexts, pasts, strict=True):
                changed.enter_context(_looking(_attention(block, "cross"), context, there))
                changed.enter_context(_growing(_attention(block, "attention"), joint, past, presents))
            x = model.target(tokens, pasts[0][0].shape[2])
            stream = model.decoder(x, NONE, context=x)
        return (model.answer(stream)[:, 0], *presents)


@contextmanager
def _looking(attention: Attention, context: Pair, there: Tensor) -> Iterator[None]:
    """Have it look at keys and values that are given."""

    def forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
        (z,) = attended((attention.query(x), *context, None, there), attention.heads)
        return attention.out(z)

    with _instead(attention, forward):
        yield


@contextmanager
def _growing(attention: Attention, joint: nn.Module, past: Pair, presents: list[Tensor]) -> Iterator[None]:
    """Have it look at what came before too, and tell both."""

    def forward(x: Tensor, *_: Any, **__: Any) -> Tensor:
        if isinstance(joint, nn.Linear):
            q, k, v = joint(x).split([attention.widths[0], *attention.widths], -1)
        else:
            q, (k, v) = attention.query(x), attention.key_value(x).split(attention.widths, -1)
        shapes = [(*one.shape[:2], one.shape[2] + 1, one.shape[3]) for one in past]
        z, *present = attended((q, k, v, None, None, None, *past), attention.heads, shapes)
        presents.extend(present)
        return attention.out(z)

    with _instead(attention, forward):
        yield


@contextmanager
def _instead(module: nn.Module, forward: Any) -> Iterator[None]:
    module.forward = forward
    try:
        yield
    finally:
        del module.forward


class Bytes(nn.Module):
    """A table of tokens in eight bits, each row with a scale of its own."""

    rows: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        scales = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        self.register_buffer("rows", (weight / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.rows[tokens].float() * self.scales[tokens]


@contextmanager
def _small_tables(model: nn.Module) -> Iterator[None]:
    """Have tokens be looked up in eight bits."""
    changed = list[tuple[Any, str, nn.Embedding]]()
    for one in [one for one in model.modules() if isinstance(one, TokenEmbedding)]:
        owner, name = (one.table, "rows") if isinstance(one.table, FactoredTable) else (one, "table")
        changed.append((owner, name, getattr(owner, name)))
    for owner, name, table in changed:
        setattr(owner, name, Bytes(table.weight.detach()))
    try:
        yield
    finally:
        for owner, name, table in changed:
            setattr(owner, name, table)


def takes_steps(config: Any) -> bool:
    """Whether a translator can be written so: one that says token by token, with plain attention."""
    if config.parallel:
        return False
    try:
        for block in cast("Seq2Seq", empty(config)).decoder:
            _attention(block, "attention")
            _attention(block, "cross")
    except InputError:
        return False
    return True


def _attention(block: Block, name: str) -> Attention:
    sublayer = getattr(block, name)
    if sublayer is None or not isinstance(sublayer.f, Attention) or not plain(sublayer.f):
        raise InputError(f"a layer's {name} is no plain attention, which a step of this kind has.")
    return sublayer.f


def save_translator(weights: Weights, folder: Path, *, small: bool = False) -> list[Path]:
    """Write both files; ``small`` has tokens looked up in eight bits. What is written says what the model says."""
    model = weights.model().float()
    if not isinstance(model, Seq2Seq) or model.config.parallel:
        raise InputError(f"{weights.path!r} says no target token by token, which these steps are of.")
    about = described(weights.config, "vitrail", Usage())
    paths = [make_folder(folder) / f"{name}.onnx" for name in NAMES]
    try:
        with torch.no_grad(), _small_tables(model) if small else ExitStack():
            for path, name, graph in zip(paths, NAMES, _graphs(model), strict=True):
                with written(graph, path, {**about, "part": name}):
                    pass
            _try(model, paths)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  # of a part that PyTorch or ONNX Runtime has no way for
        why = " ".join(str(error).strip().splitlines()[:1])[:160]
        raise InputError(
            f"{weights.path!r} has a part that its steps in ONNX files have no place for: {why}."
        ) from None
    return paths


def _graphs(model: Seq2Seq) -> Iterator[Any]:
    rows, long, before = (torch.export.Dim(name, min=least, max=MOST) for name, least in (("b", 1), ("s", 1), ("j", 0)))
    source = torch.full((3, 5), model.config.end)
    encoder, step = Encoder(model).eval(), Step(model).eval()
    with quiet():
        with fused(model.encoder):
            there, *looked = encoder(source)
            names = _names("context", model)
            given: Any = {"input_names": ["source"], "output_names": ["there", *names]}
            yield _exported(encoder, (source,), ({0: rows, 1: long},), **given)
        pasts = [torch.randn(3, heads, 4, wide) for heads, wide in _remembered(model)]
        kept = [*({0: rows, 2: long} for _ in looked), *({0: rows, 2: before} for _ in pasts)]
        past = _names("past", model)
        yield _exported(
            step,
            (source[:, :1], there, *looked, *pasts),
            ({0: rows}, {0: rows, 1: long}, tuple(kept)),
            input_names=["tokens", "there", *names, *past],
            output_names=["logits", *_names("present", model)],
        )


def _exported(part: nn.Module, given: tuple[Tensor, ...], shapes: Any, **names: Any) -> Any:
    return torch.onnx.export(part, given, None, dynamo=True, dynamic_shapes=shapes, verbose=False, **names)


def _names(kind: str, model: Seq2Seq) -> list[str]:
    return [f"{kind}.{layer}.{what}" for layer, _ in enumerate(model.decoder) for what in ("key", "value")]


def _remembered(model: Seq2Seq) -> list[tuple[int, int]]:
    """Heads and the width of one, of the keys and of the values of each layer."""
    heads = []
    for block in model.decoder:
        attention = _attention(block, "attention")
        heads += [(attention.heads, wide // attention.heads) for wide in attention.widths]
    return heads


def _try(model: Seq2Seq, paths: Sequence[Path]) -> None:
    sessions = Sessions(list(paths))
    draw = torch.Generator().manual_seed(0)
    for rows, tokens in TRIED:
        source = torch.randint(3, model.config.source, (rows, tokens), generator=draw)
        source[-1, (tokens + 1) // 2 :] = model.config.pad
        ours, theirs = model.steps(source), FileSteps(sessions, source)
        for _ in range(3):
            last = torch.randint(3, model.config.target, (rows,), generator=draw)
            expected, answers = ours(last), theirs(last)
            if not torch.allclose(expected, answers, rtol=1e-3, atol=1e-3 * max(1.0, float(expected.abs().max()))):
                raise ValueError(f"answers differ for {rows} rows of {tokens} tokens")
