"""Changing what happens inside: what was asked for, in what follows and in what is recorded, and nothing afterwards."""

import pytest
import torch
from drawing import FULL, numbers
from torch import nn

import vitrail as vt
from vitrail.core import positions

SHAPE = {"image": (12, 20), "patch": 4, "channels": 3, "width": 24, "depth": 3, "heads": 3, "hidden": 29, "classes": 7}
every_kernel = pytest.mark.parametrize("kernel", FULL)


def vit(**fields):
    return vt.build("vit", **{**SHAPE, **fields}).double().eval()


def images():
    return numbers(2, 3, 12, 20)


@every_kernel
@pytest.mark.parametrize("position", sorted(positions))
def test_a_pattern_put_back_as_it_was_changes_nothing(kernel, position):
    model = vit(kernel=kernel, position=position)
    before = model(images())
    with vt.edit(model) as edits:
        edits.pattern(None, lambda a: a)
        torch.testing.assert_close(model(images()), before)
    assert torch.equal(model(images()), before)


@every_kernel
def test_a_changed_pattern_is_what_the_values_are_weighed_by(kernel):
    model = vit(kernel=kernel)
    with vt.edit(model) as edits, vt.record(model) as trace:
        edits.pattern(1, lambda a: a.flip(-1))
        model(images())
    with vt.record(model) as plain:
        model(images())
    torch.testing.assert_close(trace.pattern(0), plain.pattern(0))
    torch.testing.assert_close(trace.pattern(1), plain.pattern(1).flip(-1))
    torch.testing.assert_close(trace.z(1), plain.pattern(1).flip(-1) @ plain.v(1))
    assert not torch.allclose(trace.residual()[-1], plain.residual()[-1])


def test_recording_around_an_edit_sees_it_too():
    model = vit()
    with vt.record(model) as trace:
        model(images())
        with vt.edit(model) as edits:
            edits.pattern(0, torch.zeros_like)
            model(images())
    assert trace.pattern(0, call=0).sum() > 0
    assert trace.pattern(0, call=1, heads=1, rows=[2, 3]).sum() == 0
    assert trace.pattern(0, call=1, heads=1, rows=[2, 3]).shape == (2, 1, 2, 16)
    assert trace.z(0).abs().sum() == 0


def test_a_silent_head_is_one_whose_columns_of_the_output_matrix_are_zero():
    model = vit()
    with vt.edit(model) as edits:
        edits.silence("encoder.1.attention", heads=[0, 2])
        edited = model(images())
    with torch.no_grad():
        weight = model.encoder[1].attention.f.out.weight
        weight[:, :8] = 0
        weight[:, 16:] = 0
    torch.testing.assert_close(edited, model(images()))


def test_what_a_head_reads_can_be_put_in_from_another_picture():
    """With every head's reading from another picture in every layer only the stream it began with is its own."""
    model = vit()
    with vt.record(model) as trace:
        model(images().flip(0))
    with vt.edit(model) as edits, vt.record(model) as changed:
        edits.z(2, lambda _: trace.z(2))
        model(images())
    torch.testing.assert_close(changed.heads(2), trace.heads(2))


def test_edits_within_edits_are_taken_back_one_by_one():
    model = vit()
    before = model(images())
    with vt.edit(model) as outer:
        outer.silence(0, 1)
        alone = model(images())
        with vt.edit(model) as inner:
            inner.silence(0, 2)
            both = model(images())
        torch.testing.assert_close(model(images()), alone, rtol=0, atol=0)
    torch.testing.assert_close(model(images()), before, rtol=0, atol=0)
    with vt.edit(model) as edits:
        edits.silence(0, [1, 2])
        torch.testing.assert_close(model(images()), both)


def test_edits_of_all_kinds_within_each_other():
    """A pattern changed within does not undo what was silenced around it, and the other way round."""
    model = vit()
    before = model(images())
    with vt.edit(model) as alone:
        alone.pattern(0, lambda a: a.flip(-1))
        alone.silence(0, [0, 1])
        both = model(images())
    with vt.edit(model) as outer, vt.edit(model) as inner:
        outer.silence(0, [0, 1])
        inner.pattern(0, lambda a: a.flip(-1))
        torch.testing.assert_close(model(images()), both)
    with vt.edit(model) as outer:
        outer.pattern(0, lambda a: a.flip(-1))
        with vt.edit(model) as inner:
            inner.silence(0, 1)
            outer.silence(0, 0)  # through the outer one, while the inner one is there
            torch.testing.assert_close(model(images()), both)
        outer.silence(0, 1)
        torch.testing.assert_close(model(images()), both)
    assert torch.equal(model(images()), before)


def test_nothing_is_left_behind_after_an_exception():
    model = vit()
    before = model(images())
    with pytest.raises(vt.InputError, match="channels"), vt.edit(model) as edits:  # noqa: PT012
        edits.pattern(None, torch.zeros_like)
        model(torch.zeros(1, 5, 12, 20))
    assert torch.equal(model(images()), before)
    kernel = model.encoder[0].attention.f.kernel
    assert not {"forward", "pattern", "rowwise", "changed"} & vars(kernel).keys()


def test_the_shortest_way_is_edited_alike():
    model = vit()
    with vt.edit(model) as edits:
        edits.pattern(-1, lambda a: a.roll(1, 2))
        torch.testing.assert_close(model(images(), shortest=True), model(images()))


def test_the_slope_by_a_pattern_is_had():
    model, kept = vit(), []
    with vt.edit(model) as edits:
        edits.pattern(0, lambda a: kept.append(a) or a)
        logits = model(images())
    (slope,) = torch.autograd.grad(logits.sum(), kept)
    assert slope.shape == kept[0].shape
    assert slope.abs().sum() > 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda edits: edits.pattern(9, lambda a: a), "attention site 9 is not known"),
        (lambda edits: edits.pattern("encoder.7.attention", lambda a: a), "is not known; did you mean"),
        (lambda edits: edits.silence(0, 3), "heads=3 is not there; there are 3"),
        (lambda edits: edits.pattern(0, lambda a: a[:, :1]), "not a tensor of shape"),
        (lambda edits: edits.z(0, lambda _: None), "gave NoneType"),
    ],
)
def test_mistakes(change, sentence):
    model = vit()
    with pytest.raises(vt.InputError, match=sentence), vt.edit(model) as edits:  # noqa: PT012
        change(edits)
        model(images())


def test_a_model_without_attention():
    with pytest.raises(vt.InputError, match="no attention"), vt.edit(nn.Linear(2, 2)) as edits:
        edits.pattern(None, lambda a: a)
