"""What is chosen from the data, and that anything given is kept."""

import pytest

from vitrail.errors import InputError
from vitrail.families import configure
from vitrail.tasks import read_recipe
from vitrail.tasks.pictures.choices import Facts, choose
from vitrail.tasks.pictures.recipe import PictureRecipe
from vitrail.weights import Weights


@pytest.mark.parametrize("pictures", [20, 900, 12_000, 1_000_000])
@pytest.mark.parametrize("size", [(5, 5), (8, 8), (28, 28), (32, 32), (480, 640), (4000, 3000)])
@pytest.mark.parametrize("grey", [True, False])
def test_every_choice_is_a_model_and_a_recipe(pictures, size, grey):
    recipe, choices = choose(PictureRecipe(), Facts(pictures, 7, size, grey))
    fields = dict(recipe.model)
    config = configure(fields.pop("name"), classes=7, **fields)
    assert config.channels == (1 if grey else 3)
    assert config.size[0] <= max(64, min(size))
    assert {choice.field for choice in choices} >= {"model.width", "train.epochs", "optim.name", "augment.flip"}
    assert all(choice.why for choice in choices)


def test_what_is_given_is_kept():
    recipe = read_recipe("digits", ["train.epochs=3", "augment.flip=0.25"])
    filled, choices = choose(recipe, Facts(1437, 10, (8, 8), grey=True))
    assert filled.train.epochs == 3
    assert filled.augment.flip == 0.25
    assert filled.model == recipe.model
    assert filled.optim == recipe.optim
    assert not {"train.epochs", "augment.flip", "model.width", "optim.name"} & {choice.field for choice in choices}


def test_a_named_model_keeps_its_shape():
    filled, _ = choose(PictureRecipe(model={"name": "vit-ti/16"}), Facts(5000, 10, (300, 300), grey=False))
    assert filled.model == {"name": "vit-ti/16"}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"width": 192}, {"hidden": 384, "heads": 6}),
        ({"width": 100}, {"heads": 2, "hidden": 200}),
        ({"patch": 7, "image": 28}, {"stem": "patch"}),
        ({"image": 224}, {"patch": 16}),
        ({"image": [32, 64]}, {"patch": 4}),
    ],
)
def test_choices_fit_what_is_given(given, chosen):
    filled, _ = choose(PictureRecipe(model=given), Facts(5000, 10, (300, 300), grey=False))
    fields = dict(filled.model)
    assert fields | chosen | given == fields
    configure(fields.pop("name"), classes=10, **fields)


def test_few_pictures_are_mixed_and_many_are_not():
    few, many = (choose(PictureRecipe(), Facts(count, 10, (28, 28), grey=True))[0].augment for count in (960, 60_000))
    assert (few.mixup, few.cutmix, few.zoom) == (0.5, 0.5, 0.1)
    assert (many.mixup, many.cutmix, many.zoom) == (0.0, 0.0, 0.0)
    digits = choose(read_recipe("digits"), Facts(1437, 10, (8, 8), grey=True))[0].augment
    assert (digits.mixup, digits.cutmix) == (0.0, 0.0)  # as the recipe says


def test_the_rate_is_the_optimizer_s():
    facts = Facts(5000, 10, (300, 300), grey=False)
    assert choose(PictureRecipe(), facts)[0].optim.lr == 2e-3
    assert choose(read_recipe("digits", ["optim.name=adamw"]), facts)[0].optim.lr == 2e-3  # which the recipe says
    assert choose(PictureRecipe(optim={"name": "adamw"}), facts)[0].optim.lr == 1e-3


def test_another_model_has_none_of_the_recipe_s_fields():
    recipe = read_recipe("fashion", ["model.depth=3"], model={"name": "vit-nano/4"})
    assert recipe.model == {"name": "vit-nano/4", "depth": 3}


