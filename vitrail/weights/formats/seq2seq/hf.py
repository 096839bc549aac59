"""Hugging Face transformers: Marian, Pegasus and BART."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from vitrail.core.positions import SinCos
from vitrail.errors import InputError, unknown
from vitrail.families.seq2seq.config import Seq2SeqConfig
from vitrail.files import make_folder, whole, write_json
from vitrail.weights.files import Lazy, Tensors, json_table
from vitrail.weights.formats.base import Format, Request, formats
from vitrail.weights.formats.seq2seq.moves import Moves, Names, SideNames
from vitrail.weights.weights import Usage, Weights, checked_config

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "swish": "silu", "silu": "silu"}
OFFSET = 2  # rows of BART's positions that no token has
BIAS = "final_logits_bias"
TOKENS = {"pad": "pad", "begin": "decoder_start", "end": "eos"}
KINDS = ("marian", "pegasus", "bart", "mbart")
ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
}


def _side(stack: str) -> SideNames:
    def maps(attention: str) -> tuple[str, ...]:
        return tuple(f"{stack}.layers.{{}}.{attention}.{letter}_proj" for letter in "qkv")

    layer = f"{stack}.layers.{{}}"
    cross = stack == "decoder"
    return SideNames(
        attention=maps("self_attn"),
        out=f"{layer}.self_attn.out_proj",
        norm1=f"{layer}.self_attn_layer_norm",
        inner=f"{layer}.fc1",
        outer=f"{layer}.fc2",
        norm2=f"{layer}.final_layer_norm",
        cross=maps("encoder_attn") if cross else (),
        cross_out=f"{layer}.encoder_attn.out_proj",
        cross_norm=f"{layer}.encoder_attn_layer_norm",
        norm=f"{stack}.layer_norm",
        embed=f"{stack}.embed_tokens.weight",
        position=f"{stack}.embed_positions.weight",
        embed_norm=f"{stack}.layernorm_embedding",
    )


NAMES = Names(_side("encoder"), _side("decoder"), logits="lm_head.weight", logits_bias=BIAS)


@formats.add("hf-seq2seq")
class HFSeq2Seq(Format):
    """Hugging Face's MarianMTModel, PegasusForConditionalGeneration and BartForConditionalGeneration."""

    name = "hf"
    family = "seq2seq"

    def recognises(self, tensors: Tensors) -> bool:
        return any(name.endswith("decoder.layers.0.encoder_attn.q_proj.weight") for name in tensors)

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:  # noqa: ARG002
        path = str(location)
        folder = location if location.is_dir() else location.parent
        stated = json_table(folder / "config.json")
        known = _usual(tensors)
        fields = self._fields(known, stated, request)
        config = checked_config(path, self.family, {**fields, **request.stated}, tensors)
        if config.position == "learned":
            for side in ("encoder", "decoder"):
                _change(known, f"{side}.embed_positions.weight", lambda rows: rows[OFFSET:])
        else:
            for side in ("encoder", "decoder"):
                known.pop(f"{side}.embed_positions.weight", None)  # computed
        if config.output_bias:
            _change(known, BIAS, lambda row: row.flatten())
        else:
            known.pop(BIAS, None)
        if config.shared:
            known.pop("decoder.embed_tokens.weight", None)
        if config.tied:
            known.pop("lm_head.weight", None)
        state, over = Moves(NAMES, config).read(path, self.name, known, strict=request.strict)
        notes = [f"left out: {', '.join(over)}"] if over else []
        if not stated:
            notes.append("no config.json is beside it: heads, activation and special tokens are assumed")
        return Weights(path, self.name, self.family, config, state, notes=notes)

    def _fields(self, known: dict[str, Lazy], stated: dict[str, Any], request: Request) -> dict[str, Any]:
        def shape(name: str) -> tuple[int, ...]:
            if name not in known:
                raise InputError(f"{name!r} is missing, without which the model is not known.")
            return known[name].shape

        kind = stated.get("model_type", "bart")
        if kind not in KINDS:
            raise unknown("model_type", kind, KINDS)
        activation = stated.get("activation_function", "gelu")
        if activation not in ACTIVATIONS:
            raise unknown("activation_function", activation, ACTIVATIONS)
        source, width = shape("encoder.embed_tokens.weight")
        target = shape("decoder.embed_tokens.weight")[0]
        learned = "encoder.layernorm_embedding.weight" in known or stated.get("model_type") in ("bart", "mbart")
        heads = {stated.get(f"{side}_attention_heads", max(1, width // 64)) for side in ("encoder", "decoder")}
        hidden = {shape(f"{side}.layers.0.fc1.weight")[0] for side in ("encoder", "decoder")}
        if len(heads) > 1 or len(hidden) > 1:
            raise InputError("its encoder and decoder differ in heads or hidden width, which is not known here.")
        length = shape("encoder.embed_positions.weight")[0] - OFFSET if learned else None
        bias = known.get(BIAS)
        tokens = {ours: stated.get(f"{theirs}_token_id") for ours, theirs in TOKENS.items()}
        return {
            "source": source,
            "target": target,
            "width": width,
            "depth": _depth(known, "encoder"),
            "decoder": _depth(known, "decoder"),
            "heads": heads.pop() if "heads" not in request.stated else request.stated["heads"],
            "hidden": hidden.pop(),
            "length": length or stated.get("max_position_embeddings", 512),
            "shared": _same(known, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
            "tied": "lm_head.weight" not in known or _same(known, "lm_head.weight", "decoder.embed_tokens.weight"),
            "scaled": bool(stated.get("scale_embedding", False)),
            "output_bias": bias is not None and bool(bias.numbers().any()),
            "position": "learned" if learned else "sincos",
            "embed_norm": "encoder.layernorm_embedding.weight" in known,
            "norm_last": "encoder.layer_norm.weight" in known,
            "order": "pre" if "encoder.layer_norm.weight" in known else "post",
            "activation": ACTIVATIONS[activation],
            "dropout": float(stated.get("dropout", 0.0)),
            "pad": 1,
            "begin": 2,
            "end": 2,
            **{name: one for name, one in tokens.items() if one is not None},
        }

    def write(self, path: Path, config: Seq2SeqConfig, state: dict[str, Tensor], usage: Usage) -> None:  # noqa: ARG002
        kind = _kind(config)
        if path.suffix in (".safetensors", ".bin", ".pt", ".npz"):
            raise InputError(f"{str(path)!r} names a file, and format='hf' is a folder; leave {path.suffix!r} out.")
        tensors = Moves(NAMES, config).write(state)
        embedding = tensors.pop("encoder.embed_tokens.weight")
        tensors["shared.weight" if config.shared else "encoder.embed_tokens.weight"] = embedding
        if config.position == "learned":
            for side in ("encoder", "decoder"):
                rows = tensors[f"{side}.embed_positions.weight"]
                tensors[f"{side}.embed_positions.weight"] = torch.cat([torch.zeros_like(rows[:OFFSET]), rows])
        if kind == "pegasus":  # which reads what it could compute
            waves = SinCos((1, config.length), config.width, config.most_heads).along(config.length)
            tensors |= {f"{side}.embed_positions.weight": waves.clone() for side in ("encoder", "decoder")}
        bias = tensors.pop(BIAS, torch.zeros(config.target))
        outside = {name: tensors.pop(name) for name in ("lm_head.weight",) if name in tensors}
        whole_state = {**{f"model.{name}": tensor for name, tensor in tensors.items()}, **outside, BIAS: bias[None]}
        make_folder(path)
        with whole(path / "model.safetensors") as aside:
            save_file(
                {name: tensor.contiguous() for name, tensor in whole_state.items()}, aside, metadata={"format": "pt"}
            )
        write_json(path / "config.json", _config(config, kind))
        ids = {"decoder_start_token_id": config.begin, "eos_token_id": config.end, "pad_token_id": config.pad}
        write_json(path / "generation_config.json", {**ids, "max_length": config.length, "num_beams": 1})


def _config(config: Seq2SeqConfig, kind: str) -> dict[str, Any]:
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "swish"}
    sides = {
        f"{side}_{what}": value
        for side, depth in (("encoder", config.depth), ("decoder", config.decoder))
        for what, value in (("layers", depth), ("attention_heads", config.heads), ("ffn_dim", config.hidden))
    }
    about = {
        "model_type": kind,
        "architectures": [ARCHITECTURES[kind]],
        "vocab_size": config.source,
        "d_model": config.width,
        **sides,
        "activation_function": names[config.activation],
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": config.dropout,
        "max_position_embeddings": config.length,
        "scale_embedding": config.scaled,
        "tie_word_embeddings": config.tied,
        "is_encoder_decoder": True,
        "pad_token_id": config.pad,
        "decoder_start_token_id": config.begin,
        "bos_token_id": config.begin,
        "eos_token_id": config.end,
        "forced_eos_token_id": None,
        "use_cache": True,
        "dtype": "float32",
    }
    if kind == "marian":
        about |= {"decoder_vocab_size": config.target, "share_encoder_decoder_embeddings": config.shared}
    if kind == "pegasus":  # as its published ones say, and as CTranslate2's converter asks
        about |= {"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True}
    return about


def _kind(config: Seq2SeqConfig) -> str:
    """Which of HF's models ours is; what has no place in any is refused."""
    kind = "bart" if config.embed_norm else "pegasus" if config.order == "pre" else "marian"
    wanted: dict[str, tuple[Any, ...]] = {
        "parallel": (False,),
        "order": ("pre",) if kind == "pegasus" else ("post",),
        "norm_last": (kind == "pegasus",),
        "position": ("learned",) if kind == "bart" else ("sincos",),
        "kernel": ("softmax",),
        "norm": ("layer",),
        "eps": (1e-5,),
        "bias": (True,),
        "head": (None,),
        "rank": (None,),
        "layer_scale": (None,),
        "factors": ({},),
        "embedding": (None,),
        "activation": tuple(ACTIVATIONS.values()),
        "shared": (True, False) if kind == "marian" else (True,),
    }
    for name, values in wanted.items():
        if getattr(config, name) not in values:
            raise InputError(
                f"the model has {name}={getattr(config, name)!r}, which hf's {kind.capitalize()} has no place for; "
                f"choose format='vitrail'."
            )
    return kind


def _usual(tensors: Tensors) -> dict[str, Lazy]:
    """Without what comes before all names, and with an embedding for each side."""
    known = {name.removeprefix("model."): lazy for name, lazy in tensors.items()}
    shared = known.pop("shared.weight", None)
    for side in ("encoder", "decoder"):
        name = f"{side}.embed_tokens.weight"
        if name not in known and shared is not None:
            known[name] = shared
    return known


def _same(known: dict[str, Lazy], one: str, other: str) -> bool:
    if known[one] is known[other]:
        return True
    return known[one].shape == known[other].shape and torch.equal(known[one].numbers(), known[other].numbers())


def _change(known: dict[str, Lazy], name: str, change: Any) -> None:
    known[name] = Lazy.of(name, change(known[name].numbers()))


def _depth(known: dict[str, Lazy], side: str) -> int:
    numbers = {int(name.split(".")[2]) for name in known if name.startswith(f"{side}.layers.")}
    return 1 + max(numbers, default=-1)
