"""Models of text as ONNX files: steps that remember say what the model says."""

import onnxruntime
import pytest
import torch
from processes import vitrail
from sentences import SMALL, write_pairs
from texts import TEXT, write_text

import vitrail as vt
from vitrail.decode.autoregressive import Limits, beam_search, greedy
from vitrail.errors import InputError
from vitrail.shrink.int8 import quantize_onnx
from vitrail.trainer import train
from vitrail.weights import Weights
from vitrail.weights.onnx_steps import OnnxSteps, save_steps

SHAPE = {"width": 24, "depth": 2, "heads": 4, "length": 40}
WORDS = {"gpt": {"tokens": 23}, "bert": {"tokens": 23}, "seq2seq": {"source": 23, "target": 23}}


def weights_of(family, **fields):
    model = vt.build(family, **{**SHAPE, **WORDS[family], **fields}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return Weights("here", "vitrail", family, model.config, dict(model.state_dict()))


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("gpt", {}),
        ("gpt", {"position": "rotary", "activation": "swiglu", "order": "post"}),
        ("seq2seq", {}),
        ("seq2seq", {"depth": 3, "decoder": 1, "shared": True, "order": "post"}),
    ],
)
def test_steps_go_on_as_the_model_does(tmp_path, family, fields):
    """The same tokens, by the likeliest and by beams, and scores to 1e-4; of rows that change their places too."""
    weights = weights_of(family, **fields)
    save_steps(weights, tmp_path)
    model, given, limits = weights.model(), torch.randint(5, 23, (3, 6)), Limits(1, 2, 20)
    if family == "seq2seq":
        given[1, 4:] = model.config.pad
    for search in (greedy, lambda *a: [one[0] for one in beam_search(*a, beam=3)]):
        ours, theirs = (search(steps, 3, limits) for steps in (model.steps(given), OnnxSteps(tmp_path, given)))
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


@torch.no_grad()
def test_a_bert_answers_as_the_model_does(tmp_path):
    weights = weights_of("bert", pad=0)
    (file,) = save_steps(weights, tmp_path)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for rows, tokens in ((1, 1), (2, 9), (5, 40)):
        given = torch.randint(1, 23, (rows, tokens))
        given[0, tokens // 2 + 1 :] = 0
        (found,) = session.run(None, {"tokens": given.numpy()})
        there = given != 0
        torch.testing.assert_close(torch.from_numpy(found)[there], weights.model()(given)[there], atol=1e-4, rtol=1e-4)


def test_what_has_no_step(tmp_path):
    with pytest.raises(InputError, match="no step that goes on token by token"):
        save_steps(weights_of("seq2seq", parallel=True, lengths=5), tmp_path)
    with pytest.raises(InputError, match="not the same heads in every layer"):
        save_steps(weights_of("gpt", heads=[4, 2], head=6), tmp_path)
    assert not any(tmp_path.glob("*.onnx"))


def test_int8_steps_say_nearly_the_same(tmp_path):
    weights = weights_of("gpt")
    (file,) = save_steps(weights, tmp_path)
    (tmp_path / "small").mkdir()
    quantize_onnx(file, tmp_path / "small" / "model.onnx")
    given = torch.randint(5, 23, (2, 6))
    exact, few = (OnnxSteps(folder, given)(given[:, -1]) for folder in (tmp_path, tmp_path / "small"))
    assert 0 < float((few - exact).square().mean()) < 0.01 * float(exact.square().mean())


def test_runs_are_exported_with_their_tokenizers(tmp_path):
    train(write_text(tmp_path / "some.txt"), out=tmp_path / "text", settings={**TEXT, "train.steps": 3}, quiet=True)
    settings = {**SMALL, "train.steps": 3}
    train(write_pairs(tmp_path, 60), out=tmp_path / "words", settings=settings, quiet=True)
    ran = vitrail("export", "text", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "written to text/onnx" in ran.stdout
    assert sorted(one.name for one in (tmp_path / "text" / "onnx").iterdir()) == ["model.onnx", "tokenizer.json"]
    ran = vitrail("export", "words", "--int8", "--out", "there", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    names = {one.name for one in (tmp_path / "there").iterdir()}
    assert {"encoder.onnx", "step.onnx", "tokenizer.json"} <= names
    ran = vitrail("export", "text", cwd=tmp_path)
    assert ran.returncode == 1
    assert "is there already" in ran.stderr
