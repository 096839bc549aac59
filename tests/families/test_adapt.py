"""Weights for other pictures: another size, other channels, other patches, other classes."""

import pytest
import torch
import torch.nn.functional as F
from copying import randomise

import vitrail as vt
from vitrail.families.vit.adapt import resize_patches
from vitrail.weights import read

SHAPE = {"image": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}
CLOSE = {"rtol": 0, "atol": 1e-5}
pytestmark = pytest.mark.filterwarnings("ignore:.*(positions|patches|channels|head).*:UserWarning")


@pytest.fixture
def run(tmp_path):
    def make(**fields):
        model = randomise(vt.build("vit", **{**SHAPE, **fields}))
        vt.save(model, tmp_path / "run")
        return model, tmp_path / "run"

    return make


@torch.no_grad()
@pytest.mark.parametrize("position", ["learned", "learned2d", "relative", "sincos2d"])
@pytest.mark.parametrize("size", [(24, 24), (8, 28)])
def test_another_size_is_what_the_model_would_do_at_call_time(run, position, size):
    model, path = run(position=position, registers=2)
    images = torch.randn(2, 3, *size)
    other = vt.load(path, image=size)
    assert other.config.size == size
    torch.testing.assert_close(other(images), model(images), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("stem", ["patch", "resnet-small"])
def test_a_grey_picture_gives_what_it_gave_in_three_channels(run, stem):
    model, path = run(stem=stem)
    grey = torch.randn(2, 1, 16, 16)
    other = vt.load(path, channels=1)
    if stem == "patch":  # the kernels of the others are standardised anew
        torch.testing.assert_close(other(grey), model(grey.expand(-1, 3, -1, -1)), **CLOSE)
    assert other(grey).shape == (2, 5)


@torch.no_grad()
@pytest.mark.parametrize("how", ["half", "imagenet"])
def test_a_grey_picture_is_normalised_as_it_was_in_three_channels(run, how):
    """Each channel by itself, though there is but one now."""
    model, path = run()
    pixels = torch.rand(2, 1, 16, 16)
    three, one = (read(path, normalise=how).adapted(channels=channels) for channels in (3, 1))
    colour = three.normalise(pixels.expand(-1, 3, -1, -1))
    torch.testing.assert_close(one.model()(one.normalise(pixels)), model(colour), **CLOSE)


@torch.no_grad()
def test_more_channels_that_repeat_the_three_give_the_same(run):
    model, path = run()
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(vt.load(path, channels=6)(images.repeat(1, 2, 1, 1)), model(images), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("size", [8, 16])
def test_larger_patches_see_in_an_enlarged_picture_what_they_saw(size):
    """<resized x, k'> = <x, k>: FlexiViT's law, exact when nothing is lost in the resizing."""
    kernels, patches = torch.randn(7, 3, 4, 4), torch.randn(5, 3, 4, 4)
    larger = F.interpolate(patches, (size, size), mode="bicubic", antialias=True)
    before = torch.einsum("wcyx,bcyx->bw", kernels, patches)
    after = torch.einsum("wcyx,bcyx->bw", resize_patches(kernels, size), larger)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-4)


def test_another_patch_keeps_the_picture_s_size(run):
    _, path = run()
    other = vt.load(path, patch=8)
    assert (other.config.patch, other.config.size) == (8, (16, 16))
    assert other(torch.randn(1, 3, 16, 16)).shape == (1, 5)


@torch.no_grad()
def test_a_fresh_head_says_nothing_and_the_rest_is_kept(run):
    model, path = run(prelogits=12)
    images = torch.randn(2, 3, 16, 16)
    other = vt.load(path, classes=9)
    assert (other.config.classes, other.config.prelogits) == (9, 0)
    assert torch.equal(other(images), torch.zeros(2, 9))
    torch.testing.assert_close(other.features(images), model.features(images))
    kept = vt.load(path, classes=9, prelogits=True)
    assert kept.config.prelogits == 12
    assert torch.equal(kept.head.prelogits.weight, model.head.prelogits.weight)
    none = vt.load(path, classes=0)
    torch.testing.assert_close(none(images), torch.tanh(model.head.prelogits(model.features(images)[:, 0])))
    fresh = vt.load(path, head="fresh")
    assert torch.equal(fresh(images), torch.zeros(2, 5))


def test_what_was_done_is_said(run):
    _, path = run(prelogits=12)
    with pytest.warns(UserWarning, match="made") as said:
        vt.load(path, classes=9, image=(24, 16), channels=1, patch=8)
    text = " ".join(str(one.message) for one in said)
    for part in (
        "patches of 4 pixels made patches of 8",
        "3 channels made 1",
        "positions of 4 x 4 patches resampled to 3 x 2",
        "the head for 5 classes replaced by a fresh one for 9; the layer before it, of 12, dropped",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"width": 48}, "width=48 cannot be had"),
        ({"imgae": 32}, "field 'imgae' is not known; did you mean 'image'?"),
        ({"image": 18}, "not a whole number of patches"),
        ({"prelogits": 7}, "prelogits=7 cannot be had"),
    ],
)
def test_what_cannot_be_had_gets_a_sentence(run, fields, says):
    _, path = run()
    with pytest.raises(vt.InputError) as caught:
        vt.load(path, **fields)
    assert says in str(caught.value)
