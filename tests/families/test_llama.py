"""The model of docs/llama.py, which the package knows nothing of: HF's, by its weights, in under a hundred lines."""

import importlib.util
from pathlib import Path

import pytest
import torch
from copying import randomise
from texts import TEXT, write_text
from transformers import LlamaConfig, LlamaForCausalLM

import vitrail as vt
from vitrail.core import norms
from vitrail.families import cost, families
from vitrail.tasks.language.writer import Writer, Writing
from vitrail.weights.formats import formats

FILE = Path(__file__).parents[2] / "docs" / "llama.py"


@pytest.fixture(autouse=True)
def _llama():
    known = [(registry, set(registry)) for registry in (norms, families, formats)]
    spec = importlib.util.spec_from_file_location("llama", FILE)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield
    for registry, before in known:
        for name in set(registry) - before:
            registry._held.pop(name)


def test_it_takes_under_a_hundred_lines():
    lines = [line.strip() for line in FILE.read_text().splitlines()]
    assert len([line for line in lines if line and not line.startswith(('"""', "#"))]) < 100


@pytest.mark.parametrize("tied", [True, False])
def test_against_hf(tmp_path, tied):
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
    )
    theirs = randomise(LlamaForCausalLM(config))
    theirs.save_pretrained(tmp_path)
    ours, tokens = vt.load(tmp_path), torch.randint(0, 61, (2, 13))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=0, atol=1e-4)
        new = ours.steps(tokens[:, :5])(tokens[:, 4])
        torch.testing.assert_close(new, theirs(tokens[:, :5]).logits[:, -1], rtol=0, atol=1e-4)
    assert cost(ours.config).parameters == sum(p.numel() for p in ours.parameters())


def test_it_is_saved_looked_into_and_written_with(tmp_path):
    model = vt.build("llama", tokens=50, width=16, depth=2, heads=2, length=16).eval()
    vt.save(model, tmp_path / "run")
    again, tokens = vt.load(tmp_path / "run"), torch.randint(0, 50, (1, 7))
    with vt.record(again) as trace:
        assert torch.equal(again(tokens), model(tokens))
    assert trace.pattern(-1).shape == (1, 2, 7, 7)


def test_it_is_trained_and_writes(tmp_path):
    text, settings = write_text(tmp_path / "text.txt", 800), {**TEXT, "train.steps": 150}
    run = vt.train(text, model="llama", out=tmp_path / "run", settings=settings, quiet=True)
    assert type(vt.load(run.path)).__name__ == "Llama"
    assert run.result["nats"] < 0.6
    writer = Writer.of(run.trained())
    assert "".join(writer.written(writer.start("the cat")[0], Writing(tokens=5, temperature=0))) == " sat."
