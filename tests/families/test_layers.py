"""Layers that differ: other numbers of heads and hidden units, no attention, no feed-forward; kernels with options."""

import json

import pytest
import torch
from copying import randomise
from drawing import numbers
from processes import vitrail

import vitrail as vt
from vitrail.config import override
from vitrail.core import Kernel, Softmax, kernels
from vitrail.core.masks import Mask, TokenLayout
from vitrail.lens import attention_distance, explain, layer_sites, logit_lens, loss_without, sensitivity, writes
from vitrail.report.explain import write_explanation

SHAPE = {"image": (12, 20), "patch": 4, "width": 24, "depth": 4, "classes": 5, "head": 8}
UNEVEN = {**SHAPE, "heads": [3, 0, 1, 2], "hidden": [29, 7, 0, 11]}


def uneven(**fields):
    return randomise(vt.build("vit", **{**UNEVEN, **fields})).eval()


def image(count=1):
    return numbers(count, 3, 12, 20, dtype=torch.float32)


def test_a_model_of_uneven_layers_is_a_whole_one_without_what_it_lacks():
    """A full model whose missing heads, neurons and sublayers write nothing gives the same answers."""
    small, full = uneven(), vt.build("vit", **{**SHAPE, "heads": 3, "hidden": 29}).eval()
    state = {name: torch.zeros_like(tensor) for name, tensor in full.state_dict().items()}
    for name, tensor in small.state_dict().items():
        target = state[name]
        if name.endswith(("key_value.weight", "key_value.bias")):  # keys, then values
            for ours, theirs in zip(target.chunk(2), tensor.chunk(2), strict=True):
                ours[: len(theirs)] = theirs
        else:
            target[tuple(slice(0, side) for side in tensor.shape)] = tensor
    full.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(small(image(2)), full(image(2)))
        torch.testing.assert_close(small(image(2), shortest=True), full(image(2)))


def test_it_is_saved_and_loaded(tmp_path):
    model = uneven()
    vt.save(model, tmp_path / "run")
    again = vt.load(tmp_path / "run")
    assert again.config == model.config
    assert again.config.heads == (3, 0, 1, 2)
    assert torch.equal(again(image()), model(image()))
    with pytest.raises(vt.InputError, match=r"the model has heads=\(3, 0, 1, 2\), which timm has no place for"):
        vt.save(model, tmp_path / "m.safetensors", format="timm")
    with pytest.warns(UserWarning, match="positions of 3 x 5 patches resampled to 6 x 6"):
        assert vt.load(tmp_path / "run", image=24)(torch.zeros(1, 3, 24, 24)).shape == (1, 5)


@torch.no_grad()
def test_what_every_head_wrote_still_sums_to_the_logits():
    model = uneven()
    parts = writes(model, image(2))
    torch.testing.assert_close(parts.logits, model(image(2)), atol=1e-5, rtol=1e-5)
    there = ~parts.heads[0, :, :, 0].isnan()
    assert there.tolist() == [[True] * 3, [False] * 3, [True, False, False], [True, True, False]]
    assert parts.feed_forward[0, :, 0].isnan().tolist() == [False, False, True, False]
    lens = logit_lens(model, image(2))
    assert lens.shape == (5, 2, 5)
    torch.testing.assert_close(lens[-1], model(image(2)))


def test_every_number_of_a_head_is_nan_where_there_is_none():
    model, labels = uneven(), torch.tensor([1, 4])
    expected = [[False] * 3, [True] * 3, [False, True, True], [False, False, True]]
    for values in (
        attention_distance(model, image(2))[:, 0],
        sensitivity(model, image(2), labels),
        loss_without(model, image(2), labels),
    ):
        assert values.isnan().tolist() == expected
    assert layer_sites(model) == ["encoder.0.attention", None, "encoder.2.attention", "encoder.3.attention"]


