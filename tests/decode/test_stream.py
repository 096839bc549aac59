"""Text that is gone on with, beside HF's generate."""

import torch
from copying import randomise
from transformers import GPT2Config, GPT2LMHeadModel

import vitrail as vt
from vitrail.decode import Drawing, stream


def drawn(*shape):
    return torch.randint(1, 61, shape, generator=torch.Generator().manual_seed(0))


def model_of(**fields):
    return randomise(vt.build("gpt", tokens=61, width=24, depth=2, heads=3, length=24, **fields))


def test_greedy_is_that_of_hf(tmp_path):
    config = GPT2Config(vocab_size=61, n_positions=24, n_embd=24, n_layer=2, n_head=3, eos_token_id=None)
    theirs = randomise(GPT2LMHeadModel(config))
    theirs.save_pretrained(tmp_path)
    ours, prompt = vt.load(tmp_path), drawn(3, 5)
    with torch.no_grad():
        new = torch.stack(list(stream(ours.steps, prompt, Drawing(0), room=24, most=15)), 1)
        expected = theirs.generate(prompt, max_new_tokens=15, do_sample=False, pad_token_id=0)
    assert torch.equal(torch.cat([prompt, new], 1), expected)


def test_more_than_there_is_room_for():
    """When it is full it goes on from the last half: each token is what the model says after what it then sees."""
    model, prompt = model_of(), drawn(2, 7)
    with torch.no_grad():
        new = torch.stack(list(stream(model.steps, prompt, Drawing(0), room=24, most=40)), 1)
        whole, seen = torch.cat([prompt, new], 1), 7
        for place in range(7, 47):
            if seen > 24:
                seen = 12
            said = model(whole[:, place - seen : place])[:, -1]
            assert torch.equal(said.argmax(-1), whole[:, place])
            seen += 1


def test_what_is_never_said():
    model, prompt = model_of(), drawn(2, 3)
    draw = Drawing(1.0, generator=torch.Generator())
    for token in stream(model.steps, prompt, draw, room=24, most=20, never=range(60)):
        assert token.tolist() == [60, 60]


def test_draws_have_the_probabilities_that_they_should():
    model, prompt = model_of(), drawn(1, 4).expand(4000, 4)
    with torch.no_grad():
        said = (model(prompt[:1])[0, -1] / 0.7).softmax(-1)
        draw = Drawing(0.7, generator=torch.Generator().manual_seed(0))
        (token,) = stream(model.steps, prompt, draw, room=24, most=1)
    counts = token.bincount(minlength=61) / 4000
    assert float((counts - said).abs().max()) < 4 * (0.25 / 4000) ** 0.5
