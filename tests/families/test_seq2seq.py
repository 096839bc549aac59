"""The encoder-decoder Transformer beside PyTorch's own, and its laws."""

import warnings

import pytest
import torch
from copying import copy_feed_forward, copy_multihead, copy_norm, randomise
from torch import nn

import vitrail as vt
from vitrail.core.flat import flat
from vitrail.errors import InputError
from vitrail.families import cost, count_parameters

SHAPE = {"source": 41, "target": 43, "width": 24, "depth": 2, "decoder": 3, "heads": 3, "hidden": 34}
PAD = 0


def build(**fields):
    torch.manual_seed(0)
    return randomise(vt.build("seq2seq", **{**SHAPE, **fields})).double()


def drawn(*shape, most=41, seed=0):
    return torch.randint(5, most, shape, generator=torch.Generator().manual_seed(seed))


def padded():
    source = drawn(5, 7)
    source[1, 4:] = source[3, 2:] = PAD
    return source


def theirs(order):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it will not be as fast as it could be
        model = nn.Transformer(
            24, 3, 2, 3, 34, dropout=0.0, batch_first=True, norm_first=order == "pre", activation="relu"
        )
    return randomise(model).double()


def copied(ours, model):
    """Our blocks with the weights of PyTorch's."""
    for block, layer in zip(ours.encoder, model.encoder.layers, strict=True):
        copy_multihead(block.attention.f, layer.self_attn)
        copy_feed_forward(block.feed_forward.f, layer.linear1, layer.linear2)
        copy_norm(block.attention.norm, layer.norm1)
        copy_norm(block.feed_forward.norm, layer.norm2)
    for block, layer in zip(ours.decoder, model.decoder.layers, strict=True):
        copy_multihead(block.attention.f, layer.self_attn)
        copy_multihead(block.cross.f, layer.multihead_attn)
        copy_feed_forward(block.feed_forward.f, layer.linear1, layer.linear2)
        for sublayer, norm in zip(block.sublayers(), (layer.norm1, layer.norm2, layer.norm3), strict=True):
            copy_norm(sublayer.norm, norm)
    copy_norm(ours.encoder_norm, model.encoder.norm)
    copy_norm(ours.norm, model.decoder.norm)
    return ours


