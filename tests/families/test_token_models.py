"""GPT and BERT beside HF transformers', and their laws."""

import warnings

import pytest
import torch
from copying import randomise
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

import vitrail as vt
from vitrail.core.positions import Turn
from vitrail.errors import InputError
from vitrail.families import cost

SHAPE = {"tokens": 61, "width": 24, "depth": 3, "heads": 3, "hidden": 40, "length": 16}
CLOSE = {"rtol": 0, "atol": 1e-4}


def drawn(*shape, most=61):
    return torch.randint(1, most, shape, generator=torch.Generator().manual_seed(0))


def small_gpt2(**fields):
    config = GPT2Config(
        vocab_size=61, n_positions=16, n_embd=24, n_layer=3, n_head=3, n_inner=40, attn_implementation="eager", **fields
    )
    return randomise(GPT2LMHeadModel(config))


def small_bert(kind, **fields):
    shape = {
        "vocab_size": 61,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 16,
    }
    return randomise(kind(BertConfig(**shape, attn_implementation="eager", **fields)))


def there_and_back(theirs, folder, kind):
    """Their model saved and loaded as ours; ours saved and loaded as theirs."""
    theirs.save_pretrained(folder / "theirs")
    ours = vt.load(folder / "theirs")
    vt.save(ours, folder / "ours", "hf")
    again, report = kind.from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return ours, again.eval()


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2(tmp_path, tied):
    theirs, tokens = small_gpt2(tie_word_embeddings=tied), drawn(2, 11)
    ours, again = there_and_back(theirs, tmp_path, GPT2LMHeadModel)
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, **CLOSE)
        torch.testing.assert_close(again(tokens).logits, theirs(tokens).logits, **CLOSE)
    assert ours.config.tied == tied


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (BertForMaskedLM, {}),
        (BertForTokenClassification, {"num_labels": 5}),
        (BertForSequenceClassification, {"num_labels": 4}),
    ],
)
def test_bert(tmp_path, kind, fields):
    theirs, tokens = small_bert(kind, **fields), drawn(3, 9)
    tokens[1, 6:] = tokens[2, 2:] = 0
    segments = torch.zeros_like(tokens)
    segments[:, 4:] = 1
    ours, again = there_and_back(theirs, tmp_path, kind)
    present, there = (tokens != 0).long(), tokens != 0
    with torch.no_grad():
        for model in (theirs, again):
            expected = model(tokens, attention_mask=present, token_type_ids=segments).logits
            said = ours((tokens, segments))
            both = (said, expected) if said.ndim == 2 else (said[there], expected[there])
            torch.testing.assert_close(*both, **CLOSE)


def test_bert_of_pairs(tmp_path):
    theirs, tokens = small_bert(BertForPreTraining), drawn(3, 9)
    ours, again = there_and_back(theirs, tmp_path, BertForPreTraining)
    rows = drawn(3, 9, most=4) == 1
    with torch.no_grad():
        said = ours(tokens, rows=rows)
        for model in (theirs, again):
            expected = model(tokens)
            torch.testing.assert_close(said.words, expected.prediction_logits[rows], **CLOSE)
            torch.testing.assert_close(said.follows, expected.seq_relationship_logits, **CLOSE)


def test_bert_without_a_head(tmp_path):
    theirs, tokens = small_bert(BertModel), drawn(2, 8)
    ours, again = there_and_back(theirs, tmp_path, BertModel)
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).last_hidden_state, **CLOSE)
        torch.testing.assert_close(ours.pooled(ours(tokens)), again(tokens).pooler_output, **CLOSE)


def test_a_head_for_weights_that_have_none(tmp_path):
    small_bert(BertModel).save_pretrained(tmp_path)
    plain = vt.load(tmp_path)
    with pytest.warns(UserWarning, match="drawn afresh: classes"):
        tagger = vt.load(tmp_path, says="tags", classes=7)
    tokens = drawn(2, 8)
    with torch.no_grad():
        torch.testing.assert_close(plain.stream(tokens), tagger.stream(tokens), rtol=0, atol=0)
        assert tagger(tokens).shape == (2, 8, 7)


