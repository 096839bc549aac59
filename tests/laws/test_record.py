"""Looking inside changes nothing and leaves nothing behind."""

import pytest
import torch
import torch.nn.functional as F
from drawing import FULL, numbers
from torch import nn

import vitrail as vt
from vitrail.core import BareAttention, kernels, positions

SHAPE = {"image": (12, 20), "patch": 4, "channels": 3, "width": 24, "depth": 2, "heads": 3, "hidden": 29, "classes": 7}


def vit(**fields):
    return vt.build("vit", **{**SHAPE, **fields}).eval()


def images(seed=0):
    return numbers(2, 3, 12, 20, seed=seed, dtype=torch.float32)


def hooks(model):
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._forward_hooks_with_kwargs) for m in model.modules()
    )


@pytest.mark.parametrize("kernel", FULL)
@pytest.mark.parametrize("position", sorted(positions))
def test_the_output_is_bit_identical(kernel, position):
    model = vit(kernel=kernel, position=position)
    before = model(images())
    with vt.record(model):
        during = model(images())
    assert torch.equal(before, during)
    assert torch.equal(before, model(images()))


def test_the_fused_kernel_still_runs(monkeypatch):
    calls = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k))
    model = vit()
    with vt.record(model) as trace:
        model(images())
    assert len(calls) == 2
    trace.pattern(0)
    assert len(calls) == 2, "a pattern is derived from q and k, and the model does not run again"


def test_no_hook_is_left_behind():
    model = vit()
    with vt.record(model) as trace:
        assert hooks(model) > 0
        model(images())
    assert hooks(model) == 0
    model(images())
    assert trace.calls() == 1


def test_no_hook_is_left_behind_after_an_exception():
    model = vit()
    with pytest.raises(vt.InputError, match="channels"), vt.record(model):
        model(torch.zeros(1, 5, 12, 20))
    assert hooks(model) == 0


def test_calls_are_kept_in_order():
    model = vit()
    with vt.record(model) as trace:
        for seed in range(3):
            model(images(seed))
    assert trace.calls() == 3
    for seed in range(3):
        with vt.record(model) as alone:
            model(images(seed))
        assert torch.equal(trace.q(0, call=seed), alone.q(0))
        assert torch.equal(trace.residual(call=seed), alone.residual())
    assert torch.equal(trace.pattern(1), trace.pattern(1, call=2)), "the last call is the default"


@pytest.mark.parametrize("kernel", FULL)
@pytest.mark.parametrize("position", sorted(positions))
def test_what_is_recorded_fits_together(kernel, position):
    """z == A v with the A that is derived, and the pattern in part is a part of the pattern."""
    model = vit(kernel=kernel, position=position, registers=1)
    with vt.record(model) as trace:
        model(images())
    assert trace.names() == ["encoder.0.attention", "encoder.1.attention"]
    for name in trace.names():
        pattern = trace.pattern(name)
        assert pattern.shape == (2, 3, 17, 17)
        torch.testing.assert_close(pattern @ trace.v(name), trace.z(name), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(trace.pattern(name, heads=[2, 0], rows=5), pattern[:, [2, 0]][:, :, [5]])
        torch.testing.assert_close(trace.pattern(name, rows=slice(1, 4)), pattern[:, :, 1:4])
        torch.testing.assert_close(trace.heads(name, heads=1, rows=0), trace.heads(name)[:, 1:2, :1])


def test_features_are_recorded_too():
    model = vit()
    with vt.record(model) as trace:
        model.features(images())
    assert trace.calls() == 1


def test_two_records_at_once():
    model = vit()
    with vt.record(model) as outer:
        model(images())
        with vt.record(model) as inner:
            model(images(1))
    assert (outer.calls(), inner.calls()) == (2, 1)
    assert hooks(model) == 0


def test_looking_within_the_block_records_nothing_more():
    """Deriving a pattern the default way runs the kernel, which must not count as a call of the model."""
    model = vit()
    with vt.record(model) as trace:
        model(images())
        kernels["softmax"].__mro__[1].pattern(model.encoder[0].attention.f.kernel, trace.q(0), trace.k(0))
        trace.pattern(0)
    assert trace.calls() == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_can_be_recorded(in_place):
    """Also when it was compiled, and called, before; it stays compiled."""
    torch._dynamo.reset()
    model = vit()
    expected = model(images())
    compiled = model if in_place else torch.compile(model, backend="aot_eager")
    if in_place:
        model.compile(backend="aot_eager")
    with torch.inference_mode():
        compiled(images())
        with vt.record(compiled) as trace:
            during = compiled(images())
        torch.testing.assert_close(compiled(images()), expected)
    torch.testing.assert_close(during, expected)
    assert trace.names() == ["encoder.0.attention", "encoder.1.attention"]
    assert trace.pattern(0).shape == (2, 3, 16, 16)
    assert hooks(model) == 0


def test_gradients_reach_what_was_recorded():
    model = vit()
    with vt.record(model) as trace:
        loss = model(images()).sum()
    (gradient,) = torch.autograd.grad(loss, trace.z(0))
    assert gradient.abs().max() > 0


def test_mistakes_get_a_sentence():
    model = vit()
    with vt.record(model) as trace:
        with pytest.raises(vt.InputError, match="call the model inside the with block"):
            trace.pattern(0)
        model(images())
    with pytest.raises(vt.InputError, match=r"did you mean 'encoder\.0\.attention'"):
        trace.pattern("encoder.0.atention")
    with pytest.raises(vt.InputError, match="heads=3 is not there; there are 3"):
        trace.pattern(0, heads=3)
    with pytest.raises(vt.InputError, match="it was passed 1 times"):
        trace.q(0, call=1)
    with pytest.raises(vt.InputError, match="no sublayer within 'decoder'"):
        trace.residual("decoder")


def test_attention_without_parameters_is_recorded_too():
    model = nn.Sequential(BareAttention())
    x = numbers(2, 5, 7)
    with vt.record(model) as trace:
        model(x)
    torch.testing.assert_close(trace.pattern("0") @ x[:, None], trace.z("0"))
    with pytest.raises(vt.InputError, match="no output matrix"):
        trace.heads("0")


def test_one_part_of_the_stream():
    model = vit(depth=12)
    with vt.record(model) as trace:
        model(images())
    assert torch.equal(trace.residual("encoder.1"), trace.residual()[2:5]), "and not layers 10 and 11"


def test_a_stream_with_dropped_layers_is_not_pieced_together():
    model = vit(layer_drop=0.5, depth=6).train()
    with vt.record(model) as trace:
        for _ in range(4):
            model(images())
    with pytest.raises(vt.InputError, match="record one call at a time"):
        trace.residual()


def test_a_kernel_alone_is_recorded_too():
    kernel = kernels["softmax"]()
    q = numbers(2, 3, 5, 7)
    with vt.record(kernel) as trace:
        z = kernel(q, q, q)
    torch.testing.assert_close(trace.pattern("attention", heads=torch.tensor(1)) @ q[:, 1:2], z[:, 1:2])
