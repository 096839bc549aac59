"""Models of text made smaller: going on with it, labelling it, translating."""

from dataclasses import replace

import pytest
import torch
from sentences import SMALL as PAIRS
from sentences import write_pairs
from shrinks import shrunk
from texts import TAGS, TEXT, write_tags, write_text

import vitrail as vt
from vitrail.runs import Run
from vitrail.shrink.costs import Costs
from vitrail.shrink.lighter import Quantize
from vitrail.shrink.plan import ORDER, chosen
from vitrail.shrink.steps import Goals, History, Step
from vitrail.trainer import train
from vitrail.weights import Weights

SIZES = {
    "text": {"model.depth": 2},
    "tags": {"model.depth": 2},
    "words": {"model.decoder": 2},
}


@pytest.fixture(scope="module")
def texts(once):
    """Models of text, of tags and of translating, that know nothing much."""

    def make(folder):
        given = {
            "text": (write_text(folder / "some.txt"), TEXT),
            "tags": (write_tags(folder / "words.txt"), TAGS),
            "words": (write_pairs(folder, 60), PAIRS),
        }
        for name, (data, settings) in given.items():
            train(data, out=folder / name, settings={**settings, **SIZES[name], "train.steps": 4}, quiet=True)

    return once("shrunk-texts", make)


@pytest.mark.parametrize("name", ["text", "tags", "words"])
def test_models_of_text(texts, tmp_path, name):
    """Layers of each go, matrices become eight bits, and what comes of it is measured as any other run is."""
    settings = {"train.steps": 3}
    made, state = shrunk(texts / name, tmp_path / "small", "layers=1", "quantize=8", minutes=None, settings=settings)
    original, layers, packed = state["steps"]
    config, before = made.weights().config, Run(texts / name).weights().config
    field = "decoder" if name == "words" else "depth"
    assert (getattr(before, field), getattr(config, field)) == (2, 1)
    assert packed["costs"]["bytes"] < 0.6 * layers["costs"]["bytes"]
    assert layers["costs"]["parameters"] == sum(p.numel() for p in made.weights().model().parameters())
    low, high = packed["worth"]["interval"]
    assert low - 1e-9 <= packed["worth"]["value"] <= high + 1e-9
    test = "McNemar" if name == "words" else "paired bootstrap"
    assert packed["worth"]["comparison"]["test"].startswith(test)
    metric = state["metric"]["name"]
    if name != "words":  # which is measured by beams afterwards, and greedily here
        assert made.evaluate().values[metric] == pytest.approx(packed["worth"]["value"], rel=1e-4)
    assert original["worth"]["value"] == pytest.approx(Run(texts / name).result[metric], rel=1e-4)


def test_a_translator_runs_as_eight_bits(texts, tmp_path):
    """Its steps are files' that say nearly what its tensors say; shrunk again it stays so."""
    original = Run(texts / "words").copy(tmp_path / "words", "cp")
    weights, draw = original.weights(), torch.Generator().manual_seed(0)
    strong = {name: one + 0.2 * torch.randn(one.shape, generator=draw) for name, one in weights.state.items()}
    original.derive(original.path, replace(weights, state=strong), "noise")  # so that tokens differ
    made, state = shrunk(original.path, tmp_path / "small", "quantize")
    assert (
        made.about["answers"] == ["encoder.int8.onnx.gz", "step.int8.onnx.gz"] == [file.name for file in made.answers]
    )
    assert state["steps"][1]["costs"]["bytes"] == sum(file.stat().st_size for file in made.answers)
    assert type(made.answering().model()).__name__ == "OnnxSeq2Seq"
    copied = made.copy(tmp_path / "copy", "cp")
    assert made.evaluate(beam=1).outputs == copied.evaluate(beam=1).outputs
    tokens = torch.randint(5, 20, (3, 6), generator=draw)
    with torch.no_grad():
        exact, found = (one.model()((tokens, tokens)) for one in (original.weights(), made.answering()))
    assert 0 < (found - exact).std() / exact.std() < 0.1
    twice, _ = shrunk(made.path, tmp_path / "twice", "layers=1", minutes=None, settings={"train.steps": 2})
    assert twice.answering().config.decoder == 1
    assert type(twice.answering().model()).__name__ == "OnnxSeq2Seq"
    copied.answers[0].unlink()
    assert copied.answers == []  # and its tensors answer
    assert copied.answering().state


def test_what_translators_run_as_eight_bits():
    """Those that say token by token with plain attention; that are to be small alone are packed."""
    original = Step(0, "original", "", Costs(1, 1, 100, None), (), (1.0, 1.0))
    history = History(original, skipped=[(name, "") for name in ORDER])

    def last(goals=None, **fields):
        model = vt.build("seq2seq", source=9, target=9, width=8, depth=1, heads=2, **fields)
        weights = Weights("here", "vitrail", "seq2seq", model.config, dict(model.state_dict()))
        return str(chosen(history, goals or Goals(), weights, data=True))

    assert last() == last(Goals(speedup=2.0)) == "quantize=int8"
    assert last(Goals(compression=3.5)) == "quantize=8"
    assert {last(position="rotary"), last(kernel="linear"), last(parallel=True)} == {"quantize=8"}
    assert str(Quantize("int8").milder(Weights("here", "vitrail", "seq2seq", None, {}))) == "quantize=8"


def test_a_tagger_keeps_its_head_on_data_that_is_named(texts, tmp_path):
    _, state = shrunk(texts / "tags", tmp_path / "small", "quantize=8", data=texts / "words.txt")
    held = Run(tmp_path / "small" / "steps" / "00-original").weights().state
    for name, tensor in Run(texts / "tags").weights().state.items():
        assert torch.equal(held[name], tensor)
    assert state["steps"][0]["worth"]["value"] == pytest.approx(Run(texts / "tags").result["accuracy"])


def test_a_text_model_by_itself_is_packed(texts, tmp_path):
    _, state = shrunk(texts / "text", tmp_path / "small", minutes=0.05, settings={"train.steps": 2})
    assert state["steps"][-1]["name"] == "quantize=8"


@pytest.mark.parametrize(("name", "width"), [("text", 8), ("tags", 8)])
def test_a_fresh_student_of_text_learns_from_its_teacher(texts, tmp_path, name, width):
    """It has its teacher's tokens, and its recipe says who taught it."""
    way, how = f"distil=width={width},depth=1,heads=1", {"train.steps": 3}
    _, state = shrunk(texts / name, tmp_path / "small", way, minutes=None, settings=how)
    student = Run(tmp_path / "small" / "steps" / state["steps"][1]["folder"])
    assert student.recipe.teacher.path == str((texts / name).resolve())
    assert student.weights().config.width == width
    tokens = [(one / "tokenizer.json").read_bytes() for one in (student.path, texts / name)]
    assert tokens[0] == tokens[1]
