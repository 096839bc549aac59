"""Laws of attention that is not quadratic: each kind by its rule, under every mask, on sequences and on grids."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from drawing import numbers
from torch.utils._python_dispatch import TorchDispatchMode

import vitrail as vt
from vitrail.core import CAUSAL, NONE, Kernel, Mask, Softmax, kernels
from vitrail.core.graphs import Graph
from vitrail.core.masks import TokenLayout
from vitrail.core.span import MixedAttention, Span
from vitrail.core.sparse import Places, Sparse
from vitrail.errors import InputError

KINDS = {
    "local": {"window": 3},
    "local wide": {"name": "local", "window": 40},
    "bigbird": {"block": 4, "globals": 2, "random": 2},
    "bigbird alone": {"name": "bigbird", "block": 5, "globals": 0, "random": 1},
    "star": {"ring": 1},
    "star wide": {"name": "star", "ring": 2},
    "edges": {"edges": ((0, 5), (5, 0), (3, 17), (2, 1))},
    "strided": {"stride": 4},
    "fixed": {"block": 5, "summary": 2},
    "axial": {"across": 6},
    "hashing": {"rounds": 3, "chunk": 4},
    "linear": {},
    "lowrank": {"rank": 5, "length": 64},
    "span": {"size": 3},
}
SPARSE = [name for name in KINDS if name.split()[0] not in ("hashing", "linear", "lowrank", "span")]
B, H, D = 2, 3, 8


def make(kind):
    torch.manual_seed(0)
    return kernels.make(options_of(kind)).double()


def options_of(kind):
    return {"name": kind, **KINDS[kind]}


def qkv(n, keys=None, rank=D, seed=0):
    keys = n if keys is None else keys
    return (
        numbers(B, H, n, D, seed=seed),
        numbers(B, H, keys, D, seed=seed + 1),
        numbers(B, H, keys, rank, seed=seed + 2),
    )


def present(n):
    there = torch.ones(B, n, dtype=torch.bool)
    there[0, n * 2 // 3 :] = False
    there[1, ::3] = n < 3
    there[1, -1] = True
    return there


def layouts(n):
    yield None
    for prefix, grid in ((0, (n, 1)), (1, (3, (n - 1) // 3)), (2, ((n - 2) // 4, 4))):
        if prefix + grid[0] * grid[1] == n and min(grid) > 0:
            yield TokenLayout(prefix, grid)


def cases(kind, n):
    kernel = kernels[KINDS[kind].get("name", kind)]
    for layout in layouts(n):
        for causal in (False, True):
            if causal and (not kernel.causal or layout is not None):
                continue
            for hidden in (None, present(n)):
                for window in (None, 2):
                    if window is not None and kind.startswith(("lowrank", "star")):
                        continue
                    yield Mask(causal=causal, window=window, present=hidden, layout=layout)


@pytest.mark.parametrize("n", [1, 2, 7, 13, 22])
@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_the_pattern_in_value_and_in_gradient(kind, n):
    kernel = make(kind)
    for mask in cases(kind, n):
        inputs = [x.requires_grad_() for x in qkv(n, rank=5)]
        fast, slow = kernel(*inputs, mask), kernel.pattern(*inputs[:2], mask) @ inputs[2]
        torch.testing.assert_close(fast, slow, rtol=1e-6, atol=1e-8)
        weight = numbers(*fast.shape, seed=9)
        ours, theirs = (
            torch.autograd.grad((z * weight).sum(), inputs, allow_unused=True, materialize_grads=True)
            for z in (fast, slow)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n", [7, 22])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_tokens_have_no_weight_and_no_influence(kind, n):
    kernel = make(kind)
    for mask in cases(kind, n):
        q, k, v = qkv(n)
        pattern = kernel.pattern(q, k, mask)
        assert pattern.isfinite().all()
        seen = mask.visible(n, n, q.device)
        if seen is not None:
            assert (pattern[~seen.expand_as(pattern)] == 0).all()
        if mask.present is None:
            continue
        gone = ~mask.present[:, None, :, None]
        before = kernel(q, k, v, mask)
        other = qkv(n, seed=5)
        after = kernel(*(torch.where(gone, b, a) for a, b in zip((q, k, v), other, strict=True)), mask)
        there = mask.present[:, None, :, None].expand_as(before)
        torch.testing.assert_close(before[there], after[there])


@pytest.mark.parametrize("n", [7, 22])
@pytest.mark.parametrize("kind", KINDS)
def test_no_token_sees_those_after_it(kind, n):
    kernel = make(kind)
    q, k, v = qkv(n)
    if not kernel.causal:
        if not isinstance(kernel, Span):
            with pytest.raises(InputError):
                kernel(q, k, v, CAUSAL)
        return
    pattern = kernel.pattern(q, k, CAUSAL)
    assert (pattern.triu(1) == 0).all()
    half, others = n // 2, qkv(n, seed=7)
    changed = [torch.cat([x[:, :, :half], y[:, :, half:]], 2) for x, y in zip((q, k, v), others, strict=True)]
    if kind != "hashing":  # whose buckets are of all tokens
        torch.testing.assert_close(kernel(q, k, v, CAUSAL)[:, :, :half], kernel(*changed, CAUSAL)[:, :, :half])


@pytest.mark.parametrize("kind", [kind for kind in SPARSE if not kind.startswith("star")])
def test_sparse_kinds_are_softmax_under_the_equivalent_dense_mask(kind):
    kernel = make(kind)
    for mask in cases(kind, 22):
        q, k, v = (x.float() for x in qkv(22))
        seen = kernel.rule(torch.arange(22), Places(22, mask.layout), mask)
        dense = mask & Mask(bias=torch.zeros(22, 22).masked_fill(~seen, -torch.inf)[None, None])
        torch.testing.assert_close(kernel.float()(q, k, v, mask), Softmax()(q, k, v, dense), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "local", "window": 50},
        {"name": "bigbird", "block": 50},
        {"name": "bigbird", "block": 4, "globals": 30},
        {"name": "strided", "stride": 1},
        {"name": "fixed", "block": 50, "summary": 1},
        {"name": "fixed", "block": 4, "summary": 4},
        {"name": "axial", "across": 50},
        {"name": "edges", "edges": tuple((i, j) for i in range(22) for j in range(22))},
    ],
    ids=str,
)
def test_what_covers_everything_is_full_attention(options):
    kernel = kernels.make(options)
    for mask in (NONE, CAUSAL, Mask(present=present(22))):
        q, k, v = (x.float() for x in qkv(22))
        torch.testing.assert_close(kernel(q, k, v, mask), Softmax()(q, k, v, mask), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lowrank"])
def test_weights_sum_to_one(kind):
    for mask in cases(kind, 22):
        if mask.window is not None or mask.present is not None:
            continue
        sums = make(kind).pattern(*qkv(22)[:2], mask).sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_pattern(kind):
    kernel = make(kind)
    for mask in cases(kind, 22):
        q, k, _ = qkv(22)
        whole = kernel.pattern(q, k, mask)
        torch.testing.assert_close(kernel.rows(q, k, mask, [2, 0], slice(5, 9)), whole[:, [2, 0]][:, :, 5:9])


class Sizes(TorchDispatchMode):
    """How large what is computed is, in numbers."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        every = [one for one in (out if isinstance(out, tuple | list) else [out]) if isinstance(one, torch.Tensor)]
        self.seen.extend(one.untyped_storage().nbytes() // one.element_size() for one in every)
        return out


@pytest.mark.parametrize("kind", sorted({*kernels} - {"softmax", "relu", "mean", "span"}))
def test_nothing_holds_all_pairs(kind):
    """Neither the fast way nor some rows of the pattern make anything of n x n numbers."""
    n, kernel = 2_000, kernels.make({"name": "lowrank", "length": 2_000} if kind == "lowrank" else kind)
    q, k, v = (torch.randn(1, 1, n, 4) for _ in range(3))
    with Sizes() as sizes:
        kernel(q, k, v, NONE)
        kernel.rows(q, k, NONE, slice(None), slice(0, 4))
    assert max(sizes.seen) < n * n / 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_keep_the_type(kind, dtype):
    kernel = kernels.make(options_of(kind)).to(dtype)
    q, k, v = (x.to(dtype).requires_grad_() for x in qkv(13))
    z = kernel(q, k, v)
    assert z.dtype == dtype
    z.float().sum().backward()
    assert v.grad.isfinite().all()
    assert kernel.pattern(q, k).dtype == dtype


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_formulas_in_numpy():
    """Each paper's, written out over all pairs."""
    n = 11
    q, k, v = (x[0, 0].numpy() for x in qkv(n))
    tensors = [torch.from_numpy(x)[None, None] for x in (q, k, v)]
    scores, i, j = q @ k.T / D**0.5, np.arange(n)[:, None], np.arange(n)

    def sparse(seen):
        return softmax(np.where(seen, scores, -np.inf)) @ v

    expected = {
        "local": (sparse(abs(i - j) <= 3), make("local")),
        "strided": (sparse((abs(i - j) < 4) | ((i - j) % 4 == 0)), make("strided")),
        "fixed": (sparse((i // 5 == j // 5) | (j % 5 >= 3)), make("fixed")),
        "axial": (sparse((i // 6 == j // 6) | (i % 6 == j % 6)), make("axial")),
    }
    elu = lambda x: np.where(x > 0, x + 1, np.exp(x))  # noqa: E731
    linear = elu(q) @ elu(k).T
    expected["linear"] = (linear / linear.sum(1, keepdims=True) @ v, make("linear"))
    low = make("lowrank")
    e, f = low.of_keys.detach().numpy()[:, :n], low.of_values.detach().numpy()[:, :n]
    expected["lowrank"] = (softmax(q @ (e @ k).T / D**0.5) @ (f @ v), low)
    relay = softmax(q.mean(0) @ k.T / D**0.5) @ v
    ring = np.stack([scores[np.arange(n), (np.arange(n) + step) % n] for step in (-1, 0, 1)], 1)
    weights = softmax(np.concatenate([ring, (q @ k.mean(0) / D**0.5)[:, None]], 1))
    near = np.stack([v[(np.arange(n) + step) % n] for step in (-1, 0, 1)], 1)
    star = (weights[:, :3, None] * near).sum(1) + weights[:, 3:] * relay
    expected["star"] = (star, make("star"))
    for name, (wanted, kernel) in expected.items():
        with torch.no_grad():
            np.testing.assert_allclose(kernel(*tensors)[0, 0].numpy(), wanted, rtol=1e-6, atol=1e-9, err_msg=name)


def test_hashing_by_the_papers_formula():
    """One round: buckets by the largest of [xR, -xR], sorted, chunks see themselves and the one before."""
    n, chunk = 12, 4
    kernel = kernels.make({"name": "hashing", "rounds": 1, "chunk": chunk}).double()
    q, k, v = (x[0, 0].numpy() for x in qkv(n))
    turn = torch.randn(1, D, 2, generator=torch.Generator().manual_seed(0)).numpy()[0]
    turned = q.astype(np.float32) @ turn
    bucket = np.concatenate([turned, -turned], 1).argmax(1)
    order = np.lexsort((np.arange(n), bucket))
    place = np.empty(n, int)
    place[order] = np.arange(n) // chunk
    keys = q / np.linalg.norm(q, axis=1, keepdims=True)
    scores = q @ keys.T / D**0.5
    np.fill_diagonal(scores, -1e4)
    away = place[:, None] - place
    seen = (bucket[:, None] == bucket) & ((away == 0) | (away == 1))
    expected = softmax(np.where(seen, scores, -np.inf)) @ v
    found = kernel(*(torch.from_numpy(x)[None, None] for x in (q, k, v)))[0, 0].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_hashing_tends_to_full_attention_as_rounds_grow():
    q, _, v = qkv(24)
    keys = F.normalize(q, dim=-1)
    own = torch.eye(24, dtype=torch.bool)
    full = (q @ keys.mT / D**0.5).masked_fill(own, -1e4).softmax(-1) @ v
    away = [
        float((kernels.make({"name": "hashing", "rounds": rounds, "chunk": 12}).double()(q, q, v) - full).abs().mean())
        for rounds in (1, 4, 16, 64)
    ]
    assert away == sorted(away, reverse=True)
    assert away[-1] < 0.05 * away[0]


def test_a_seed_is_a_pass():
    q, k, v = qkv(30)
    for name in ("hashing", "bigbird"):
        options = {"chunk": 4} if name == "hashing" else {"block": 4}
        one, again, other = (
            kernels.make({"name": name, "seed": seed, **options}).double()(q, k, v) for seed in (3, 3, 4)
        )
        assert torch.equal(one, again)
        assert not torch.allclose(one, other)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.split()[0] not in ("star", "lowrank", "span", "hashing")]
)
def test_steps_with_the_cache_are_the_whole(kind):
    options = options_of(kind)
    model = vt.build("gpt", tokens=40, width=24, depth=2, heads=3, length=32, kernel=options).eval()
    tokens = torch.randint(40, (2, 26))
    with torch.no_grad():
        whole, steps = model(tokens), model.steps(tokens[:, :7])
        for place in range(6, 26):
            torch.testing.assert_close(steps(tokens[:, place]), whole[:, place], rtol=0, atol=1e-4)


def test_what_takes_no_steps_says_so():
    model = vt.build("gpt", tokens=40, width=24, depth=1, heads=3, length=32, kernel={"name": "hashing", "chunk": 4})
    tokens = torch.randint(40, (2, 26))
    model(tokens)
    with torch.no_grad(), pytest.raises(InputError, match="takes no steps"):
        model.eval().steps(tokens[:, :7])(tokens[:, 6])
    for kind in ("star", "lowrank"):
        with pytest.raises(InputError, match="choose"):
            vt.build("gpt", tokens=40, width=24, depth=1, heads=3, kernel=kind)(tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_vit_on_any_grid(kind, tmp_path):
    options = options_of(kind)
    shape = {"image": (12, 20), "patch": 4, "channels": 1, "width": 24, "depth": 2, "heads": 3, "classes": 5}
    model = vt.build("vit", kernel=options, registers=2, **shape).eval()
    for size in ((12, 20), (20, 8), (4, 4)):
        images = torch.randn(2, 1, *size)
        with torch.no_grad(), vt.record(model) as trace:
            logits = model(images)
        torch.testing.assert_close(model(images, shortest=True), logits)
        pattern = trace.pattern(-1)
        torch.testing.assert_close(pattern @ trace.v(-1), trace.z(-1), rtol=1e-4, atol=1e-5)
    vt.save(model, tmp_path / "run")
    again = vt.load(tmp_path / "run")
    assert again.config == model.config
    assert torch.equal(again(images), model(images))


# But those whose buckets, draws and ring are of so many places, and that which has no window of its own.
@pytest.mark.parametrize(
    "kind", ["local", "local wide", "edges", "strided", "fixed", "axial", "linear", "lowrank", "span"]
)
def test_a_bert_reads_padded_texts(kind):
    options = options_of(kind)
    model = vt.build("bert", tokens=40, width=24, depth=2, heads=3, length=64, kernel=options).eval()
    tokens = torch.randint(1, 40, (1, 9))
    padded = torch.cat([tokens, torch.zeros(1, 5, dtype=torch.long)], 1)
    with torch.no_grad():
        torch.testing.assert_close(model(padded)[:, :9], model(tokens), rtol=0, atol=1e-4)


def test_cross_attention_stays_full():
    for kind in ("local", "star", "hashing"):
        model = vt.build(
            "seq2seq", source=30, target=30, width=24, depth=1, heads=3, kernel=kind, parallel=True, mask=4
        )
        assert type(model.decoder[0].cross.f.kernel) is Softmax
        model((torch.randint(5, 30, (2, 7)), torch.randint(5, 30, (2, 9))))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "local", "window": 0}, "window=0"),
        ({"name": "local", "windows": 3}, "did you mean 'window'"),
        ({"name": "fixed", "block": 4, "summary": 5}, "more than the block"),
        ({"name": "hashing", "buckets": 3}, "even"),
        ({"name": "span", "size": 4}, "odd"),
        ({"name": "edges", "edges": ((0, -1),)}, "negative"),
        ({"name": "lokal"}, "did you mean 'local'"),
    ],
    ids=str,
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(InputError, match=words):
        vt.build("vit", image=8, patch=4, channels=1, width=24, depth=1, heads=3, kernel=options)


def test_a_graph_of_your_own():
    class Even(Graph):
        def sees(self, i, j, places):  # noqa: ARG002
            return (i - j) % 2 == 0

    q, k, v = qkv(15)
    found = Even()(q, k, v)
    torch.testing.assert_close(found[:, :, ::2], Softmax()(q[:, :, ::2], k[:, :, ::2], v[:, :, ::2]))
    assert isinstance(Even(), Sparse)
    assert isinstance(Even(), Kernel)


def test_a_mixed_block_is_attention_and_a_convolution():
    torch.manual_seed(0)
    mixed = MixedAttention(16, 2, Span(3)).double()
    x = numbers(2, 9, 16)
    with vt.record(mixed) as trace:
        out = mixed(x)
    heads = trace.heads(0).sum(1)
    rest = mixed.convolved(x, mixed.query(x), NONE) @ mixed.out.weight[:, 8:].T + mixed.out.bias
    torch.testing.assert_close(heads + rest, out)
    far = x.clone()
    far[:, 6:] = 0
    torch.testing.assert_close(
        mixed.convolved(far, mixed.query(far), NONE)[:, :4], mixed.convolved(x, mixed.query(x), NONE)[:, :4]
    )


def test_weights_of_full_attention_are_weights_of_any_kind_without_its_own(tmp_path):
    shape = {"image": 16, "patch": 4, "channels": 1, "width": 24, "depth": 2, "heads": 3, "classes": 5}
    model = vt.build("vit", **shape).eval()
    vt.save(model, tmp_path / "full")
    images = torch.randn(2, 1, 16, 16)
    with pytest.warns(UserWarning, match="attention of the kind"):
        wide = vt.load(tmp_path / "full", kernel={"name": "local", "window": 9})
    with torch.no_grad():
        torch.testing.assert_close(wide(images), model(images), rtol=0, atol=1e-5)
    with pytest.raises(InputError, match="cannot be had from weights"):
        vt.load(tmp_path / "full", kernel="lowrank")
    vt.save(vt.build("gpt", tokens=20, width=24, depth=1, heads=3, length=16), tmp_path / "gpt")
    assert vt.load(tmp_path / "gpt", kernel="linear").config.kernel == "linear"


def test_a_picture_of_many_patches_is_explained_without_all_pairs():
    from vitrail.lens import explain

    shape = {"image": 256, "patch": 4, "channels": 1, "width": 16, "depth": 2, "heads": 2, "classes": 3}
    model = vt.build("vit", kernel="local", **shape).eval()
    with Sizes() as sizes:
        found = explain(model, torch.randn(1, 1, 256, 256), names=["attention"], steps=0)
    assert found.attended.shape == (2, 2, 4097)
    assert max(sizes.seen) < 4097**2 / 4


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of fused attention under vmap, by PyTorch
def test_a_neighbourhood_under_torch_func():
    """Gradients and batches by torch.func, which takes plain operations, are those of autograd and of a loop."""
    kernel, mask = kernels.make({"name": "local", "window": 1}).double(), Mask(layout=TokenLayout(1, (3, 4)))
    q, k, v = qkv(13)

    def total(q):
        return kernel(q, k, v, mask).sin().sum()

    leaf = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(total)(q), expected)
    several = torch.stack([q, 2 * q])
    torch.testing.assert_close(torch.func.vmap(total)(several), torch.stack([total(one) for one in several]))
