"""Models of text as ONNX files: one step with what it remembers, so that a text is gone on with token by token.

gpt      model.onnx: tokens (b n), past (l b j k) -> logits (b v) of the token after the last, present (l b j+n k)
seq2seq  encoder.onnx: source (b s), padded at its end -> context (l b s k), there (b s)
         step.onnx: tokens (b n), past, context, there -> logits (b v), present
bert     model.onnx: tokens (b n), padded at their end -> logits

l are the layers, k the keys and values of one token in a layer, side by side; the first past has j = 0. What a file is
of is in its metadata, under ``vitrail``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.core import CAUSAL, Cache, Mask
from vitrail.core.attention import Attention
from vitrail.core.block import Block
from vitrail.errors import InputError
from vitrail.families.bert.model import BERT
from vitrail.families.gpt.model import GPT
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.files import make_folder
from vitrail.weights.onnx import quiet, session_of, written
from vitrail.weights.weights import Usage, Weights, described

MOST = 2**20  # rows at most
TRIED = ((2, 3), (1, 1), (3, 2))  # rows and tokens that a file is tried with


class GptStep(nn.Module):
    """A decoder alone: tokens (b n), past (l b j k) -> logits (b v), present."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        model, cache = self.model, remembered(self.model.blocks, past)
        stream = model.encoder(model.embed(tokens, past.shape[2], None), CAUSAL, cache=cache)
        return model.answer(stream[:, -1:])[:, 0], told(model.blocks, cache)


class Encoder(nn.Module):
    """Sources (b s) -> the keys and values that each layer of the decoder looks at (l b s k), and which are there."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        context = self.model.encode(source)
        there = context.mask.present
        looked = [_attention(block, "cross").key_value(context.memory) for block in self.model.decoder]
        return torch.stack(looked), torch.ones_like(source, dtype=torch.bool) if there is None else there


class DecoderStep(nn.Module):
    """A decoder that looks at sources: tokens (b n), past, context and there -> logits (b v), present."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, past: Tensor, context: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        model, blocks = self.model, list(self.model.decoder)
        cache = remembered(blocks, past)
        for number, block in enumerate(blocks):
            cache.at(number).at("cross").kept = _attention(block, "cross").apart(context[number])
        x = model.target(tokens, past.shape[2])
        stream = model.decoder(x, CAUSAL, context=context[0], context_mask=Mask(present=there), cache=cache)
        return model.answer(stream[:, -1:])[:, 0], told(blocks, cache)


class Labels(nn.Module):
    """Tokens (b n) -> what a BERT answers."""

    def __init__(self, model: BERT) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.answer(self.model.stream(tokens))


def remembered(blocks: Sequence[Block], past: Tensor) -> Cache:
    """What blocks have seen, (l b j k), as they remember it."""
    cache = Cache()
    for number, _ in enumerate(blocks):
        cache.at(number).at("attention").grown = past[number]
    return cache


def told(blocks: Sequence[Block], cache: Cache) -> Tensor:
    """The same again, with what came to it."""
    return torch.stack([cache.at(number).at("attention").grown for number, _ in enumerate(blocks)])  # type: ignore[misc]


def save_steps(weights: Weights, folder: Path) -> list[Path]:
    """Write a model of text; the files. Each is tried before it has its name: it says what the model says."""
    model = weights.model().float()
    about = described(weights.config, "vitrail", Usage(labels=weights.labels))
    make_folder(folder)
    files = []
    for name, part, inputs in _parts(model, weights.path):
        path = folder / f"{name}.onnx"
        try:
            graph = _exported(part, inputs)
            with written(graph, path, {**about, "part": name}) as aside:
                _try(aside, part, inputs)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  # of a part that PyTorch or ONNX Runtime has no way for
            why = " ".join(str(error).strip().splitlines()[:1])[:160]
            raise InputError(f"{weights.path!r} has a part that ONNX files have no place for: {why}.") from None
        files.append(path)
    return files


Inputs = Mapping[
    str, tuple[tuple[Any, ...], torch.dtype]
]  # shapes: numbers that are fixed, and names of those that vary


def _parts(model: Any, path: str) -> list[tuple[str, nn.Module, Inputs]]:
    """The files of a model, each with what it takes."""
    long, number, flag = torch.long, torch.float32, torch.bool
    if isinstance(model, GPT):
        return [("model", GptStep(model), {"tokens": (("b", "n"), long), "past": (_past(model.blocks, path), number)})]
    if isinstance(model, BERT):
        return [("model", Labels(model), {"tokens": (("b", "n"), long)})]
    if isinstance(model, Seq2Seq) and not model.config.parallel:
        blocks = list(model.decoder)
        layers, *_, wide = _past(blocks, path)
        step = {
            "tokens": (("b", "n"), long),
            "past": (_past(blocks, path), number),
            "context": ((layers, "b", "s", wide), number),
            "there": (("b", "s"), flag),
        }
        return [("encoder", Encoder(model), {"source": (("b", "s"), long)}), ("step", DecoderStep(model), step)]
    raise InputError(f"{path!r} has no step that goes on token by token; a gpt, bert or plain seq2seq has.")