def test_turning_is_that_of_llama():
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    frequencies = 10000.0 ** (-torch.arange(4) / 4)
    angles = (torch.arange(7)[:, None] * frequencies).repeat(1, 2)[None]
    expected = apply_rotary_pos_emb(q, k, angles.cos(), angles.sin())
    for ours, theirs in zip(Turn()(q, k), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("position", ["learned", "rotary", "sinusoidal"])
def test_no_token_sees_those_after_it(position):
    model = randomise(vt.build("gpt", position=position, **SHAPE))
    tokens, other = drawn(2, 12), drawn(2, 12)
    other[:, 7:] = other[:, 7:].roll(1)
    other[:, :7] = tokens[:, :7]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :7], model(other)[:, :7])


def test_rotary_scores_depend_on_distance_alone():
    model = randomise(vt.build("gpt", position="rotary", **{**SHAPE, "depth": 1})).double()
    tokens = drawn(1, 5)
    with torch.no_grad(), vt.record(model) as trace:
        model(tokens.repeat(1, 3))
    scores = trace.q(0) @ trace.k(0).mT
    torch.testing.assert_close(scores[..., 5:10, 0:5], scores[..., 10:15, 5:10], rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize("looked_at", [True, False])
def test_steps_are_the_whole(position, looked_at):
    model = randomise(vt.build("gpt", position=position, **SHAPE))
    tokens = drawn(3, 12)
    with torch.no_grad():
        whole = model(tokens)
        if looked_at:  # which takes the way through the blocks
            model.encoder[0].register_forward_hook(lambda *_: None)
        for begun in (1, 5):
            steps = model.steps(tokens[:, :begun])
            rows = torch.tensor([2, 0])
            for place in range(begun - 1, 12):
                if place == 7:
                    steps.select(rows)
                now = tokens[:, place] if place < 7 else tokens[rows, place]
                expected = whole[:, place] if place < 7 else whole[rows, place]
                torch.testing.assert_close(steps(now), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("gpt", {}),
        ("gpt", {"tied": False, "position": "rotary"}),
        ("bert", {}),
        ("bert", {"pairs": True}),
        ("bert", {"says": "tags", "classes": 5}),
        ("bert", {"says": "label", "classes": 5}),
    ],
)
def test_costs_are_what_pytorch_counts(family, fields):
    model = vt.build(family, **SHAPE, **fields)
    assert model.config.cost() == cost(model.config)


def test_padding_changes_nothing():
    model = randomise(vt.build("bert", **SHAPE))
    tokens = drawn(1, 6)
    padded = torch.cat([tokens, torch.zeros(1, 4, dtype=torch.long)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(padded)[:, :6], model(tokens))


@pytest.mark.parametrize(
    ("family", "fields", "words"),
    [
        ("gpt", {"position": "sincos2d"}, "patches of pictures"),
        ("gpt", {"pad": 61}, "vocabulary of 61"),
        ("gpt", {"position": "rotary", "head": 7}, "choose an even number"),
        ("bert", {"says": "tags"}, "tags and labels have some"),
        ("bert", {"says": "label", "classes": 3, "pooler": False}, "pooler"),
    ],
)
def test_what_cannot_be(family, fields, words):
    with pytest.raises(InputError, match=words):
        vt.build(family, **SHAPE, **fields)


def test_more_tokens_than_a_model_takes():
    with pytest.raises(InputError, match="17 tokens are more than the 16"):
        vt.build("gpt", **SHAPE)(drawn(1, 17))


def test_a_tagger_with_a_pooler_is_a_tagger(tmp_path):
    """As some of the older files are."""
    import json

    from safetensors.torch import load_file, save_file

    theirs, tokens = small_bert(BertForTokenClassification, num_labels=5), drawn(2, 6)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {"bert.pooler.dense.weight": torch.randn(24, 24), "bert.pooler.dense.bias": torch.randn(24)}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["BertForTokenClassification"]
    with torch.no_grad():
        torch.testing.assert_close(vt.load(tmp_path)(tokens), theirs(tokens).logits, **CLOSE)


def test_a_pooler_is_kept_for_labels(tmp_path):
    small_bert(BertForPreTraining).save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(left out: pairs, words|drawn afresh: classes)$")  # which is said
        labeller = vt.load(tmp_path, says="label", classes=3, pairs=False, head="new")
    plain = vt.load(tmp_path)
    assert torch.equal(labeller.pooler.weight, plain.pooler.weight)
