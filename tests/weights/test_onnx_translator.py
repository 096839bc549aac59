"""Translators whose steps ONNX Runtime takes: they say what the model says, and in eight bits nearly that."""

import onnx
import pytest
import torch

import vitrail as vt
from vitrail.decode import Limits, beam_search, greedy
from vitrail.shrink.int8 import products, quantize_onnx
from vitrail.weights import read
from vitrail.weights.onnx_decoding import FileSteps, Sessions, read_translator
from vitrail.weights.onnx_translator import Bytes, save_translator, takes_steps

SHAPE = {"source": 50, "target": 40, "width": 24, "depth": 2, "decoder": 2, "heads": 4, "hidden": 48, "length": 12}


def made(tmp_path, **fields):
    torch.manual_seed(0)
    model = vt.build("seq2seq", **{**SHAPE, **fields}).eval()
    for parameter in model.parameters():  # so that tokens differ
        parameter.data += 0.1 * torch.randn_like(parameter)
    vt.save(model, tmp_path / "model")
    return model, read(tmp_path / "model")


def sources():
    source = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(1))
    source[1, 4:] = 0
    return source


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"order": "post", "position": "learned", "activation": "gelu", "head": 8},
        {"target": 50, "shared": True, "layer_scale": 0.5, "embedding": 8, "decoder": 1, "bias": False},
    ],
)
def test_steps_say_what_the_model_says(tmp_path, fields):
    model, weights = made(tmp_path, **fields)
    files = save_translator(weights, tmp_path / "onnx")
    source, sessions = sources(), Sessions(files)
    limits = Limits(1, 2, 10, (0, 1))
    with torch.no_grad():
        ours, theirs = model.steps(source), FileSteps(sessions, source)
        for number in range(4):
            tokens = torch.randint(3, 40, (3,), generator=torch.Generator().manual_seed(number))
            torch.testing.assert_close(theirs(tokens), ours(tokens), atol=1e-4, rtol=1e-4)
        rows = torch.tensor([2, 0, 0])  # which are gone on with
        ours.select(rows)
        theirs.select(rows)
        torch.testing.assert_close(theirs(tokens), ours(tokens), atol=1e-4, rtol=1e-4)
        for search in (greedy, lambda *given: [some[0] for some in beam_search(*given, beam=3)]):
            expected, found = search(model.steps(source), 3, limits), search(FileSteps(sessions, source), 3, limits)
            assert [one.tokens for one in found] == [one.tokens for one in expected]


def test_as_a_model_it_answers_by_its_files(tmp_path):
    model, weights = made(tmp_path)
    files = save_translator(weights, tmp_path / "onnx")
    small = read_translator(files).model().float()
    target = torch.randint(3, 40, (3, 5), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(small((sources(), target)), model((sources(), target)), atol=1e-4, rtol=1e-4)
    with pytest.raises(vt.InputError, match="shows nothing of its inside"):
        small.stream((sources(), target))


def test_eight_bits_are_near_and_small(tmp_path):
    model, weights = made(tmp_path, width=64, hidden=128, source=400, target=400, shared=True)
    files = save_translator(weights, tmp_path / "onnx", small=True)
    (tmp_path / "small").mkdir()
    for file in files:
        quantize_onnx(file, tmp_path / "small" / file.name)
    small = [tmp_path / "small" / file.name for file in files]
    numbers = sum(parameter.numel() for parameter in model.parameters())
    assert sum(file.stat().st_size for file in small) < 2.5 * numbers  # bytes; a table has two places, and 4 were 4
    with torch.no_grad():
        ours, theirs = model.steps(sources()), FileSteps(Sessions(small), sources())
        tokens = torch.tensor([5, 6, 7])
        expected, found = ours(tokens), theirs(tokens)
    assert 0 < (found - expected).std() / expected.std() < 0.1


def test_tables_that_are_products_are_small_too(tmp_path):
    """And what says the tokens is the last product of a step."""
    model, weights = made(tmp_path, source=2_000, target=2_000, shared=True, embedding=8)
    whole = save_translator(weights, tmp_path / "onnx", small=True)
    small = [tmp_path / f"small-{file.name}" for file in whole]
    for file, target in zip(whole, small, strict=True):
        quantize_onnx(file, target)
    (tokens,) = [one for one in onnx.load(str(whole[-1])).graph.node if one.name == products(whole[-1])[-1]]
    shapes = {one.name: tuple(one.dims) for one in onnx.load(str(whole[-1])).graph.initializer}
    assert 2_000 in shapes[tokens.input[1]]
    assert sum(file.stat().st_size for file in small) < (tmp_path / "model" / "model.safetensors").stat().st_size
    with torch.no_grad():
        ours, theirs = model.steps(sources()), FileSteps(Sessions(small), sources())
        expected, found = ours(torch.tensor([5, 6, 7])), theirs(torch.tensor([5, 6, 7]))
    assert 0 < (found - expected).std() / expected.std() < 0.1


def test_a_table_in_bytes_is_within_half_a_step():
    weight = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 9)[:, None]
    rows = Bytes(weight)(torch.arange(9))
    step = weight.abs().amax(1, keepdim=True) / 127
    assert ((rows - weight).abs() <= step / 2 + 1e-6 * step).all()


def test_what_has_no_such_steps(tmp_path):
    _, weights = made(tmp_path, parallel=True)
    with pytest.raises(vt.InputError, match="says no target token by token"):
        save_translator(weights, tmp_path / "onnx")
    assert not takes_steps(weights.config)
    _, weights = made(tmp_path, kernel="linear")
    assert not takes_steps(weights.config)
    with pytest.raises(vt.InputError, match="no plain attention"):
        save_translator(weights, tmp_path / "onnx")
