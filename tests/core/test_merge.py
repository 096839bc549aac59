"""Tokens merged on the way: what they become, what they count as, and what a lens sees of them."""

import numpy as np
import pytest
import torch

import vitrail as vt
from vitrail.core.merge import Groups, MergingStack, matching, merged
from vitrail.errors import InputError

SHAPE = {"image": 24, "patch": 4, "channels": 1, "width": 24, "depth": 3, "heads": 4, "classes": 5}


def model(**fields):
    built = vt.build("vit", **SHAPE, **fields).double().eval()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return built


def pictures(count=3, height=24, width=24):
    return torch.randn(count, 1, height, width, dtype=torch.float64)


def test_matching_is_that_of_the_paper():
    """By plain loops: of every other token the most alike go to their most alike among the rest (ToMe, section 3.2)."""
    keys, prefix, count = np.random.default_rng(0).normal(size=(2, 12, 5)), 3, 2
    into, fewer = matching(torch.from_numpy(keys), count, prefix)
    assert fewer == 10
    for row, given in zip(into.numpy(), keys, strict=True):
        unit = given / np.linalg.norm(given, axis=1, keepdims=True)
        ours, others = list(range(prefix, 12, 2)), list(range(prefix + 1, 12, 2))
        best = {i: max(others, key=lambda j, i=i: unit[i] @ unit[j]) for i in ours}
        gone = sorted(ours, key=lambda i: -(unit[i] @ unit[best[i]]))[:count]
        for i in gone:
            assert row[i] == row[best[i]]
        alone = [i for i in range(12) if i not in gone]
        assert len({row[i] for i in alone}) == len(alone) == fewer
        assert row[:prefix].tolist() == [0, 1, 2]  # the tokens before the patches stay where they are


def test_sizes_add_up_and_means_are_weighed():
    x = torch.randn(2, 11, 4, dtype=torch.float64)
    groups = Groups.each(x)
    stream = x
    for count in (3, 2, 9):
        into, fewer = matching(stream, count, 1)
        stream, groups = merged(stream, groups.size, into, fewer), groups.joined(into, fewer)
        assert torch.equal(groups.size.sum(1), torch.full((2,), 11.0, dtype=torch.float64))
    for row in range(2):
        for group in range(stream.shape[1]):
            members = groups.of[row] == group
            assert int(members.sum()) == int(groups.size[row, group])
            torch.testing.assert_close(stream[row, group], x[row, members].mean(0))
    torch.testing.assert_close(groups.spread(stream).sum(1), x.sum(1))


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, {"pool": "mean"}, {"registers": 2}, {"pool": "distilled"}, {"pool": "both"}])
@pytest.mark.parametrize("merge", [4, 40, [0, 7, 2]])
def test_a_lens_sees_every_token_and_changes_nothing(fields, merge):
    """All tokens kept, those of a group alike, are the same as one for each group that counts as many: two ways."""
    net, images = model(merge=merge, **fields), pictures(2, 24, 32)
    fast = net(images)
    with vt.record(net) as trace:
        seen = net(images)
    torch.testing.assert_close(seen, fast, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(net(images, shortest=True), fast, rtol=1e-9, atol=1e-9)
    tokens = net.embed(images).shape[1]
    assert all(trace.pattern(layer).shape[-1] == tokens for layer in range(3))
    alike = trace.pattern(2)[0, 0]  # columns of a group are the same
    assert len(alike.T.unique(dim=0)) < tokens


@torch.no_grad()
def test_merging_nothing_is_nothing_and_merging_is_less_work():
    plain, net, images = model(), model(merge=8), pictures()
    assert not isinstance(vt.build("vit", **SHAPE, merge=0).encoder, MergingStack)
    net.load_state_dict(plain.state_dict())
    assert not torch.allclose(net(images), plain(images))
    from vitrail.families import cost

    assert cost(net.config).multiply_adds < 0.8 * cost(plain.config).multiply_adds
    assert cost(net.config).parameters == cost(plain.config).parameters


def test_gradients_flow_through_what_is_merged():
    net = model(merge=6).train()
    net(pictures()).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.encoder.parameters())


def test_each_layer_is_dropped_as_often_as_it_should():
    net = vt.build("vit", **{**SHAPE, "depth": 1}, merge=4, layer_drop=0.5).train()
    calls = []
    net.encoder[0].feed_forward.register_forward_hook(lambda *_: calls.append(1))
    for _ in range(200):
        net(torch.randn(1, 1, 24, 24), shortest=True)
    assert 70 < len(calls) < 130


@pytest.mark.parametrize("fields", [{"pool": "mean", "layer_scale": 0.1}, {}])
def test_in_less_precision_and_computed_again(fields):
    """Under autocast it runs, and recomputed blocks have the same gradients."""
    net, images = vt.build("vit", **SHAPE, merge=5, **fields).train(), torch.randn(2, 1, 24, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(net(images)).all()
    grads = []
    for again in (False, True):
        net.encoder.recompute = again
        net.zero_grad()
        net(images).square().sum().backward()
        grads.append(net.encoder[0].feed_forward.f.inner.weight.grad.clone())
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"merge": -1}, "merge=-1"),
        ({"merge": [1, 2]}, "depth=3"),
        ({"merge": 2, "kernel": "local"}, "softmax"),
        ({"merge": 2, "position": "relative"}, "position"),
        ({"merge": 2, "position": "rotary"}, "position"),
    ],
)
def test_what_cannot_be_merged_is_said(fields, said):
    with pytest.raises(InputError, match=said):
        vt.build("vit", **SHAPE, **fields)
