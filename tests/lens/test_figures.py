"""The paper's figures against scikit-learn's own analysis."""

import numpy as np
import pytest
import torch
from copying import randomise
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

import vitrail as vt
from vitrail.lens import attention_distance, filter_components, position_bias, position_similarity, uniform_distance

SHAPE = {"image": (12, 20), "patch": 4, "width": 24, "depth": 1, "heads": 3, "classes": 7}


def vit(**fields):
    return randomise(vt.build("vit", **{**SHAPE, **fields}))


def test_filters_are_the_principal_components():
    model = vit()
    found, shares = filter_components(model, 5)
    theirs = PCA(5).fit(model.embed.stem.projection.weight.detach().numpy())
    assert found.shape == (5, 3, 4, 4)
    cosines = np.abs((found.flatten(1).numpy() * theirs.components_).sum(1))
    np.testing.assert_allclose(cosines, 1, atol=1e-4)
    np.testing.assert_allclose(shares, theirs.explained_variance_ratio_, rtol=1e-4)


@pytest.mark.parametrize("position", ["learned", "learned2d", "sincos2d", "sinusoidal"])
@pytest.mark.parametrize("pool", ["class", "mean"])
def test_positions_are_as_alike_as_scikit_learn_says(position, pool):
    model = vit(position=position, pool=pool)
    found = position_similarity(model)
    zeros = torch.zeros(1, model.config.prefix + 15, 24)
    added = model.embed.position(zeros, (3, 5))[0, model.config.prefix :].detach().numpy()
    assert found.shape == (3, 5, 3, 5)
    np.testing.assert_allclose(found.flatten(2).flatten(0, 1), cosine_similarity(added), atol=1e-5)


def test_turned_positions_are_as_alike_as_the_cosines_of_their_angles():
    """R_s 1 . R_t 1 is the mean of cos((t - s) / 10000^(2i/d)) over the planes."""
    model = vit(position="rotary", heads=2)
    found = position_similarity(model).flatten(2).flatten(0, 1)
    away = np.subtract.outer(np.arange(15), np.arange(15))
    planes = 10_000 ** -(np.arange(0, 12, 2) / 12)
    np.testing.assert_allclose(found, np.cos(away[..., None] * planes).mean(-1), atol=1e-5)


def test_relative_positions_are_shown_as_attention_adds_them():
    model = vit(position="relative", pool="class")
    shown = position_bias(model)
    added = model.embed.position.mask((3, 5), 1).bias[0, :, 1:, 1:].mean(0)
    torch.testing.assert_close(shown.flatten(2).flatten(0, 1), added)
    assert shown[1, 1, 1, 2] == shown[0, 3, 0, 4] != shown[1, 1, 1, 0]
    with pytest.raises(vt.InputError, match="adds nothing to the scores"):
        position_bias(vit(position="learned"))


def test_what_has_no_such_figure():
    with pytest.raises(vt.InputError, match="adds nothing"):
        position_similarity(vit(position="relative"))
    with pytest.raises(vt.InputError, match="stem='conv' has no filters"):
        filter_components(vit(stem="conv"))


def test_the_distance_of_a_head_that_looks_everywhere():
    model = vit()
    images = torch.rand(2, 3, 12, 20)
    with vt.edit(model) as edits:
        edits.pattern(None, lambda a: torch.full_like(a, 1 / a.shape[-1]))
        found = attention_distance(model, images)
    torch.testing.assert_close(found, torch.full((1, 2, 3), uniform_distance((3, 5), 4)))
