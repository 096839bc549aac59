"""Hugging Face transformers: GPT-2."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.families.gpt.config import GPTConfig
from vitrail.weights.files import Tensors, json_table
from vitrail.weights.formats.base import Format, Request, formats
from vitrail.weights.formats.hf_folder import (
    ACTIVATIONS,
    activation_of,
    depth_of,
    refuse,
    shape_of,
    without,
    write_folder,
)
from vitrail.weights.moves import Move, both, moved
from vitrail.weights.weights import Usage, Weights, checked_config

TURNED = "o i -> i o"  # its maps are x W, where ours are x W^T


@formats.add("hf-gpt")
class HFGPT(Format):
    """Hugging Face's GPT2LMHeadModel and GPT2Model."""

    name = "hf"
    family = "gpt"

    def recognises(self, tensors: Tensors) -> bool:
        return any(name.endswith("h.0.attn.c_attn.weight") for name in tensors)

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:  # noqa: ARG002
        path = str(location)
        stated = json_table((location if location.is_dir() else location.parent) / "config.json")
        known = without(tensors, "transformer.", ".attn.bias", ".attn.masked_bias")
        count, width = shape_of(known, "wte.weight")
        tied = bool(stated.get("tie_word_embeddings", True)) or "lm_head.weight" not in known
        fields = {
            "tokens": count,
            "length": shape_of(known, "wpe.weight")[0],
            "width": width,
            "depth": depth_of(known, "h."),
            "heads": stated.get("n_head", max(1, width // 64)),
            "hidden": shape_of(known, "h.0.mlp.c_fc.weight")[1],
            "activation": activation_of(stated, "activation_function", "gelu_new"),
            "eps": float(stated.get("layer_norm_epsilon", 1e-5)),
            "dropout": float(stated.get("resid_pdrop", 0.0)),
            "tied": tied,
        }
        config = checked_config(path, self.family, {**fields, **request.stated}, tensors)
        if tied:
            known.pop("lm_head.weight", None)
        state, over = moved(path, self.name, _moves(config), known, strict=request.strict)
        notes = [f"left out: {', '.join(over)}"] if over else []
        if not stated:
            notes.append("no config.json is beside it: heads and activation are assumed")
        return Weights(path, self.name, self.family, config, state, notes=notes)

    def write(self, path: Path, config: GPTConfig, state: dict[str, Tensor], usage: Usage) -> None:  # noqa: ARG002
        refuse(config, "GPT-2", {"order": ("pre",), "norm_last": (True,), "embed_norm": (False,)})
        names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
        about = {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": config.tokens,
            "n_positions": config.length,
            "n_ctx": config.length,
            "n_embd": config.width,
            "n_layer": config.depth,
            "n_head": config.heads,
            "n_inner": config.hidden,
            "activation_function": names[config.activation],
            "layer_norm_epsilon": config.eps,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": 0.0,
            "tie_word_embeddings": config.tied,
            "bos_token_id": None,
            "eos_token_id": None,
            "use_cache": True,
            "dtype": "float32",
        }
        write_folder(path, _moves(config), state, "transformer.", about)


def _moves(config: GPTConfig) -> Iterator[Move]:
    yield Move.one("embed.table.weight", "wte.weight")
    yield Move.one("embed.position.embedding", "wpe.weight")
    for number in range(config.depth):
        ours, theirs = f"encoder.{number}", f"h.{number}"
        for kind, pattern in (("weight", TURNED), ("bias", "")):
            yield Move(
                ((f"{ours}.attention.f.query.{kind}", 1), (f"{ours}.attention.f.key_value.{kind}", 2)),
                ((f"{theirs}.attn.c_attn.{kind}", 3),),
                pattern,
            )
        yield from both(f"{ours}.attention.f.out", f"{theirs}.attn.c_proj", TURNED)
        yield from both(f"{ours}.attention.norm", f"{theirs}.ln_1")
        yield from both(f"{ours}.feed_forward.f.inner", f"{theirs}.mlp.c_fc", TURNED)
        yield from both(f"{ours}.feed_forward.f.out", f"{theirs}.mlp.c_proj", TURNED)
        yield from both(f"{ours}.feed_forward.norm", f"{theirs}.ln_2")
    yield from both("norm", "ln_f")
    if not config.tied:
        yield Move.one("logits.weight", "lm_head.weight")