def test_it_is_explained_as_any_other(tmp_path, opened):
    model = uneven()
    pixels = torch.randint(0, 256, (3, 12, 20), dtype=torch.uint8)
    found = explain(model, pixels[None].float() / 127.5 - 1, steps=2)
    facts = write_explanation(tmp_path, "odd", pixels, found, labels="abcde", model=model, title="uneven")
    assert facts["by_layer"] == [3, 0, 1, 2]
    assert json.loads((tmp_path / "odd.json").read_text())["attention"][1] == [[None] * 16] * 3
    with opened(tmp_path / "odd.html") as page:
        page.wait_for_selector("body[data-ready=yes]")
        assert page.locator(".cell").count() == 6
        page.keyboard.press("[")
        page.keyboard.press("[")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.locator("#readout").inner_text().startswith("Layer 1, mean of the heads")
        shown = page.evaluate("[...attended(2, -1, 0)]")
    torch.testing.assert_close(torch.tensor(shown), found.trace.pattern("encoder.2.attention")[0, 0, 0])
    with pytest.raises(vt.InputError, match="layer=1 has no attention"):
        explain(model, image(), layer=1, steps=0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"heads": [3, 1]}, r"heads=\(3, 1\) has 2 numbers for depth=4 layers; give one each"),
        ({"heads": [3, 1, 2, 2], "head": None}, r"heads=\[3, 1, 2, 2\] differ by layer, .* such as head=8"),
        ({"heads": [3, -1, 2, 2]}, "heads=.* the number of a layer should be 0 or greater"),
        ({"hidden": ["a", 1, 2, 3]}, "hidden=.* it should be a number, or one for each layer"),
        ({"position": "relative"}, "position='relative' has as many biases as heads"),
        ({"kernel": {"name": "softmax", "scales": 2.0}}, "kernel 'softmax': field 'scales' is not known; did you mean"),
        ({"kernel": {"name": "softmax", "scale": "a lot"}}, "kernel 'softmax': scale='a lot' does not fit"),
        ({"kernel": {"scale": 2.0}}, "kernel=.* has options and no name; give kernel.name too"),
        ({"kernel": {"name": "softmax", "scale": 0.0}}, "scale=0.0 does not fit; it should be greater than 0"),
        ({"kernel": {"name": "softmx"}}, "kernel 'softmx' is not known; did you mean 'softmax'"),
    ],
)
def test_what_does_not_fit_together_is_said(fields, says):
    with pytest.raises(vt.InputError, match=says):
        vt.build("vit", **{**UNEVEN, **fields})


def test_equal_layers_are_one_number():
    config = vt.build("vit", **{**SHAPE, "heads": [3] * 4, "hidden": [29] * 4}).config
    assert (config.heads, config.hidden) == (3, 29)


def test_a_kernel_takes_options(tmp_path):
    model = vt.build("vit", **{**SHAPE, "heads": 3, "kernel": {"name": "softmax", "scale": 0.25}}).eval()
    assert {block.attention.f.kernel.scale for block in model.blocks} == {0.25}
    vt.save(model, tmp_path / "run")
    assert vt.load(tmp_path / "run").config.kernel == {"name": "softmax", "scale": 0.25}
    assert torch.equal(vt.load(tmp_path / "run")(image()), model(image()))
    assert vt.build("vit", **{**SHAPE, "heads": 3, "kernel": {"name": "softmax"}}).config.kernel == "softmax"


def test_a_kernel_sees_where_the_tokens_stand(monkeypatch):
    seen = []

    class Looking(Softmax):
        def forward(self, q, k, v, mask):
            seen.append(mask.layout)
            return super().forward(q, k, v, mask)

    monkeypatch.setitem(kernels._things, "looking", Looking)
    model = vt.build("vit", **{**SHAPE, "heads": 3, "kernel": "looking", "registers": 2})
    model(image())
    assert seen == [TokenLayout(prefix=3, grid=(3, 5))] * 4


