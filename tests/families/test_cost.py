"""The formula of what a model costs, against PyTorch's own counter of multiply-adds."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vitrail as vt
from vitrail.core import activations, kernels, norms, positions, stems
from vitrail.errors import InputError
from vitrail.families import ViTConfig, cost
from vitrail.families.catalogue import price
from vitrail.families.model import configure
from vitrail.families.parts import KERNELS, TAKES
from vitrail.families.vit.cost import RESNETS


@pytest.mark.parametrize("name", vt.models())
def test_of_every_preset(name):
    assert price(name) == cost(configure(name))


def test_presets_are_what_the_checks_make_of_them():
    """The list of models takes them unchecked."""
    from vitrail.families.catalogue import shape

    for name in vt.models():
        assert shape(name) == configure(name)


@st.composite
def shapes(draw):
    heads, head, depth = draw(st.integers(1, 3)), draw(st.sampled_from([4, 8])), draw(st.integers(1, 3))
    stem = draw(st.sampled_from(["patch", "patch-norm", *RESNETS]))
    patch = 32 if stem in RESNETS else draw(st.integers(2, 5))
    pool = draw(st.sampled_from(["class", "mean", "distilled"]))
    by_layer = st.lists(st.integers(0, 3), min_size=depth, max_size=depth).filter(any)
    fields = {
        "heads": draw(st.one_of(st.just(heads), by_layer)),
        "hidden": draw(st.one_of(st.integers(1, 20), by_layer)),
        "head": draw(st.sampled_from([head, head + 1])),
        "rank": draw(st.sampled_from([None, 3])),
        "image": (patch * draw(st.integers(1, 3)), patch * draw(st.integers(1, 3))),
        "prelogits": 0 if pool == "distilled" else draw(st.sampled_from([0, 7])),
        "tokens": draw(st.sampled_from([0, 0, 3])),
        "position": draw(st.sampled_from(list(positions))),
        "kernel": draw(st.sampled_from([*KERNELS, {"name": "softmax", "scale": 0.5}])),
        "activation": draw(st.sampled_from(list(TAKES))),
        "norm": draw(st.sampled_from(list(norms))),
        "order": draw(st.sampled_from(["pre", "post"])),
        "layer_scale": draw(st.sampled_from([None, 0.1])),
        "bias": draw(st.booleans()),
        "registers": draw(st.integers(0, 2)),
        "classes": draw(st.integers(0, 3)),
        "channels": draw(st.sampled_from([1, 3])),
    }
    if fields["position"] == "relative" and (fields["tokens"] or isinstance(fields["heads"], list)):
        fields["position"] = "none"
    if fields["position"] == "rotary":
        fields["head"] = head
    return ViTConfig(width=head * heads, depth=depth, patch=patch, pool=pool, stem=stem, **fields)


@given(shapes())
def test_of_any_shape(config):
    assert config.cost() == cost(config)


def test_what_has_no_formula_is_counted(monkeypatch):
    from vitrail.families import presets

    monkeypatch.setitem(presets._held, "early", (ViTConfig, configure("vit-pico/2", stem="early").model_dump()))
    assert configure("early").cost() is None
    assert price("early") == cost(configure("early"))


def test_the_formulas_know_every_part_but_two_stems():
    assert set(KERNELS) < set(kernels)  # the others are counted
    assert set(activations) == set(TAKES)
    assert set(stems) - {"patch", "patch-norm", *RESNETS} == {"conv", "early"}


def test_a_preset_is_replaced_also_before_any_was_asked_for():
    script = (
        "from vitrail.families.catalogue import models, presets, Shape\n"
        "presets.add('vit-b/16', replace=True)((Shape, {}))\n"
        "assert len(models()) > 10 and presets['vit-b/16'][0] is Shape\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_name_is_not_taken_twice():
    from vitrail.registry import Registry

    registry = Registry("thing")
    registry.add("one")(1)
    with pytest.raises(InputError, match="thing 'one' is there already"):
        registry.add("one")(2)
    assert registry["one"] == 1
    registry.add("one", replace=True)(3)
    assert registry["one"] == 3
