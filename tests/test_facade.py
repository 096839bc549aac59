"""What ``import vitrail as vt`` offers."""

import pytest

import vitrail as vt


def test_the_contract():
    for name in vt.__all__:
        assert getattr(vt, name) is not None
    assert set(vt.__all__) <= set(dir(vt))
    assert callable(vt.models)
    assert vt.models("vit-b*") == ["vit-b/16", "vit-b/32"]


def test_models_stays_a_function_whatever_is_imported():
    import vitrail.families
    import vitrail.runs
    import vitrail.training

    assert vitrail.families.models is vt.models
    assert callable(vt.models)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'bild'"):
        vt.bild  # noqa: B018
