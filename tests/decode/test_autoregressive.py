"""Token by token: beside HF's generate, and beside every sequence that there is."""

import itertools
from functools import partial

import pytest
import torch
from transformers import MarianConfig, MarianMTModel
from transformers.generation import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import vitrail as vt
from vitrail.decode import Limits, beam_search, greedy, sample
from vitrail.decode.autoregressive import narrowed
from vitrail.errors import InputError

PAD, END = 28, 0


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same weights in HF's Marian and in ours."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=29,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=40,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        decoder_vocab_size=29,
        scale_embedding=True,
        tie_word_embeddings=False,  # or a model that learned nothing says one word for ever
    )
    theirs = MarianMTModel(config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        theirs.model.shared.weight.mul_(4)  # so that what was said matters for what follows
        theirs.final_logits_bias.normal_(std=0.1)
        theirs.final_logits_bias[0, PAD] = -20.0  # as Marian's own never say it
        theirs.final_logits_bias[0, END] = 0.8  # so that sentences end at different lengths
    for side in (theirs.model.encoder, theirs.model.decoder):
        side.embed_positions.weight.data = side.embed_positions.create_weight()
    folder = tmp_path_factory.mktemp("marian")
    theirs.save_pretrained(folder)
    return theirs.eval(), vt.load(folder)


def sources():
    source = torch.randint(1, PAD, (7, 6), generator=torch.Generator().manual_seed(1))
    source[::2, 4:] = PAD
    return source


def generated(theirs, source, **options):
    return theirs.generate(
        source,
        attention_mask=(source != PAD).long(),
        max_length=18,
        return_dict_in_generate=True,
        output_scores=True,
        do_sample=False,
        **options,
    )


def without_padding(tokens):
    """HF's tokens after the first, up to the end."""
    row = tokens.tolist()[1:]
    return tuple(row[: row.index(END) + 1] if END in row else [one for one in row if one != PAD])


@torch.no_grad()
@pytest.mark.parametrize("left", [0.0, 0.875, 1.0])
def test_when_rows_leave_changes_nothing(pair, left, monkeypatch):
    """All at the end, an eighth at a time, or each at once: what is found is what each source has alone."""
    monkeypatch.setattr("vitrail.decode.autoregressive.LEFT", left)
    _, ours = pair
    source = torch.randint(1, PAD, (20, 6), generator=torch.Generator().manual_seed(2))
    limits = Limits(PAD, END, 17)
    for search in (greedy, partial(beam_search, beam=3)):
        together = search(ours.steps(source), 20, limits)
        for row, found in enumerate(together):
            (alone,) = search(ours.steps(source[row : row + 1]), 1, limits)
            several = [(found, alone)] if search is greedy else zip(found, alone, strict=True)
            for one, other in several:
                assert one.tokens == other.tokens
                assert one.score == pytest.approx(other.score, rel=1e-4)
    assert len({len(one.tokens) for one in greedy(ours.steps(source), 20, limits)}) > 2


@torch.no_grad()
def test_greedy_is_hf_s(pair):
    theirs, ours = pair
    source = sources()
    expected = generated(theirs, source, num_beams=1).sequences
    found = greedy(ours.steps(source), len(source), Limits(PAD, END, 17))
    assert [one.tokens for one in found] == [without_padding(row) for row in expected]
    assert len({len(one.tokens) for one in found}) > 2  # they do not all end together


@torch.no_grad()
@pytest.mark.parametrize("beam", [2, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_beams_are_hf_s(pair, beam, penalty):
    """The same hypotheses in the same order, with the same scores, those that share a batch ending at any time."""
    theirs, ours = pair
    source = sources()
    expected = generated(
        theirs, source, num_beams=beam, num_return_sequences=beam, length_penalty=penalty, early_stopping=False
    )
    found = beam_search(ours.steps(source), len(source), Limits(PAD, END, 17), beam=beam, penalty=penalty)
    rows, scores = iter(expected.sequences), iter(expected.sequences_scores.tolist())
    for every in found:
        assert len(every) == beam
        for one in every:
            assert one.tokens == without_padding(next(rows))
            assert one.score == pytest.approx(next(scores), abs=1e-4)


@torch.no_grad()
def test_a_beam_of_one_is_greedy(pair):
    _, ours = pair
    source, limits = sources(), Limits(PAD, END, 17)
    assert [every[0] for every in beam_search(ours.steps(source), 7, limits, beam=1)] == greedy(
        ours.steps(source), 7, limits
    )


@torch.no_grad()
def test_a_sentence_is_translated_as_if_it_were_alone(pair):
    _, ours = pair
    source, limits = sources(), Limits(PAD, END, 17)
    together = beam_search(ours.steps(source), 7, limits, beam=3)
    for row, every in zip(source, together, strict=True):
        (alone,) = beam_search(ours.steps(row[row != PAD][None]), 1, limits, beam=3)
        assert [one.tokens for one in alone] == [one.tokens for one in every]
        assert [one.score for one in alone] == pytest.approx([one.score for one in every], abs=1e-5)


@torch.no_grad()
def test_every_tensor_is_where_the_model_is(pair):
    """Whatever is made while decoding says where: with another device as the default, nothing changes."""
    _, ours = pair
    source, limits = sources(), Limits(PAD, END, 12)
    expected = greedy(ours.steps(source), 7, limits), beam_search(ours.steps(source), 7, limits, beam=3)
    with torch.device("meta"):
        assert (greedy(ours.steps(source), 7, limits), beam_search(ours.steps(source), 7, limits, beam=3)) == expected
        assert len(sample(ours.steps(source), 7, limits, top_k=3)) == 7


class Table:
    """A model whose logits depend on all that was said, drawn from a seed: nothing of it is a Transformer."""

    device = torch.device("cpu")

    def __init__(self, words, seeds):
        self.words, self.rows = words, [(seed,) for seed in seeds]
        self.seeds = list(seeds)

    def logits(self, row):
        return torch.randn(self.words, generator=torch.Generator().manual_seed(hash(row) % 2**31)) * 2

    def __call__(self, tokens):
        self.rows = [(*row, token) for row, token in zip(self.rows, tokens.tolist(), strict=True)]
        return torch.stack([self.logits(row) for row in self.rows])

    def select(self, rows, *, sources=True):  # noqa: ARG002
        self.rows = [self.rows[row] for row in rows.tolist()]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize(("words", "most"), [(3, 4), (4, 3)])
def test_a_beam_as_wide_as_all_sequences_finds_the_best(words, most, penalty):
    """What is found is what enumeration finds: every sequence that ends, and every one as long as they may be."""
    begin, end = 7, 0
    limits = Limits(begin, end, most)
    table = Table(words, range(5))
    found = beam_search(table, 5, limits, beam=words**most, penalty=penalty)
    for seed, every in enumerate(found):
        scores = {}
        for length in range(1, most + 1):
            for tokens in itertools.product(range(words), repeat=length):
                if end in tokens[:-1] or (tokens[-1] != end and length < most):
                    continue
                total = sum(
                    float(table.logits((seed, begin, *tokens[:place])).log_softmax(0)[token])
                    for place, token in enumerate(tokens)
                )
                scores[tokens] = total / length**penalty
        best = sorted(scores, key=lambda tokens: -scores[tokens])
        assert every[0].tokens == best[0]
        assert every[0].score == pytest.approx(scores[best[0]], abs=1e-5)
        assert len(every) == len(scores)


@pytest.mark.parametrize(
    ("options", "warpers"),
    [
        ({"top_k": 5}, [TopKLogitsWarper(5)]),
        ({"top_p": 0.6}, [TopPLogitsWarper(0.6)]),
        ({"top_k": 7, "top_p": 0.5}, [TopKLogitsWarper(7), TopPLogitsWarper(0.5)]),
    ],
)
def test_narrowing_is_hf_s(options, warpers):
    logits = torch.randn(13, 19, generator=torch.Generator().manual_seed(0)) * 3
    expected = LogitsProcessorList(warpers)(torch.zeros(13, 1), logits.clone())
    assert torch.equal(narrowed(logits, **options), expected)
    temperature = LogitsProcessorList([TemperatureLogitsWarper(0.7), *warpers])(torch.zeros(13, 1), logits.clone())
    assert torch.equal(narrowed(logits / 0.7, **options), temperature)


def test_samples_are_drawn_by_their_probabilities():
    limits, count = Limits(7, 0, 1), 4000
    found = sample(Table(5, [3] * count), count, limits, generator=torch.Generator().manual_seed(0), temperature=0.5)
    drawn = torch.tensor([one.tokens[0] for one in found]).bincount(minlength=5) / count
    expected = (Table(5, [3]).logits((3, 7)) / 0.5).softmax(0)
    assert (drawn - expected).abs().max() < 4 * (0.25 / count) ** 0.5
    again = sample(Table(5, [3] * count), count, limits, generator=torch.Generator().manual_seed(0), temperature=0.5)
    assert again == found
    cold = sample(Table(5, range(9)), 9, Limits(7, 0, 6), top_k=1)
    assert [one.tokens for one in cold] == [one.tokens for one in greedy(Table(5, range(9)), 9, Limits(7, 0, 6))]


def test_what_is_never_said_is_never_said():
    found = beam_search(Table(6, range(4)), 4, Limits(7, 0, 8, never=(2, 5)), beam=3)
    assert not {2, 5} & {token for every in found for one in every for token in one.tokens}


def test_bad_options_are_named():
    with pytest.raises(InputError, match="beam=0"):
        beam_search(Table(3, [0]), 1, Limits(7, 0, 3), beam=0)
    with pytest.raises(InputError, match="temperature=0"):
        sample(Table(3, [0]), 1, Limits(7, 0, 3), temperature=0)
    with pytest.raises(InputError, match="most=0"):
        Limits(1, 2, 0)
