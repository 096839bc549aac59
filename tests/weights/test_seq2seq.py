"""Encoder-decoders of others: HF's Marian, Pegasus and BART there and back, and PyTorch's own under any names."""

import json
import math
import warnings

import pytest
import torch
from copying import randomise
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
)

import vitrail as vt
from vitrail.core import positions
from vitrail.errors import InputError

SHAPE = {
    "vocab_size": 53,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
}
MARIAN = {"pad_token_id": 52, "eos_token_id": 0, "decoder_start_token_id": 52, "decoder_vocab_size": 53}
KINDS = {
    "marian": (MarianMTModel, MarianConfig(**SHAPE, **MARIAN, scale_embedding=True, activation_function="swish")),
    "apart": (
        MarianMTModel,
        MarianConfig(**SHAPE, **{**MARIAN, "decoder_vocab_size": 57}, share_encoder_decoder_embeddings=False),
    ),
    "untied": (MarianMTModel, MarianConfig(**SHAPE, **MARIAN, tie_word_embeddings=False)),
    "pegasus": (PegasusForConditionalGeneration, PegasusConfig(**SHAPE, scale_embedding=True)),
    "bart": (BartForConditionalGeneration, BartConfig(**SHAPE)),
    "mbart": (MBartForConditionalGeneration, MBartConfig(**SHAPE)),
}


def theirs(kind):
    torch.manual_seed(0)
    model, config = KINDS[kind]
    model = randomise(model(config))
    with torch.no_grad():
        model.final_logits_bias.normal_()
        if not kind.endswith("bart"):  # whose positions are no parameters, though they look so
            for side in (model.model.encoder, model.model.decoder):
                side.embed_positions.weight.data = side.embed_positions.create_weight()
    return model.eval()


def pair(pad):
    draw = torch.Generator().manual_seed(1)
    source, target = (torch.randint(3, 50, (3, n), generator=draw) for n in (7, 6))
    source[0, 5:] = pad
    return source, target


def asked(model, source, target):
    present = (source != model.config.pad_token_id).long()
    return model(input_ids=source, attention_mask=present, decoder_input_ids=target).logits


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(tmp_path, kind):
    model = theirs(kind)
    model.save_pretrained(tmp_path / "theirs")
    ours = vt.load(tmp_path / "theirs")
    source, target = pair(model.config.pad_token_id)
    expected = asked(model, source, target)
    torch.testing.assert_close(ours((source, target)), expected, rtol=1e-4, atol=1e-4)
    if kind == "mbart":  # which is read alone
        return
    vt.save(ours, tmp_path / "back", "hf")
    again = type(model).from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(asked(again, source, target), expected, rtol=1e-5, atol=1e-5)
    vt.save(ours, tmp_path / "own")
    assert torch.equal(vt.load(tmp_path / "own")((source, target)), ours((source, target)))


def test_what_has_no_place_there_is_refused(tmp_path):
    shape = {"source": 31, "target": 31, "width": 16, "depth": 1, "heads": 2, "eps": 1e-5}
    fits = {"order": "post", "norm_last": False, "position": "sincos"}
    for fields, says in (
        ({"order": "pre"}, "position='sinusoidal', which hf's Pegasus"),
        ({"order": "pre", "embed_norm": True, "position": "learned"}, "order='pre', which hf's Bart"),
        ({**fits, "norm_last": True}, "norm_last=True"),
        ({**fits, "position": "sinusoidal"}, "position='sinusoidal'"),
        ({**fits, "parallel": True}, "parallel=True"),
        ({**fits, "position": "learned"}, "position='learned', which hf's Marian"),
        ({**fits, "kernel": "relu"}, "kernel='relu'"),
    ):
        with pytest.raises(InputError, match=says):
            vt.save(vt.build("seq2seq", **shape, **fields), tmp_path / "no", "hf")
    vt.save(vt.build("seq2seq", **shape, **fits), tmp_path / "yes", "hf")
    with pytest.raises(InputError, match=r"leave '\.pt' out"):
        vt.save(vt.build("seq2seq", **shape, **fits), tmp_path / "file.pt", "hf")


def test_a_config_that_says_otherwise_is_named(tmp_path):
    theirs("bart").save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**about, "activation_function": "mish"}))
    with pytest.raises(InputError, match="activation_function 'mish' is not known"):
        vt.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**about, "decoder_attention_heads": 4}))
    with pytest.raises(InputError, match="differ in heads"):
        vt.load(tmp_path)


