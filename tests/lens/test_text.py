"""Looking into models of text: laws of what is shown."""

import pytest
import torch
import torch.nn.functional as F
from copying import randomise

import vitrail as vt
from vitrail.errors import InputError
from vitrail.lens import record
from vitrail.lens.vectors import Followed, embedding, nearest, streams_of
from vitrail.lens.words import SHOWN, read_tokens, token_writes
from vitrail.tasks.language.vectors import parsed

SHAPE = {"tokens": 61, "width": 24, "depth": 3, "heads": 3, "hidden": 40, "length": 300}
NAMES = [str(number) for number in range(61)]
MODELS = {
    "gpt": ("gpt", {}),
    "rotary": ("gpt", {"position": "rotary", "tied": False}),
    "scaled": ("gpt", {"layer_scale": 0.3}),
    "uneven": ("gpt", {"heads": [3, 0, 1], "head": 8, "hidden": [40, 40, 0]}),
    "tags": ("bert", {"says": "tags", "classes": 7, "order": "pre"}),
}


def drawn(*shape):
    return torch.randint(1, 61, shape, generator=torch.Generator().manual_seed(0))


def built(kind):
    family, fields = MODELS[kind]
    return randomise(vt.build(family, **{**SHAPE, **fields})).double()


@pytest.mark.parametrize("kind", MODELS)
def test_writes_sum_to_the_logits(kind):
    """Less their mean; at every place, from the first or from a later one on."""
    model, tokens = built(kind), drawn(1, 12)
    with torch.no_grad(), record(model) as trace:
        logits = model(tokens)[0]
    said = torch.randint(logits.shape[-1], (12,), generator=torch.Generator().manual_seed(1))
    wanted = logits.gather(1, said[:, None])[:, 0] - logits.mean(1)
    for first in (0, 5):
        written, rest = token_writes(model, trace, said[first:], first)
        total = written.nansum((1, 2)) + rest
        torch.testing.assert_close(total.double(), wanted[first:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_the_last_layer_says_what_the_model_says(kind):
    model, tokens = built(kind), drawn(1, 12)
    count = model.config.classes if kind == "tags" else 61
    said = (drawn(12) % count).tolist()
    reading = read_tokens(model, tokens, [str(one) for one in tokens[0].tolist()], said, names=NAMES, asked="follows")
    with torch.no_grad():
        probabilities = model(tokens)[0].softmax(-1)
    for place in range(12):
        token, value = reading.lens[-1][place][0]
        assert value == pytest.approx(float(probabilities[place].max()), abs=1e-6)
        assert int(token) == int(probabilities[place].argmax())
        assert float(reading.probabilities[place]) == pytest.approx(float(probabilities[place, said[place]]), abs=1e-6)
    patterns = reading.groups[0].patterns
    assert patterns.shape[-2:] == (12, 12)
    there = patterns.sum((-1, -2)) > 0
    torch.testing.assert_close(patterns.sum(-1)[there], torch.ones_like(patterns.sum(-1)[there]))


def test_of_a_long_text_the_end_is_shown_and_nothing_is_lost():
    model, tokens = built("gpt"), drawn(1, 250)
    words = [str(one) for one in tokens[0].tolist()]
    reading = read_tokens(model, tokens, words, [1] * 250, names=NAMES, asked="follows")
    (group,) = reading.groups
    assert group.rows == tuple(words[-SHOWN:]) == reading.places
    assert group.columns[0] == f"{250 - SHOWN} earlier"
    assert group.patterns.shape[-2:] == (SHOWN, SHOWN + 1)
    torch.testing.assert_close(group.patterns.sum(-1), torch.ones_like(group.patterns.sum(-1)))
    with torch.no_grad(), record(model) as trace:
        model(tokens)
    whole = trace.pattern(0)[0, :, -1]
    torch.testing.assert_close(group.patterns[0, :, -1, 1:].double(), whole[:, -SHOWN:], rtol=0, atol=1e-5)


def test_what_is_no_sum_is_said():
    model = randomise(vt.build("bert", **SHAPE))
    reading = read_tokens(model, drawn(1, 5), list("abcde"), [1] * 5, names=NAMES, asked="stands")
    assert reading.written is None
    assert "no sum over the layers" in reading.notes[0]


def test_streams_are_what_the_blocks_give():
    model, tokens = built("gpt"), drawn(2, 9)
    seen = streams_of(model, tokens)
    assert seen.shape == (4, 2, 9, 24)
    with torch.no_grad():
        torch.testing.assert_close(seen[-1], model.stream(tokens).float(), rtol=0, atol=1e-5)
        torch.testing.assert_close(seen[0], model.embed(tokens).float(), rtol=0, atol=1e-5)


def test_nearest_by_hand():
    table = torch.randn(30, 8)
    vector = table[3] - table[4] + table[5]
    found = nearest(table, vector, [3, 4], 5)
    cosines = F.cosine_similarity(table, vector[None])
    cosines[[3, 4]] = -2
    assert [token for token, _ in found] == cosines.argsort(descending=True)[:5].tolist()
    assert embedding(built("gpt")).shape == (61, 24)
    with pytest.raises(InputError, match="no vectors of words"):
        embedding(vt.build("vit", image=8, patch=4, channels=1, width=16, depth=1, heads=2))


def test_followed():
    vectors = torch.randn(4, 3, 8)
    followed = Followed(vectors)
    torch.testing.assert_close(followed.similarity.diagonal(dim1=1, dim2=2), torch.ones(4, 3))
    expected = F.cosine_similarity(vectors[2, 0], vectors[2, 1], dim=0)
    torch.testing.assert_close(followed.similarity[2, 0, 1], expected)
    between = torch.cdist(followed.plane(), followed.plane())
    torch.testing.assert_close(between, torch.cdist(vectors, vectors), rtol=1e-4, atol=1e-4)  # three points are a plane


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("king", [(1, "king")]),
        ("king - man + woman", [(1, "king"), (-1, "man"), (1, "woman")]),
        ("-a+b", [(-1, "a"), (1, "b")]),
        ("well-known - new york", [(1, "well-known"), (-1, "new york")]),
    ],
)
def test_sums_of_words(query, terms):
    assert parsed(query) == terms


def test_no_word():
    with pytest.raises(InputError, match="names no word"):
        parsed(" + - ")
