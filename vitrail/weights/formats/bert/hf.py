"""Hugging Face transformers: BERT."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.bert.config import BERTConfig
from vitrail.weights.files import Lazy, Tensors, json_table
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

LAYER = "encoder.layer."
OLD = {"gamma": "weight", "beta": "bias"}  # of norms, in the first files
DECODER = "cls.predictions.decoder."
ARCHITECTURES = {
    "words": "BertForMaskedLM",
    "tags": "BertForTokenClassification",
    "label": "BertForSequenceClassification",
    "nothing": "BertModel",
}


@formats.add("hf-bert")
class HFBERT(Format):
    """Hugging Face's BertModel, BertForPreTraining, ...MaskedLM, ...TokenClassification, ...SequenceClassification."""

    name = "hf"
    family = "bert"

    def recognises(self, tensors: Tensors) -> bool:
        first = f"{LAYER}0.attention.self.query.weight"
        words = "embeddings.word_embeddings.weight"
        return all(any(name.endswith(one) for name in tensors) for one in (first, words))

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:  # noqa: ARG002
        path = str(location)
        stated = json_table((location if location.is_dir() else location.parent) / "config.json")
        kind = stated.get("model_type", "bert")
        if kind != "bert":
            raise InputError(f"{path!r} is of a {kind}, which is built otherwise than BERT and is not known here.")
        known = _usual(tensors)
        fields = _fields(known, stated)
        config = checked_config(path, self.family, {**fields, **request.stated}, tensors)
        if config.tied:
            known.pop(f"{DECODER}weight", None)
        known.pop(f"{DECODER}bias", None)  # which cls.predictions.bias is
        state, over = moved(path, self.name, _moves(config), known, strict=request.strict)
        notes = [f"left out: {', '.join(over)}"] if over else []
        if not stated:
            notes.append("no config.json is beside it: heads and activation are assumed")
        return Weights(path, self.name, self.family, config, state, labels=_labels(stated, config), notes=notes)

    def write(self, path: Path, config: BERTConfig, state: dict[str, Tensor], usage: Usage) -> None:
        refuse(config, "BERT", {"order": ("post",), "norm_last": (False,), "embed_norm": (True,), "pad": (0,)})
        if config.pooler and config.says in ("words", "tags") and not config.pairs:
            raise InputError("hf's BERT has no pooler beside words or tags; choose format='vitrail'.")
        pretraining = config.pairs and config.says == "words"
        if config.pairs and not pretraining:
            raise InputError("hf's BERT tells pairs beside words alone; choose format='vitrail'.")
        names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
        about: dict[str, Any] = {
            "model_type": "bert",
            "architectures": ["BertForPreTraining" if pretraining else ARCHITECTURES[config.says]],
            "vocab_size": config.tokens,
            "hidden_size": config.width,
            "num_hidden_layers": config.depth,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden,
            "hidden_act": names[config.activation],
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": config.length,
            "type_vocab_size": 2,
            "layer_norm_eps": config.eps,
            "pad_token_id": config.pad,
            "tie_word_embeddings": config.tied,
            "position_embedding_type": "absolute",
            "dtype": "float32",
        }
        if config.classes:
            labels = usage.labels or tuple(f"LABEL_{number}" for number in range(config.classes))
            about |= {"id2label": {str(number): label for number, label in enumerate(labels)}}
            about |= {"label2id": {label: number for number, label in enumerate(labels)}}
        write_folder(path, _moves(config), state, "" if config.says == "nothing" else "bert.", about)


def _usual(tensors: Tensors) -> dict[str, Lazy]:
    known = without(tensors, "bert.", "embeddings.position_ids", "embeddings.token_type_ids")
    return {
        f"{name.rpartition('.')[0]}.{OLD[name.rpartition('.')[2]]}" if name.rpartition(".")[2] in OLD else name: lazy
        for name, lazy in known.items()
    }


def _fields(known: dict[str, Lazy], stated: dict[str, Any]) -> dict[str, Any]:
    count, width = shape_of(known, "embeddings.word_embeddings.weight")
    if shape_of(known, "embeddings.token_type_embeddings.weight")[0] != 2:  # noqa: PLR2004
        raise InputError("its texts are not told apart by two segments, as in BERT.")
    says, classes = "words" if "cls.predictions.bias" in known else "nothing", 0
    if "classifier.weight" in known:
        named = str(stated.get("architectures"))
        sequence = "TokenClassification" not in named and "pooler.dense.weight" in known
        says, classes = "label" if sequence else "tags", shape_of(known, "classifier.weight")[0]
    return {
        "tokens": count,
        "length": shape_of(known, "embeddings.position_embeddings.weight")[0],
        "width": width,
        "depth": depth_of(known, LAYER),
        "heads": stated.get("num_attention_heads", max(1, width // 64)),
        "hidden": shape_of(known, f"{LAYER}0.intermediate.dense.weight")[0],
        "activation": activation_of(stated, "hidden_act", "gelu"),
        "eps": float(stated.get("layer_norm_eps", 1e-12)),
        "dropout": float(stated.get("hidden_dropout_prob", 0.0)),
        "pad": stated.get("pad_token_id", 0),
        "tied": bool(stated.get("tie_word_embeddings", True)) or f"{DECODER}weight" not in known,
        "says": says,
        "classes": classes,
        "pooler": "pooler.dense.weight" in known,
        "pairs": "cls.seq_relationship.weight" in known,
    }


def _labels(stated: dict[str, Any], config: BERTConfig) -> tuple[str, ...] | None:
    named = stated.get("id2label")
    if not config.classes or not isinstance(named, dict) or len(named) != config.classes:
        return None
    return tuple(str(named.get(str(number), number)) for number in range(config.classes))


def _moves(config: BERTConfig) -> Iterator[Move]:
    yield Move.one("embed.table.weight", "embeddings.word_embeddings.weight")
    yield Move.one("embed.position.embedding", "embeddings.position_embeddings.weight")
    yield Move.one("embed.segments.weight", "embeddings.token_type_embeddings.weight")
    yield from both("embed.norm", "embeddings.LayerNorm")
    for number in range(config.depth):
        ours, theirs = f"encoder.{number}", f"{LAYER}{number}"
        for kind in ("weight", "bias"):
            yield Move(
                ((f"{ours}.attention.f.query.{kind}", 1), (f"{ours}.attention.f.key_value.{kind}", 2)),
                tuple((f"{theirs}.attention.self.{name}.{kind}", 1) for name in ("query", "key", "value")),
            )
        yield from both(f"{ours}.attention.f.out", f"{theirs}.attention.output.dense")
        yield from both(f"{ours}.attention.norm", f"{theirs}.attention.output.LayerNorm")
        yield from both(f"{ours}.feed_forward.f.inner", f"{theirs}.intermediate.dense")
        yield from both(f"{ours}.feed_forward.f.out", f"{theirs}.output.dense")
        yield from both(f"{ours}.feed_forward.norm", f"{theirs}.output.LayerNorm")
    if config.pooler:
        yield from both("pooler", "pooler.dense")
    if config.pairs:
        yield from both("pairs", "cls.seq_relationship")
    if config.says == "words":
        yield from both("words.map", "cls.predictions.transform.dense")
        yield from both("words.norm", "cls.predictions.transform.LayerNorm")
        yield Move.one("words.logits.bias", "cls.predictions.bias")
        if not config.tied:
            yield Move.one("words.logits.weight", f"{DECODER}weight")
    if config.classes:
        yield from both("classes", "classifier")
