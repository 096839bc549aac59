# ruff: noqa: INP001
"""Another model of the family, LLaMA (Touvron et al. 2023), in under a hundred lines: its norm, its shape, its weights.

With it imported, `vt.build("llama", ...)` builds one, `vt.load` reads Hugging Face's, and it is trained, recorded,
edited and written with like the models that come with the package: all but what is here is theirs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitrail.core import norms
from vitrail.errors import InputError
from vitrail.families.gpt.config import GPTConfig
from vitrail.families.gpt.model import GPT
from vitrail.families.model import families
from vitrail.weights.files import Lazy, Tensors, json_table
from vitrail.weights.formats.base import Format, Request, formats
from vitrail.weights.formats.hf_folder import depth_of, shape_of, without
from vitrail.weights.moves import Move, moved
from vitrail.weights.weights import Usage, Weights, checked_config

THETA = 10_000  # of the angles
norms.add("rms")(nn.RMSNorm)  # x / sqrt(mean(x^2)) g: no mean is taken off


class LlamaConfig(GPTConfig):
    """The shape of a LLaMA: a GPT with other parts."""

    position: str = "rotary"
    activation: str = "swiglu"
    norm: str = "rms"
    tied: bool = False
    eps: float = 1e-6

    def cost(self) -> None:
        """No formula: it is counted."""


@families.add("llama")
class Llama(GPT):
    """What comes next, as a GPT says it."""

    Config = LlamaConfig
    config: LlamaConfig


@formats.add("hf-llama")
class HFLlama(Format):
    """Hugging Face's LlamaForCausalLM."""

    name, family = "hf", "llama"

    def recognises(self, tensors: Tensors) -> bool:
        return any(name.endswith("layers.0.mlp.gate_proj.weight") for name in tensors)

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:  # noqa: ARG002
        stated = json_table(location / "config.json")
        turns = {**stated, **(stated.get("rope_parameters") or {})}
        if not stated or turns.get("rope_theta", THETA) != THETA or turns.get("rope_type", "default") != "default":
            raise InputError(
                "it says nothing of itself in a config.json, or turns by other angles than are known here."
            )
        known = without(tensors, "model.", "rotary_emb.inv_freq")
        tokens, width = shape_of(known, "embed_tokens.weight")
        if shape_of(known, "layers.0.self_attn.k_proj.weight") != (width, width):
            raise InputError("its heads share keys, which is not known here.")
        fields: dict[str, Any] = {"tokens": tokens, "width": width, "depth": depth_of(known, "layers.")}
        fields["tied"] = "lm_head.weight" not in known
        fields |= {"heads": stated["num_attention_heads"], "eps": stated["rms_norm_eps"]}
        fields |= {"hidden": stated["intermediate_size"], "length": stated["max_position_embeddings"]}
        config = checked_config(str(location), self.family, fields, tensors)
        state, _ = moved(str(location), self.name, _moves(config), known | _zeros(config), strict=request.strict)
        return Weights(str(location), self.name, self.family, config, state)

    def write(self, path: Path, config: Any, state: dict[str, Tensor], usage: Usage) -> None:  # noqa: ARG002
        raise InputError("a llama is written as format='vitrail'.")


def _moves(config: LlamaConfig) -> Iterator[Move]:
    yield Move.one("embed.table.weight", "embed_tokens.weight")
    for number in range(config.depth):
        ours, theirs = f"encoder.{number}", f"layers.{number}"
        attention, feed = f"{ours}.attention.f", f"{ours}.feed_forward.f"
        for kind in ("weight", "bias"):
            names = [(f"{theirs}.self_attn.{letter}_proj.{kind}", 1) for letter in "qkv"]
            yield Move(((f"{attention}.query.{kind}", 1), (f"{attention}.key_value.{kind}", 2)), tuple(names))
            yield Move.one(f"{attention}.out.{kind}", f"{theirs}.self_attn.o_proj.{kind}")
            both = (f"{theirs}.mlp.gate_proj.{kind}", 1), (f"{theirs}.mlp.up_proj.{kind}", 1)
            yield Move(((f"{feed}.inner.{kind}", 2),), both)
            yield Move.one(f"{feed}.out.{kind}", f"{theirs}.mlp.down_proj.{kind}")
        yield Move.one(f"{ours}.attention.norm.weight", f"{theirs}.input_layernorm.weight")
        yield Move.one(f"{ours}.feed_forward.norm.weight", f"{theirs}.post_attention_layernorm.weight")
    yield Move.one("norm.weight", "norm.weight")
    if not config.tied:
        yield Move.one("logits.weight", "lm_head.weight")


def _zeros(config: LlamaConfig) -> dict[str, Lazy]:
    """Its maps have no biases: ours are 0."""
    sizes = dict.fromkeys(("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.down"), config.width)
    sizes |= {"mlp.gate": config.hidden, "mlp.up": config.hidden}  # type: ignore[dict-item]
    names = {f"layers.{n}.{part}_proj.bias": size for n in range(config.depth) for part, size in sizes.items()}
    return {name: Lazy.of(name, Tensor(size).zero_()) for name, size in names.items()}