def test_options_may_come_before_the_name_they_are_of():
    after = override({"model": {}}, ["model.kernel.scale=0.2", "model.kernel=softmax"])
    before = override({"model": {}}, ["model.kernel=softmax", "model.kernel.scale=0.2"])
    assert after == before == {"model": {"kernel": {"name": "softmax", "scale": 0.2}}}


@pytest.mark.parametrize("first", ["model.kernel=softmax", "model.kernel.name=softmax"])
def test_a_kernel_s_options_are_set_from_the_command_line(tmp_path, first):
    small = ("--model", "vit-pico/2", "--set", "model.depth=1", "--epochs", "1")
    ran = vitrail(
        "train", "digits", "--out", tmp_path / "run", *small, "--set", first, "--set", "model.kernel.scale=0.5"
    )
    assert ran.returncode == 0, ran.stderr
    assert vt.load(tmp_path / "run").config.kernel == {"name": "softmax", "scale": 0.5}
    ran = vitrail("train", "digits", "--out", tmp_path / "b", *small, "--set", first, "--set", "model.kernel.scales=1")
    assert ran.stderr.strip() == ("vitrail: kernel 'softmax': field 'scales' is not known; did you mean 'scale'?")


@torch.no_grad()
def test_a_kernel_may_go_by_a_mask_that_is_not_dense(monkeypatch, tmp_path):
    """A neighbourhood on the grid, from options and layout alone, is softmax under the dense mask of the same pairs."""

    class Near(Softmax):
        rowwise = False
        pattern = Kernel.pattern

        def __init__(self, reach: tuple[int, int] = (1, 1)):
            super().__init__()
            self.reach = reach

        def forward(self, q, k, v, mask):
            return super().forward(q, k, v, mask & Mask(bias=self.near(mask.layout, q)))

        def near(self, layout, like):
            y, x = (torch.arange(side) for side in layout.grid)
            at = torch.cartesian_prod(y, x)
            far = ((at[:, None] - at).abs() > torch.tensor(self.reach)).any(-1)
            return like.new_zeros(len(far), len(far)).masked_fill(far, -torch.inf)[None, None]

    monkeypatch.setitem(kernels._things, "near", Near)
    fields = {**SHAPE, "heads": 3, "pool": "mean"}
    near = randomise(vt.build("vit", **fields, kernel={"name": "near", "reach": [0, 1]})).eval()
    whole = vt.build("vit", **fields).eval()
    whole.load_state_dict(near.state_dict())
    vt.save(near, tmp_path / "run")
    assert torch.equal(vt.load(tmp_path / "run")(image()), near(image()))
    assert not torch.allclose(near(image()), whole(image()))
    with vt.record(near) as trace:
        near(image())
    mask = Mask(bias=near.blocks[0].attention.f.kernel.near(TokenLayout(0, (3, 5)), image()))
    torch.testing.assert_close(near.stream(image()), whole.encoder(whole.embed(image()), mask))
    assert (trace.pattern(0)[0, 0, 7] > 0).nonzero()[:, 0].tolist() == [6, 7, 8]


def test_two_answers_of_a_distilled_model_are_taught_apart():
    model = vt.build("vit", **{**SHAPE, "heads": 3, "pool": "distilled"})
    apart = model(image(2), shortest=True, apart=True)
    pooled = model.features(image(2))[:, :2]
    torch.testing.assert_close(apart[:, 0], pooled[:, 0] @ model.head.logits.weight.T + model.head.logits.bias)
    torch.testing.assert_close(apart[:, 1], pooled[:, 1] @ model.head.distilled.weight.T + model.head.distilled.bias)
    apart[:, 1].sum().backward()
    assert model.head.logits.weight.grad is None or (model.head.logits.weight.grad == 0).all()
    assert (model.head.distilled.weight.grad != 0).any()
    plain = vt.build("vit", **{**SHAPE, "heads": 3}).eval()
    assert torch.equal(plain(image(), apart=True)[:, 0], plain(image()))
