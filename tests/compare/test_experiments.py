"""The experiments that have a name compare what they say, and nothing else."""

import pytest
import torch
from torch import nn

import vitrail as vt
from vitrail.compare.plan import _flat, planned
from vitrail.compare.request import Request
from vitrail.core import LayerNorm
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks


def models(name, *settings):
    """The model of each arm, as its cell would have it."""
    plan = planned(Request((name, "digits"), seeds=1, settings=settings))
    for cell, table in plan.tables.items():
        task = tasks["pictures"].prepare(parse_recipe(table))
        yield cell.arm.name, vt.build(table["model"].get("name", "vit"), **task.config.model_dump())


def test_arms_of_norms_have_no_norms_but_their_own():
    """Also where the recipe's own model has convolutions, which come with batch norms."""
    for name, model in models("norms"):
        other = LayerNorm if name.startswith("Batch") else nn.modules.batchnorm._BatchNorm
        assert not [one for one in model.modules() if isinstance(one, other)], name


def test_without_positions_a_vit_does_not_know_where_its_patches_are():
    """Pictures whose patches have changed places get the same answer from the arm without positions alone."""
    x = torch.rand(3, 1, 8, 8)
    moved = torch.cat([x[..., 4:, :], x[..., :4, :]], 2)
    for name, model in models("positions"):
        for parameter in model.parameters():
            parameter.data.normal_(std=0.3)
        with torch.no_grad():
            same = torch.allclose(model.eval()(x), model(moved), atol=1e-4)
        assert same == (name == "none"), name


def test_what_someone_sets_goes_before_what_an_experiment_has_for_all():
    stems = {model.config.stem for _, model in models("positions", "model.stem=early")}
    assert stems == {"early"}


def test_another_model_is_begun_with_none_of_the_recipes_fields():
    """--set model.name, as --model of a training; and pictures of one size for all that are compared."""
    asked = Request(("digits",), seeds=1, vary=("optim.lr=1e-3,1e-2",), settings=("model.name=cnn", "model.image=12"))
    tables = list(planned(asked).tables.values())
    assert [(table["model"]["name"], table["model"]["image"]) for table in tables] == 2 * [("cnn", 12)]
    assert not {"stem", "depth"} & set(tables[0]["model"])
    varied = planned(Request(("digits",), seeds=1, vary=("model.name=vit,cnn",), settings=("model.image=12",)))
    assert [table["model"]["image"] for table in varied.tables.values()] == [12, 12]


@pytest.mark.parametrize("name", ["positions", "norms", "kernels", "patches", "heads", "depth", "augment"])
def test_arms_differ_in_what_is_compared_alone(name):
    """Of the recipes of one seed at one place, all but a few fields are the same."""
    allowed = {
        "positions": {"model.position"},
        "norms": {"model.norm", "model.order"},
        "kernels": {"model.kernel"},
        "patches": {"model.patch"},
        "heads": {"model.heads"},
        "depth": {"model.depth"},
        "augment": {"augment." + one for one in ("shift", "rotate", "zoom", "mixup", "cutmix")},
    }[name]
    plan = planned(Request((name, "digits"), seeds=1))
    for at in plan.axis.values:
        flat = [
            {field: repr(value) for field, value in _flat(table).items()}
            for cell, table in plan.tables.items()
            if cell.at == at
        ]
        names = set().union(*flat)
        assert {one for one in names if len({table.get(one) for table in flat}) > 1} <= allowed
