"""What speaks for an answer in models without attention."""

import json

import pytest
import torch
from PIL import Image

import vitrail as vt
from vitrail.lens.evidence import evidence, gradcam

SMALL = {"image": 12, "channels": 1, "classes": 4, "root": "small", "width": 8, "units": (1, 1)}


def drawn(name, **fields):
    torch.manual_seed(0)
    model = vt.build(name, **fields).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    return model


def test_gradcam_is_the_sum_of_what_places_add():
    """With a mean over places and a linear head, the gradient is the head's weight over how many places there are: so
    without the cut at 0 the map sums to the logit, less its bias.
    """
    model, image = drawn("cnn", **SMALL), torch.rand(1, 1, 12, 12)
    with torch.no_grad():
        maps = model.maps(image)
        weight = model.head.logits.weight[2]
        whole = torch.einsum("k,byxk->byx", weight, maps.permute(0, 2, 3, 1))[0] / maps[0, 0].numel()
        logit = model(image)[0, 2] - model.head.logits.bias[2]
    torch.testing.assert_close(whole.sum(), logit)
    torch.testing.assert_close(gradcam(model, image, 2), whole.relu())


def test_pixels_of_a_linear_map_sum_to_the_difference_of_logits():
    model, image = drawn("linear", image=6, channels=3, classes=4), torch.rand(1, 3, 6, 6)
    found = evidence(model, image)
    with torch.no_grad():
        logits = model(image)[0]
        apart = logits[found.label] - logits[found.other]
        bias = model.head.logits.bias[found.label] - model.head.logits.bias[found.other]
    torch.testing.assert_close(found.values.sum(), apart - bias)
    assert logits.topk(2).indices.tolist() == [found.label, found.other]


def test_the_likeliest_and_the_next_are_compared():
    model = vt.build("gaussian", image=4, channels=1, classes=3)
    model.mean.data = torch.tensor([[0.0] * 16, [1.0] * 16, [5.0] * 16])
    found = evidence(model, torch.full((1, 1, 4, 4), 0.9))
    assert (found.label, found.other) == (1, 0)
    torch.testing.assert_close(found.values, torch.full((4, 4), (0.81 - 0.01) / 2))
    assert evidence(model, torch.full((1, 1, 4, 4), 0.9), label=2).other == 1
    with pytest.raises(vt.InputError, match="by its attention"):
        evidence(
            vt.build("vit", image=4, patch=2, channels=1, classes=3, width=8, depth=1, heads=1), torch.rand(1, 1, 4, 4)
        )


@pytest.mark.parametrize(
    ("family", "method"), [("cnn", "gradcam"), ("gaussian", "likelihood"), ("linear", "contribution")]
)
def test_by_the_command(tmp_path, invoke, family, method):
    fields = SMALL if family == "cnn" else {"image": 12, "channels": 1, "classes": 4}
    model = drawn(family, **fields) if family != "gaussian" else vt.build(family, **fields)
    vt.save(model, tmp_path / "run", labels=tuple("abcd"), normalise={"mean": [0.3], "std": [0.5]})
    Image.new("L", (20, 20), 90).save(tmp_path / "one.png")
    status, _, err = invoke("explain", tmp_path / "run", tmp_path / "one.png", "--out", tmp_path / "why")
    assert status == 0, err
    facts = json.loads((tmp_path / "why" / "one.json").read_text())
    assert facts["methods"][0]["name"] == method
    assert (tmp_path / "why" / f"one-{method}.png").is_file()
    assert f"one-{method}.png" in (tmp_path / "why" / "one.html").read_text()
    status, _, err = invoke("explain", tmp_path / "run", tmp_path / "one.png", "--out", tmp_path / "o", "--layer", "1")
    assert status == 1
    assert "has no attention" in err
    status, _, err = invoke("figures", tmp_path / "run", "--out", tmp_path / "f")
    assert status == 1
    assert "without attention to look at" in err
