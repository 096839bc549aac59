"""A mistake gets one sentence that names the field, the value and a way out."""

import numpy as np
import pytest
import torch

import vitrail as vt

TINY = {"image": 8, "patch": 4, "width": 12, "depth": 1, "heads": 3, "classes": 2}


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("vit-b16", {}, "model 'vit-b16' is not known; did you mean 'vit-b/16'?"),
        ("xyz", {}, "model 'xyz' is not known; choose one of bert, bert-base, "),
        (7, {}, "model 7 is not known; choose one of"),
        ("vit-b/16", {"clases": 3}, "field 'clases' is not known; did you mean 'classes'?"),
        ("vit", {"width": 100, "depth": 2, "heads": 3}, "width=100 is not divisible by heads=3; choose width=99 or"),
        (
            "vit",
            {"width": 5, "depth": 2, "heads": 7},
            "width=5 is not divisible by heads=7; choose width=7, or heads=5.",
        ),
        ("vit", {"depth": 2, "heads": 3}, "field 'width' is missing"),
        (
            "vit-b/16",
            {"image": 100},
            "image of 100 x 100 pixels is not a whole number of patches of 16; resize it to 96 x 96",
        ),
        ("vit-b/16", {"image": "big"}, "image='big' does not fit; it should be a number of pixels, or two"),
        ("vit-b/16", {"image": (224,)}, "image=(224,) does not fit"),
        ("vit-b/16", {"image": True}, "image=True does not fit"),
        ("vit-b/16", {"width": "big"}, "width='big' does not fit; it should be a valid integer."),
        ("vit-b/16", {"width": 64.5}, "width=64.5 does not fit"),
        ("vit-b/16", {"heads": 0}, "heads=0 does not fit; it should be greater than 0."),
        ("vit-b/16", {"heads": True}, "heads=True does not fit"),
        ("vit-b/16", {"classes": -1}, "classes=-1 does not fit"),
        ("vit-b/16", {"drop_path": 1.0}, "drop_path=1.0 does not fit; it should be less than 1."),
        ("vit-b/16", {"pool": "means"}, "pool 'means' is not known; did you mean 'mean'?"),
        ("vit-b/16", {"kernel": "sofmax"}, "kernel 'sofmax' is not known; did you mean 'softmax'?"),
        ("vit-b/16", {"norm": "group"}, "norm 'group' is not known; choose one of batch, layer."),
        ("vit-b/16", {"position": "2d"}, "position '2d' is not known; choose one of"),
        ("vit-b/16", {"position": 5}, "position=5 does not fit; it should be a valid string."),
        ("vit-b/16", {"stem": "pach"}, "stem 'pach' is not known; did you mean 'patch'?"),
        ("vit-b/16", {"activation": "gela"}, "activation 'gela' is not known; did you mean 'gelu'?"),
        ("vit", {**TINY, "image": 9, "patch": 3, "stem": "conv"}, "patch=3 is not a power of 2"),
        ("vit", {**TINY, "width": 6, "position": "sincos2d"}, "width=6 is not divisible by 4"),
    ],
)
def test_building(name, fields, says):
    with pytest.raises(vt.InputError) as caught:
        vt.build(name, **fields)
    assert says in str(caught.value)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (
            torch.zeros(3, 8, 8),
            "images has shape (3, 8, 8), not (batch, 3, height, width); add the batch axis with images[None].",
        ),
        (torch.zeros(8, 8), "images has shape (8, 8), not (batch, 3, height, width)"),
        (
            torch.zeros(2, 1, 8, 8),
            "so 1 channels where the model has 3; convert the images, or build the model with channels=1",
        ),
        (torch.zeros(0, 3, 8, 8), "images has shape (0, 3, 8, 8), which is empty; give at least one image"),
        (torch.zeros(1, 3, 0, 8), "which is empty"),
        (torch.zeros(1, 3, 9, 8), "image of 9 x 8 pixels is not a whole number of patches of 4; resize it to 8 x 8"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "images has type torch.uint8; make it floating point first"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.float64), "convert it with images.to(torch.float32)"),
        (
            torch.full((2, 3, 8, 8), torch.inf),
            "images holds NaN or infinite pixels in 2 of 2 images, the first at index 0",
        ),
        (np.zeros((1, 3, 8, 8)), "images is a ndarray, not a tensor; convert it with torch.as_tensor(images)."),
        (None, "images is a NoneType, not a tensor"),
    ],
)
def test_calling(images, says):
    model = vt.build("vit", **TINY)
    with pytest.raises(vt.InputError) as caught:
        model(images)
    assert says in str(caught.value)


def test_one_bad_pixel_is_found():
    images = torch.zeros(5, 3, 8, 8)
    images[3, 2, 7, 7] = torch.nan
    with pytest.raises(vt.InputError, match="in 1 of 5 images, the first at index 3"):
        vt.build("vit", **TINY)(images)


def test_huge_finite_pixels_are_no_mistake():
    images = torch.full((1, 3, 8, 8), 1e37)  # whose sum is infinite
    assert images.sum().isinf()
    vt.build("vit", **TINY, stem="patch-norm")(images)


def test_autocast_may_mix_types():
    model = vt.build("vit", **TINY)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.zeros(1, 3, 8, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_transformed_model_is_not_in_the_way():
    """Per-sample gradients through vmap, where values cannot be looked at."""
    model = vt.build("vit", **TINY)
    parameters = dict(model.named_parameters())

    def loss(parameters, image):
        return torch.func.functional_call(model, parameters, image[None]).square().sum()

    images = torch.randn(3, 3, 8, 8)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, images)
    alone = torch.func.grad(loss)(parameters, images[1])
    torch.testing.assert_close(each["head.logits.weight"][1], alone["head.logits.weight"])


def test_names_may_be_written_in_capitals():
    with torch.device("meta"):
        assert vt.build("ViT-B/16").config == vt.build("vit-b/16").config


def test_a_config_is_frozen_and_complete():
    config = vt.build("vit", **TINY).config
    with pytest.raises(ValueError, match="frozen"):
        config.width = 7
    assert vt.build("vit", **config.model_dump()).config == config
    assert config.hidden == 48


def test_a_preset_s_hidden_width_follows_another_width():
    with torch.device("meta"):
        assert vt.build("vit-pico/2", width=32).config.hidden == 64
        assert vt.build("vit-pico/2", width=64).config == vt.build("vit-pico/2").config
        assert vt.build("vit-pico/2", width=32, hidden=50).config.hidden == 50