def _past(blocks: Sequence[Block], path: str) -> tuple[Any, ...]:
    """The shape of what blocks remember: as many numbers of a token in every layer."""
    widths = {sum(_attention(block, "attention").widths) if block.attention is not None else 0 for block in blocks}
    if len(widths) != 1 or 0 in widths:
        raise InputError(f"{path!r} has not the same heads in every layer, which a step in one file has.")
    return len(blocks), "b", "j", widths.pop()


def _attention(block: Block, name: str) -> Attention:
    sublayer = getattr(block, name)
    if not isinstance(sublayer.f, Attention):
        raise InputError(f"a block's {name} is no plain attention, which a step has.")
    return sublayer.f


def _given(inputs: Inputs, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Inputs of some sizes."""
    tensors = {}
    for name, (shape, kind) in inputs.items():
        whole_shape = [sizes[one] if isinstance(one, str) else int(one) for one in shape]
        if kind == torch.long:
            tensors[name] = torch.randint(3, 5, whole_shape)
        else:
            tensors[name] = torch.randn(whole_shape) if kind == torch.float32 else torch.ones(whole_shape, dtype=kind)
    return tensors


def _exported(part: nn.Module, inputs: Inputs) -> Any:
    given = _given(inputs, {"b": 3, "n": 2, "j": 4, "s": 5})
    letters = {letter: torch.export.Dim(letter, min=0 if letter == "j" else 1, max=MOST) for letter in "bnjs"}
    shapes = tuple(
        {at: letters[one] for at, one in enumerate(shape) if isinstance(one, str)} for shape, _ in inputs.values()
    )
    outputs = {Encoder: ["context", "there"], Labels: ["logits"]}.get(type(part), ["logits", "present"])
    with quiet():
        return torch.onnx.export(
            part.eval(),
            tuple(given.values()),
            None,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(inputs),
            output_names=outputs,
            verbose=False,
        )


def _try(path: Path, part: nn.Module, inputs: Inputs) -> None:
    session = session_of(path)
    for rows, tokens in TRIED:
        for past in (0, 2):
            given = _given(inputs, {"b": rows, "n": tokens, "j": past, "s": tokens + 2})
            with torch.no_grad():
                expected = part(*given.values())
            expected = expected if isinstance(expected, tuple) else (expected,)
            answers = session.run(None, {name: one.numpy() for name, one in given.items()})
            for one, other in zip(answers, expected, strict=True):
                if one.shape != tuple(other.shape) or not np.allclose(one, other.numpy(), rtol=1e-3, atol=1e-3):
                    raise ValueError(f"answers differ for {rows} rows of {tokens} tokens after {past}")


class OnnxSteps:
    """A text gone on with token by token, by ONNX Runtime: what ``decode.greedy`` and its like ask.

    ``OnnxSteps(folder, tokens)`` of a gpt, after tokens (b n) the last of which is given to the first step;
    ``OnnxSteps(folder, source)`` of a seq2seq.
    """

    def __init__(self, folder: Path, given: Tensor) -> None:
        self.device = torch.device("cpu")
        self.context: dict[str, Any] = {}
        if (folder / "encoder.onnx").is_file():
            arrays = session_of(folder / "encoder.onnx").run(None, {"source": given.numpy()})
            self.context = dict(zip(("context", "there"), arrays, strict=True))
        self.session = session_of(folder / ("step.onnx" if self.context else "model.onnx"))
        shape = next(one.shape for one in self.session.get_inputs() if one.name == "past")
        self.past: Any = np.zeros((shape[0], len(given), 0, shape[-1]), dtype=np.float32)
        if not self.context and given.shape[1] > 1:
            self._run(given[:, :-1])

    def __call__(self, tokens: Tensor) -> Tensor:
        """The last token of each row (b) -> the logits of the next (b v)."""
        return torch.from_numpy(self._run(tokens[:, None]))

    def _run(self, tokens: Tensor) -> Any:
        given = {"tokens": tokens.numpy(), "past": self.past, **self.context}
        logits, self.past = self.session.run(["logits", "present"], given)
        return logits

    def select(self, rows: Tensor, *, sources: bool = True) -> None:
        """Go on with these rows."""
        self.past = self.past[:, rows.numpy()]
        if sources and self.context:
            self.context = {
                "context": self.context["context"][:, rows.numpy()],
                "there": self.context["there"][rows.numpy()],
            }
