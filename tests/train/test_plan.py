"""What is chosen from the data, and that anything given is kept."""

import pytest

from vitrail.families import configure
from vitrail.recipe import Recipe, read_recipe
from vitrail.train.plan import Facts, choose


@pytest.mark.parametrize("pictures", [20, 900, 12_000, 1_000_000])
@pytest.mark.parametrize("size", [(5, 5), (8, 8), (28, 28), (32, 32), (480, 640), (4000, 3000)])
@pytest.mark.parametrize("grey", [True, False])
def test_every_choice_is_a_model_and_a_recipe(pictures, size, grey):
    recipe, choices = choose(Recipe(), Facts(pictures, 7, size, grey))
    fields = dict(recipe.model)
    config = configure(fields.pop("name"), classes=7, **fields)
    assert config.channels == (1 if grey else 3)
    assert config.size[0] <= max(64, min(size))
    assert {choice.field for choice in choices} >= {"model.width", "train.epochs", "optim.name", "augment.flip"}
    assert all(choice.why for choice in choices if choice.field != "model.name")


def test_what_is_given_is_kept():
    recipe = read_recipe("digits", ["train.epochs=3", "augment.flip=0.25"])
    filled, choices = choose(recipe, Facts(1437, 10, (8, 8), grey=True))
    assert filled.train.epochs == 3
    assert filled.augment.flip == 0.25
    assert filled.model == recipe.model
    assert filled.optim == recipe.optim
    assert not {"train.epochs", "augment.flip", "model.width", "optim.name"} & {choice.field for choice in choices}


def test_a_named_model_keeps_its_shape():
    filled, _ = choose(Recipe(model={"name": "vit-ti/16"}), Facts(5000, 10, (300, 300), grey=False))
    assert filled.model == {"name": "vit-ti/16"}