@pytest.mark.parametrize(
    ("pictures", "width", "frozen"), [(30, 192, True), (100, 192, True), (110, 192, False), (30, 96, False)]
)
def test_few_pictures_train_the_head_alone_of_large_weights(pictures, width, frozen):
    config = configure("vit", image=32, patch=8, width=width, depth=2, heads=3)
    weights = Weights("some", "hf", "vit", config, {})
    how = {"weights": weights, "pace": 1e11 if width >= 192 else None}
    filled, choices = choose(PictureRecipe(), Facts(pictures, 10, (300, 300), grey=False, **how))
    assert filled.weights.freeze is frozen
    (said,) = (choice.why for choice in choices if choice.field == "weights.freeze")
    assert ("the head alone learns" in said) is frozen
    assert choose(PictureRecipe(weights={"freeze": not frozen}), Facts(pictures, 10, (9, 9), grey=True, **how))[
        0
    ].weights.freeze is (not frozen)


def test_testing_takes_no_longer_than_training():
    often, seldom = (
        choose(PictureRecipe(), Facts(50, 10, (28, 28), grey=True, tests=tests))[0] for tests in (10, 1_200)
    )
    assert often.train.evaluate == round(often.train.epochs / 40)
    assert seldom.train.evaluate == 24


def test_rates_by_layer_are_adamw_s():
    config = configure("vit", image=32, patch=8, width=96, depth=2, heads=3)
    facts = Facts(900, 10, (32, 32), grey=False, weights=Weights("some", "hf", "vit", config, {}))
    assert choose(PictureRecipe(), facts)[0].optim.layer_decay == 0.75
    assert choose(PictureRecipe(optim={"name": "muon"}), facts)[0].optim.layer_decay == 1
    with pytest.raises(InputError, match=r"optim\.layer_decay=0\.8 is of AdamW alone; add optim\.name=adamw"):
        read_recipe("fashion", ["optim.layer_decay=0.8"])


def test_few_steps_have_a_lower_rate():
    """All layers of large weights, in so few steps that nothing would mend what the first ones spoil."""
    config = configure("vit", image=32, patch=8, width=192, depth=2, heads=3, classes=10)
    weights = Weights("some", "hf", "vit", config, {})
    facts = Facts(168, 10, (32, 32), grey=False, weights=weights, pace=1e12)
    for epochs, rate in ((1, 4.5e-5), (5, 2.25e-4), (7, 3e-4), (20, 3e-4)):
        filled, _ = choose(PictureRecipe(train={"epochs": epochs}, weights={"freeze": False}), facts)
        assert filled.optim.lr == pytest.approx(rate)
    assert choose(PictureRecipe(optim={"lr": 0.1}, weights={"freeze": False}), facts)[0].optim.lr == 0.1


def test_wide_weights_learn_in_bf16_where_the_processor_multiplies_in_it():
    """And so for more epochs, or at a larger size, in the same time."""
    wide, narrow = (
        Weights("some", "hf", "vit", configure("vit", image=224, patch=16, width=width, depth=2, heads=3), {})
        for width in (192, 96)
    )

    def filled(weights, *, bf16, **given):
        pace = 4e9 if weights is wide else None
        facts = Facts(500, 5, (300, 300), grey=False, tests=100, weights=weights, pace=pace, bf16=bf16)
        return choose(PictureRecipe(**given), facts)[0]

    half, whole = (filled(wide, bf16=bf16) for bf16 in (True, False))
    assert (half.train.precision, whole.train.precision) == ("bf16", "float32")
    looked = [one.train.epochs * one.model["image"] ** 2 for one in (half, whole)]
    assert looked[0] > 1.3 * looked[1]
    assert filled(wide, bf16=True, train={"precision": "float32"}).train == whole.train.model_copy(
        update={"precision": "float32"}
    )
    assert filled(narrow, bf16=True).train.precision == "float32"
    assert choose(PictureRecipe(), Facts(500, 5, (300, 300), grey=False, bf16=True))[0].train.precision == "float32"
