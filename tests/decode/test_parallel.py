"""All tokens at once: beside the algorithm of the paper, written out for one sentence."""

import pytest
import torch
from copying import randomise

import vitrail as vt
from vitrail.decode import mask_predict
from vitrail.decode.parallel import room
from vitrail.errors import InputError

PAD, BEGIN, END, UNKNOWN, MASK = range(5)
NEVER = (PAD, BEGIN, END, UNKNOWN, MASK)


def build(lengths=5, **fields):
    torch.manual_seed(0)
    shape = {"source": 31, "target": 29, "width": 16, "depth": 2, "heads": 2, "hidden": 24, "length": 40}
    return randomise(vt.build("seq2seq", **shape, parallel=True, lengths=lengths, **fields)).double()


def sources():
    source = torch.randint(5, 31, (6, 9), generator=torch.Generator().manual_seed(0))
    source[:, -1] = END
    source[1, 4:] = source[4, 6:] = PAD
    source[1, 3] = source[4, 5] = END
    return source


def by_the_paper(model, source, length, passes):
    """Mask-predict as in Ghazvininejad et al. 2019, section 3.2, one token at a time."""
    tokens, said = [MASK] * length, [0.0] * length
    context = model.encode(source[None])
    for number in range(passes):
        masked = range(length) if number == 0 else sorted(range(length), key=lambda place: said[place])
        count = length if number == 0 else length * (passes - number) // passes
        places = sorted(list(masked)[:count])
        for place in places:
            tokens[place] = MASK
        logits = model.answer(model.decode(torch.tensor([tokens]), context))[0].float()
        logits[:, list(NEVER)] = -torch.inf
        probabilities = logits.log_softmax(-1)
        for place in places:
            tokens[place], said[place] = int(probabilities[place].argmax()), float(probabilities[place].max())
    return tokens, sum(said) / length


@torch.no_grad()
@pytest.mark.parametrize("passes", [1, 2, 4, 10])
def test_it_is_the_paper_s(passes):
    model, source = build(), sources()
    found = mask_predict(model, source, passes=passes, candidates=3, never=NEVER)
    for row, every in zip(source, found, strict=True):
        row = row[row != PAD]  # noqa: PLW2901
        likely = model.length_logits(model.encode(row[None]))[0].float().log_softmax(0).topk(3)
        lengths = [max(1, len(row) - 1 + int(place) - 5) for place in likely.indices]
        expected = {}
        for length, more in zip(lengths, likely.values.tolist(), strict=True):
            tokens, score = by_the_paper(model, row, length, passes)
            expected[(*tokens, END)] = (length * score + more) / (length + 1)
        assert {one.tokens for one in every} == set(expected)
        for one in every:
            assert one.score == pytest.approx(expected[one.tokens], abs=1e-5)
        assert [one.score for one in every] == sorted((one.score for one in every), reverse=True)


@torch.no_grad()
def test_the_length_is_in_the_user_s_hand():
    model, source = build(), sources()
    lengths = []
    for factor in (0.5, 1.0, 2.0):
        found = mask_predict(model, source, candidates=1, factor=factor, never=NEVER)
        lengths.append([len(every[0].tokens) - 1 for every in found])
    for half, one, two in zip(*lengths, strict=True):
        assert half == max(1, round(one * 0.5))
        assert two == min(40, 2 * one)


@torch.no_grad()
def test_without_lengths_it_is_cut_after_the_end():
    model, source = build(lengths=0), sources()
    for row, (one,) in zip(source, mask_predict(model, source, never=NEVER), strict=True):
        row = row[row != PAD]  # noqa: PLW2901
        most = int(room(torch.tensor(len(row)), model.config))
        logits = model((row[None], torch.full((1, most), MASK)))[0].float()
        logits[:, [PAD, BEGIN, UNKNOWN, MASK]] = -torch.inf
        said = logits.argmax(-1).tolist()
        assert list(one.tokens) == (said[: said.index(END) + 1] if END in said else said)


@torch.no_grad()
@pytest.mark.parametrize("lengths", [0, 5])
def test_every_tensor_is_where_the_model_is(lengths):
    model, source = build(lengths), sources()
    expected = mask_predict(model, source, factor=1.2, never=NEVER)
    with torch.device("meta"):
        assert mask_predict(model, source, factor=1.2, never=NEVER) == expected


@torch.no_grad()
def test_no_length_is_given_twice():
    for every in mask_predict(build(), sources(), candidates=9, factor=0.1, never=NEVER):
        assert len({one.tokens for one in every}) == len(every)


def test_bad_options_are_named():
    with pytest.raises(InputError, match="passes=0"):
        mask_predict(build(), sources(), passes=0)
    with pytest.raises(InputError, match="length=-1"):
        mask_predict(build(), sources(), factor=-1)
