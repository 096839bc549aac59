"""What a head reads: each pooling against its formula, through weights made for another, and in the lens."""

import pytest
import torch
from drawing import numbers

import vitrail as vt
from vitrail.errors import InputError
from vitrail.families.costs import cost
from vitrail.lens.decomposition import writes
from vitrail.weights.weights import Weights

SHAPE = {"image": 16, "patch": 4, "width": 32, "depth": 3, "heads": 2}
READS = [{"pool": "both"}, {"pool": "both", "last": 3, "registers": 2}, {"pool": "class", "last": 2}, {"pool": "mean"}]


def made(**fields):
    torch.manual_seed(0)
    model = vt.build("vit", **SHAPE, classes=5, **fields).eval()
    with torch.no_grad():
        model.head.logits.weight.normal_()
    return model


def named(fields):
    return " ".join(f"{name}={value}" for name, value in fields.items())


@pytest.mark.parametrize("fields", READS, ids=named)
def test_the_head_is_given_class_tokens_of_the_last_layers_and_the_mean(fields):
    model, images = made(**fields), numbers(2, 3, 16, 16).float()
    after, x = [], model.embed(images)
    for block in model.blocks:
        x = block(x)
        after.append(model.norm(x))
    first = model.config.prefix + model.config.registers
    parts = [] if fields["pool"] == "mean" else [x[:, 0] for x in after[-fields.get("last", 1) :]]
    parts += [] if fields["pool"] == "class" else [after[-1][:, first:].mean(1)]
    assert torch.allclose(model.pooled(images), torch.cat(parts, 1), atol=1e-6)
    assert torch.allclose(model(images), model.head(torch.cat(parts, 1)), atol=1e-5)
    assert torch.allclose(model(images, shortest=True), model(images), atol=1e-5)


@pytest.mark.parametrize("fields", READS, ids=named)
def test_its_logits_are_the_sum_of_what_was_written(fields):
    model, images = made(**fields), numbers(2, 3, 16, 16).float()
    assert torch.allclose(writes(model, images).logits, model(images), atol=1e-4)


@pytest.mark.parametrize("fields", READS, ids=named)
def test_it_costs_what_is_counted(fields):
    config = made(**fields).config
    assert config.cost() == cost(config)


@pytest.mark.parametrize("pool", ["mean", "both"])
def test_weights_for_another_pooling_give_the_same_tokens(pool):
    model, images = made(registers=2), numbers(2, 3, 16, 16).float()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights = Weights("here", "vitrail", "vit", model.config, state).adapted(pool=pool, classes=3, head="fresh")
    tokens = model.features(images)
    expected = [tokens[:, 0]] * (pool == "both") + [tokens[:, 3:].mean(1)]
    assert torch.allclose(weights.model().pooled(images), torch.cat(expected, 1), atol=1e-5)
    assert weights.config.registers == (3 if pool == "mean" else 2)


def test_a_mean_has_no_class_token_to_give_back():
    model = made(pool="mean")
    weights = Weights("here", "vitrail", "vit", model.config, model.state_dict())
    with pytest.raises(InputError, match="pool='class' cannot be had from weights with 'mean'"):
        weights.adapted(pool="class")


@pytest.mark.parametrize("fields", [{"pool": "mean", "last": 2}, {"pool": "both", "last": 4}, {"last": 0}])
def test_what_cannot_be_read(fields):
    with pytest.raises(InputError, match="last="):
        made(**fields)


def test_a_run_s_own_format_keeps_it(tmp_path):
    model, images = made(pool="both", last=2), numbers(1, 3, 16, 16).float()
    vt.save(model, tmp_path / "run")
    assert torch.equal(vt.load(tmp_path / "run")(images), model(images))
    with pytest.raises(InputError, match="pool='both'"):
        vt.save(model, tmp_path / "x.safetensors", format="timm")