@torch.no_grad()
@pytest.mark.parametrize("order", ["pre", "post"])
def test_it_is_pytorch_s_transformer(order):
    model = theirs(order)
    ours = copied(build(order=order, norm_last=True), model)
    source, target = padded(), drawn(5, 6, most=43, seed=1)
    hidden = source == PAD
    expected = model(
        ours.source(source),
        ours.target(target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
        tgt_is_causal=True,
    )
    torch.testing.assert_close(ours((source, target)), expected @ ours.target.table.weight.T, rtol=1e-9, atol=1e-9)


SHAPES = [{}, {"order": "post"}, {"position": "learned", "length": 9}, {"shared": True, "target": 41}, {"tied": False}]
SHAPES += [{"head": 6, "rank": 4, "bias": False, "layer_scale": 0.5, "activation": "swiglu"}, {"kernel": "relu"}]


@torch.no_grad()
@pytest.mark.parametrize("fields", SHAPES, ids=str)
def test_a_later_token_never_moves_an_earlier_answer(fields):
    model, source, target = build(**fields), padded(), drawn(5, 6)
    changed = target.clone()
    changed[:, 4:] = drawn(5, 2, seed=3)
    before, after = model((source, target)), model((source, changed))
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


@torch.no_grad()
@pytest.mark.parametrize("parallel", [False, True])
def test_padding_does_not_matter(parallel):
    """A sentence alone, and among longer ones."""
    model, source, target = build(parallel=parallel), padded(), drawn(5, 6)
    if parallel:
        target[1, 4:] = PAD
    whole = model((source, target))
    alone = model((source[1:2, :4], target[1:2, : 4 if parallel else 6]))
    torch.testing.assert_close(whole[1, : alone.shape[1]], alone[0])


@torch.no_grad()
@pytest.mark.parametrize("fields", SHAPES, ids=str)
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("easy", [True, False])
def test_a_cached_step_is_the_full_forward(fields, beams, easy, monkeypatch):
    """Also where several rows share a source, are put in another order, and where sources leave."""
    model, source = build(**fields), padded()
    if not easy:
        monkeypatch.setattr("vitrail.families.seq2seq.model.flat", lambda _: False)
    target = drawn(5 * beams, 6)
    steps = model.steps(source)
    assert (steps.flat is not None) == easy
    rows = torch.arange(5).repeat_interleave(beams)
    first = steps(target[::beams, 0])  # one row for each source at first
    steps.select(rows)
    torch.testing.assert_close(first, model((source, target[::beams, :1]))[:, 0])
    said = [torch.cat([target[::beams, :1]] * beams, 1).flatten()[:, None], target[:, 1:3]]
    given = torch.cat(said, 1)
    for place in (1, 2):
        logits = steps(given[:, place])
    torch.testing.assert_close(logits, model((source[rows], given[:, :3]))[:, -1])
    kept = torch.tensor([3, 0])
    order = (kept[:, None] * beams + torch.arange(beams).flip(0)).flatten()
    steps.select(order)
    logits = steps(target[order, 3])
    whole = torch.cat([given[order, :3], target[order, 3:4]], 1)
    torch.testing.assert_close(logits, model((source[rows[order]], whole))[:, -1])
    among = torch.arange(2 * beams).view(2, beams).roll(1, 1).flatten()  # those of one source change places
    steps.select(among, sources=False)
    whole = torch.cat([whole[among], target[order, 4:5]], 1)
    torch.testing.assert_close(steps(target[order, 4]), model((source[rows[order]], whole))[:, -1])


@torch.no_grad()
@pytest.mark.parametrize("fields", SHAPES, ids=str)
@pytest.mark.parametrize("whole", [True, False])
def test_passes_are_the_decoder_s(fields, whole):
    """Again and again with one context, which several targets may share, of different lengths."""
    model, source = build(**fields, parallel=True, lengths=3), padded()
    source = source[:1] if whole else source
    rows = torch.arange(len(source)).repeat_interleave(2)
    context = model.encode(source)
    assert flat(model.decoder)
    again = model.passes(context, rows)
    for seed in range(2):
        target = drawn(len(rows), 6, seed=seed)
        if not whole:
            target[1::2, 4:] = PAD
        expected = model.decode(target, context[rows])
        torch.testing.assert_close(again(target)[target != PAD], expected[target != PAD])


@torch.no_grad()
def test_many_flat_steps_and_who_looks_inside():
    """More than there was room for; and with someone who looks, or trains, the blocks' own way."""
    model, source, target = build(length=64), padded(), drawn(5, 40)
    steps = model.steps(source)
    for place in range(40):
        logits = steps(target[:, place])
    torch.testing.assert_close(logits, model((source, target))[:, -1])
    with vt.record(model) as trace:
        looked = model.steps(source)
        looked(target[:, 0])
    assert trace.calls("decoder.0.attention") == 1
    with torch.enable_grad():
        assert model.steps(source).flat is None
    for change in (lambda one: one.mul_(1.1), lambda one: one.data.mul_(1.1), lambda one: one.data.copy_(one / 2)):
        for parameter in model.parameters():
            change(parameter)
        torch.testing.assert_close(model.steps(source)(target[:, 0]), model((source, target[:, :1]))[:, 0])
    assert build(order="post").steps(source).flat is not None
    assert build(norm="batch").steps(source).flat is None
    assert model.train().steps(source).flat is None


@torch.no_grad()
def test_a_parallel_decoder_sees_all():
    model, source, target = build(parallel=True), padded(), drawn(5, 6)
    changed = target.clone()
    changed[:, 5] = 4
    assert (model((source, target)) != model((source, changed))).any(-1).all()


@torch.no_grad()
def test_the_logits_of_some_rows_are_those_of_the_whole():
    model, source, target = build(parallel=True, lengths=4), padded(), drawn(5, 6)
    rows = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    said = model((source, target), rows=rows)
    torch.testing.assert_close(said.logits, model((source, target))[rows])
    assert said.lengths.shape == (5, 9)
    torch.testing.assert_close(said.lengths[1], model.length_logits(model.encode(source[1:2, :4]))[0])


@pytest.mark.parametrize(
    "fields",
    [{}, {"shared": True, "target": 41}, {"tied": False, "output_bias": True}, {"parallel": True, "lengths": 7},
     {"position": "learned"}, {"order": "post", "embed_norm": True}, {"activation": "swiglu", "head": 5}],
    ids=str,
)  # fmt: skip
def test_the_cost_is_counted_right(fields):
    model = build(**fields)
    assert model.config.cost() == cost(model.config)
    assert model.config.parameters() == count_parameters(model)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"shared": True}, "source=41 and target=43 are two"),
        ({"pad": 41}, "pad=41 is not a token of a vocabulary of 41"),
        ({"lengths": 3}, "lengths are predicted by a parallel model alone"),
        ({"heads": [3, 2], "head": 8}, "the same in all layers"),
        ({"heads": 5}, "width=24 is not divisible by heads=5"),
        ({"position": "learnt"}, "position 'learnt' is not known"),
        ({"decoder": 0}, "decoder=0"),
    ],
)
def test_a_shape_that_cannot_be_is_named(fields, says):
    with pytest.raises(InputError, match=says):
        vt.build("seq2seq", **{**SHAPE, **fields})


def test_inputs_that_cannot_be_are_named():
    model = vt.build("seq2seq", **SHAPE)
    good = torch.full((1, 3), 7)
    for pair, says in {
        (good.float(), good): "sources are torch.float32",
        (good, good[0]): r"targets are torch.int64 of shape \(3,\)",
        (good[:, :0], good): "which is empty",
        (good + 40, good): "sources hold the token 47, and the vocabulary has 41",
    }.items():
        with pytest.raises(InputError, match=says):
            model(pair)
    with pytest.raises(InputError, match="predicts no lengths"):
        model.length_logits(model.encode(good))
    with pytest.raises(InputError, match="10 tokens are more than the 9"):
        vt.build("seq2seq", **SHAPE, position="learned", length=9)((torch.full((1, 10), 7), good))