class Taught(nn.Module):
    """As PyTorch's tutorial has it: embeddings times sqrt(w), waves, nn.Transformer, a map."""

    def __init__(self, *, learned=False, first=False, names=("src_tok_emb", "tgt_tok_emb", "generator"), tied=False):
        super().__init__()
        w = self.width = 32
        self.names, self.learned = names, learned
        self.add_module(names[0], nn.Embedding(41, w))
        self.add_module(names[1], nn.Embedding(43, w))
        self.add_module(names[2], nn.Linear(w, 43, bias=not tied))
        if tied:
            self.get_submodule(names[2]).weight = self.get_submodule(names[1]).weight
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.transformer = nn.Transformer(w, 8, 2, 3, 48, dropout=0.0, batch_first=True, norm_first=first)
        if learned:
            self.positions = nn.Parameter(torch.randn(60, w))
        else:
            self.register_buffer("pos_embedding", positions["sinusoidal"]((1, 60), w, 1).along(60)[:, None])

    def forward(self, source, target):
        where = self.positions if self.learned else self.pos_embedding[:, 0]
        source_embedding, target_embedding, out = (self.get_submodule(name) for name in self.names)
        x = source_embedding(source) * math.sqrt(self.width) + where[: source.shape[1]]
        y = target_embedding(target) * math.sqrt(self.width) + where[: target.shape[1]]
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        pad = source == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its prototypes
            return out(self.transformer(x, y, tgt_mask=causal, src_key_padding_mask=pad, memory_key_padding_mask=pad))


def read(model, path, **how):
    torch.save(model.state_dict(), path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ours = vt.load(path, **how)
    return ours, "\n".join(str(one.message) for one in said)


@torch.no_grad()
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_pytorch_s_own(tmp_path, learned, first, tied):
    torch.manual_seed(0)
    model = randomise(Taught(learned=learned, first=first, tied=tied))
    ours, said = read(model, tmp_path / "m.pt", order="pre" if first else "post")
    source, target = pair(0)
    source, target = source.clamp(max=40), target.clamp(max=42)
    torch.testing.assert_close(ours((source, target)), model(source, target), rtol=1e-5, atol=1e-5)
    assert "source: src_tok_emb.weight" in said
    assert "assumed, as no tensor says it: heads=8, activation=relu, scaled=True" in said
    assert ours.config.position == ("learned" if learned else "sinusoidal")
    assert ours.config.tied == tied


@torch.no_grad()
def test_names_that_say_nothing_are_given(tmp_path):
    torch.manual_seed(0)
    model = randomise(Taught(names=("a", "b", "c")))
    with pytest.raises(InputError, match=r"which tensor is the embedding of the sources is not clear.*names="):
        read(model, tmp_path / "m.pt")
    names = {"source": "a.weight", "target": "b.weight", "logits": "c.weight"}
    ours, _ = read(model, tmp_path / "m.pt", names=names)
    source, target = pair(0)
    source, target = source.clamp(max=40), target.clamp(max=42)
    torch.testing.assert_close(ours((source, target)), model(source, target), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match=r"'d\.weight', which should be source, is not in the file"):
        read(model, tmp_path / "m.pt", names={**names, "source": "d.weight"})
    with pytest.raises(InputError, match="part 'src' is not known"):
        read(model, tmp_path / "m.pt", names={"src": "a.weight"})


@torch.no_grad()
@pytest.mark.parametrize(
    "stacks", [("transformer_encoder", "transformer_decoder"), ("src_encoder", "tgt_decoder"), ("m.enc", "m.dec")]
)
def test_stacks_of_their_own_under_any_names(tmp_path, stacks):
    torch.manual_seed(0)
    model = randomise(Taught())
    renamed = {}
    for name, tensor in model.state_dict().items():
        for usual, other in zip(("transformer.encoder", "transformer.decoder"), stacks, strict=True):
            name = name.replace(f"{usual}.", f"{other}.")  # noqa: PLW2901
        renamed[name] = tensor
    torch.save(renamed, tmp_path / "m.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = vt.load(tmp_path / "m.pt")
    source, target = pair(0)
    source, target = source.clamp(max=40), target.clamp(max=42)
    torch.testing.assert_close(ours((source, target)), model(source, target), rtol=1e-5, atol=1e-5)


def test_an_output_without_a_bias_is_asked_for(tmp_path):
    model = Taught(names=("src_emb", "tgt_emb", "final"))
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "final.bias"}
    torch.save(state, tmp_path / "m.pt")
    with pytest.raises(InputError, match=r"which tensor is the output is not clear \('final\.weight'\); name it with"):
        vt.load(tmp_path / "m.pt")


def test_kinds_that_are_not_known_are_refused(tmp_path):
    """Of many of HF's the tensors have the names of Marian's, and mean something else."""
    theirs("marian").save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**about, "model_type": "m2m_100"}))
    with pytest.raises(InputError, match="model_type 'm2m_100' is not known"):
        vt.load(tmp_path)


def test_what_is_of_translation_is_not_of_pictures(tmp_path):
    vt.save(vt.build("vit-pico/2"), tmp_path / "m.pt", "timm")
    (tmp_path / "m.pt.json").unlink()
    with pytest.raises(InputError, match="pad is not of a vit"):
        vt.load(tmp_path / "m.pt", pad=3)
