"""Pairs of sentences as batches, what is learned from them, and the vocabulary they are read by."""

import pickle
import random
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from copying import randomise

import vitrail as vt
from vitrail.data import Batch
from vitrail.data.batches import Batches
from vitrail.data.vocabulary import BEGIN, END, MASK, PAD
from vitrail.tasks.translate.examples import MaskedPairs, OpenPairs, TokenPairs, fill, translate

CPU = torch.device("cpu")


def drawn(count=300, kind=TokenPairs):
    draw = random.Random(0)  # noqa: S311

    def sentence(length):
        return [*(draw.randint(5, 30) for _ in range(length)), END]

    lengths = [draw.randint(1, 20) for _ in range(count)]
    return kind([sentence(n) for n in lengths], [sentence(max(1, n + draw.randint(-3, 3))) for n in lengths])


def model(**fields):
    torch.manual_seed(0)
    shape = {"source": 31, "target": 31, "width": 16, "depth": 1, "heads": 2, "hidden": 24, **fields}
    return randomise(vt.build("seq2seq", **shape))


def test_an_epoch_has_every_pair_once_and_little_padding():
    examples = drawn(3000)
    seen = [examples.updates(500, np.random.default_rng(seed)) for seed in range(3)]
    for updates in seen:
        assert len(updates) == examples.per_epoch(500)
        assert sorted(row for rows in updates for row in rows.tolist()) == list(range(3000))
        tokens = [examples.count(rows) for rows in updates]
        assert max(tokens) < 600
        assert 1 - examples.lengths.sum() / examples.with_padding(updates) < 0.1
    assert not np.array_equal(seen[0][0], seen[1][0])


@pytest.mark.parametrize("size", [1, 7, 32, 100_000])
@pytest.mark.parametrize("long", [0, 3, 20])
def test_batches_of_any_size(size, long):
    """However long a few sentences are: each batch has as many rows as it is cut in parts, and all rows are in one."""
    examples = drawn(50)
    examples = TokenPairs(examples.sources, [*([5] * 110 for _ in range(long)), *examples.targets[long:]])
    for seed in range(20):
        for least in range(1, 1 + 50 // examples.per_epoch(size)):
            updates = examples.updates(size, np.random.default_rng(seed), least)
            assert len(updates) == examples.per_epoch(size)
            assert min(map(len, updates)) >= least
            assert sorted(row for rows in updates for row in rows.tolist()) == list(range(50))


@pytest.mark.parametrize("kind", [TokenPairs, MaskedPairs, OpenPairs])
def test_micro_batches_are_the_batch(kind):
    """Cut in any number of parts, the gradient of an update is that of the parts together, as they were drawn."""
    parallel = kind is not TokenPairs
    one = model(parallel=parallel, lengths=6 * (kind is MaskedPairs)).train()
    examples = drawn(60, partial(OpenPairs, config=one.config) if kind is OpenPairs else kind)

    def objective(batch):
        return fill(one, batch, 6, 0.1) if kind is MaskedPairs else translate(one, batch, 0.1)

    batches = Batches(examples, 10_000, 1, 0, 3, range(3), CPU)
    (parts,) = [list(update) for update in batches.starting(0)]
    one.zero_grad()
    for part in parts:
        (objective(part) * part.weight).backward()
    apart = [parameter.grad.clone() for parameter in one.parameters()]
    width = [max(part.inputs[side].shape[1] for part in parts) for side in (0, 1)]
    sources, targets, asked = (
        torch.cat([F.pad(tensor, (0, most - tensor.shape[1])) for tensor in tensors])
        for tensors, most in (
            ([part.inputs[0] for part in parts], width[0]),
            ([part.inputs[1] for part in parts], width[1]),
            ([part.targets for part in parts], width[1]),
        )
    )
    one.zero_grad()
    objective(Batch((sources, targets), asked, sum(part.count for part in parts))).backward()
    for grad, parameter in zip(apart, one.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad, rtol=1e-4, atol=1e-6)


def test_the_loss_is_the_mean_over_the_tokens():
    examples, one = drawn(9), model()
    rows = np.arange(9)
    (sources, given), targets, count = examples.batch(rows, CPU)
    assert count == sum(len(target) for target in examples.targets)
    assert given[:, 0].tolist() == [BEGIN] * 9
    expected = 0.0
    for source, target in zip(examples.sources, examples.targets, strict=True):
        logits = one((torch.tensor([source]), torch.tensor([[BEGIN, *target[:-1]]])))[0]
        expected += F.cross_entropy(logits, torch.tensor(target), reduction="sum").item()
    loss = translate(one, Batch((sources, given), targets, count))
    assert loss.item() == pytest.approx(expected / count, rel=1e-4)


def test_masks_are_drawn_from_one_to_all():
    examples = MaskedPairs([[5, END]] * 4000, [[6, 7, 8, 9, END]] * 4000)
    torch.manual_seed(0)
    (_, given), asked, count = examples.batch(np.arange(4000), CPU)
    hidden = given == MASK
    assert torch.equal(hidden, asked != PAD)
    assert torch.equal(torch.where(hidden, asked, given), torch.tensor([[6, 7, 8, 9]] * 4000))
    drawn_counts = hidden.sum(1).bincount(minlength=5)
    assert drawn_counts[0] == 0
    assert (drawn_counts[1:] / 4000 - 0.25).abs().max() < 0.04
    assert (hidden.float().mean(0) - 0.625).abs().max() < 0.03
    assert 2 * hidden.sum() / count == pytest.approx(1, abs=0.02)


def test_a_vocabulary_goes_to_other_processes_whole():
    from vitrail.data.vocabulary import Vocabulary

    words = Vocabulary.learned(["a <end> b"] * 4, "bpe", 300)
    assert pickle.loads(pickle.dumps(words)).encode(["<end> x"]) == words.encode(["<end> x"])  # noqa: S301
    assert words.encode(["<end> x"])[0].count(END) == 1


@pytest.mark.parametrize(
    ("sources", "targets", "shared"),
    [
        (["the house is red", "a small dog"], ["das Haus ist rot", "ein kleiner Hund"], True),
        (["今天天气很好", "他是一个学生"], ["the weather is fine today", "he is a student"], False),
        (["дом красный"], ["the house is red"], False),
        (["12:30", "!?"], ["10", "..."], False),
    ],
)
def test_languages_of_one_alphabet_share_a_vocabulary(sources, targets, shared):
    from vitrail.data.pairs import Pairs
    from vitrail.tasks.translate.choices import choose_vocabulary
    from vitrail.tasks.translate.recipe import TranslateRecipe

    both = Pairs(sources, targets, list(range(1, 1 + len(sources))))
    recipe, choices = choose_vocabulary(TranslateRecipe(), both)
    assert recipe.data.shared == shared
    assert [choice.field for choice in choices] == ["data.shared", "data.vocabulary"]
    given, _ = choose_vocabulary(TranslateRecipe(data={"shared": not shared, "vocabulary": 99}), both)
    assert (given.data.shared, given.data.vocabulary) == (not shared, 99)
