"""Laws of the ViT family, over every kernel, position scheme and norm."""

import pytest
import torch
from drawing import FULL, numbers
from einops import rearrange
from torch import nn

import vitrail as vt
from vitrail.core import NONE, Mask, kernels, norms, positions, stems

SHAPE = {"image": (12, 20), "patch": 4, "channels": 3, "width": 24, "depth": 2, "heads": 3, "hidden": 29, "classes": 7}
every_kernel = pytest.mark.parametrize("kernel", FULL)
every_position = pytest.mark.parametrize("position", sorted(positions))
every_norm = pytest.mark.parametrize("norm", sorted(norms))


def vit(**fields):
    return vt.build("vit", **{**SHAPE, **fields}).double().eval()


def permuted(image, order, patch=4):
    """The image with its patches in another order."""
    across = image.shape[-1] // patch
    patches = rearrange(image, "b c (y p) (x q) -> b (y x) c p q", p=patch, q=patch)[:, order]
    return rearrange(patches, "b (y x) c p q -> b c (y p) (x q)", x=across)


@every_kernel
@every_norm
@pytest.mark.parametrize("registers", [0, 2])
def test_without_positions_the_order_of_the_patches_does_not_matter(kernel, norm, registers):
    """Equivariance: permuted patches give permuted tokens, and the same answer."""
    model, image = vit(position="none", kernel=kernel, norm=norm, registers=registers), numbers(2, 3, 12, 20)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(3))
    first = 1 + registers
    tokens, moved = model.features(image), model.features(permuted(image, order))
    torch.testing.assert_close(moved[:, first:], tokens[:, first:][:, order])
    torch.testing.assert_close(moved[:, :first], tokens[:, :first])
    torch.testing.assert_close(model(permuted(image, order)), model(image))


@every_position
def test_every_position_scheme_tells_the_patches_apart(position):
    model, image = vit(position=position), numbers(2, 3, 12, 20)
    moved = model(permuted(image, torch.arange(15).flip(0)))
    assert torch.allclose(moved, model(image)) == (position == "none")


@every_position
@every_kernel
@pytest.mark.parametrize("size", [(12, 20), (20, 12), (4, 4), (28, 44)])
@pytest.mark.parametrize("registers", [0, 2])
def test_any_image_size_square_or_not(position, kernel, size, registers):
    model = vit(position=position, kernel=kernel, registers=registers)
    image = numbers(2, 3, *size)
    assert model(image).isfinite().all()
    assert model.features(image).shape == (2, 1 + registers + size[0] * size[1] // 16, 24)


@every_norm
@pytest.mark.parametrize("order", ["pre", "post"])
def test_residual_writes_sum_to_the_stream(norm, order):
    """stream after = stream before + what the sublayer wrote (pre); the norm of that (post)."""
    model, image = vit(norm=norm, order=order, layer_scale=0.3), numbers(2, 3, 12, 20)
    with vt.record(model) as trace:
        model(image)
    stream = trace.residual()
    for name, before, after in zip(trace.sublayers(), stream, stream[1:], strict=False):
        sublayer = model.get_submodule(name)
        if order == "pre":
            expected = before + sublayer.write(sublayer.norm(before))
        else:
            expected = sublayer.norm(before + sublayer.write(before))
        torch.testing.assert_close(after, expected)
    torch.testing.assert_close(stream[0], model.embed(image))
    torch.testing.assert_close(model.norm(stream[-1]), model.features(image))


@every_position
@every_kernel
@every_norm
def test_what_the_heads_write_is_what_the_attention_gives(position, kernel, norm):
    model, image = vit(position=position, kernel=kernel, norm=norm), numbers(2, 3, 12, 20)
    with vt.record(model) as trace:
        model(image)
    stream = trace.residual()
    for layer, name in enumerate(trace.names()):
        written = trace.heads(name).sum(1) + model.encoder[layer].attention.f.out.bias
        torch.testing.assert_close(stream[2 * layer] + written, stream[2 * layer + 1])


@pytest.mark.parametrize("patch", [2, 5])
def test_patch_projection_is_the_strided_convolution(patch):
    """P x P convolution of stride P, flattened, by law (B1)."""
    stem = stems["patch"](patch, 3, 11).double()
    torch.nn.init.normal_(stem.projection.bias)
    convolution = nn.Conv2d(3, 11, patch, stride=patch).double()
    with torch.no_grad():
        convolution.weight.copy_(rearrange(stem.projection.weight, "w (c p q) -> w c p q", p=patch, q=patch))
        convolution.bias.copy_(stem.projection.bias)
    image = numbers(2, 3, 3 * patch, 7 * patch)
    torch.testing.assert_close(stem(image), rearrange(convolution(image), "b w y x -> b (y x) w"))


def test_the_paper_s_sizes():
    """224 -> 14 x 14 x 768 -> 196 x 768, and 197 x 768 with the class token (B1, B2)."""
    with torch.device("meta"):
        model = vt.build("vit-b/16")
        image = torch.zeros(1, 3, 224, 224)
    assert model.embed.stem.projection.in_features == 16 * 16 * 3 == 768
    assert model.embed.stem(image).shape == (1, 196, 768)
    assert model.embed(image).shape == (1, 197, 768)


def test_a_conv_stem_gives_the_same_grid():
    model = vit(stem="conv")
    assert model.features(numbers(2, 3, 12, 20)).shape == (2, 16, 24)


def test_mean_pooling_is_the_mean_of_the_patches():
    model, image = vit(pool="mean", registers=2), numbers(2, 3, 12, 20)
    expected = model.head(model.features(image)[:, 2:].mean(1))
    torch.testing.assert_close(model(image), expected)
    assert model.features(image).shape == (2, 17, 24)


@every_norm
def test_the_last_norm_may_come_after_the_mean(norm):
    model, image = vit(pool="mean", norm=norm, norm_last=True, registers=2), numbers(2, 3, 12, 20)
    nn.init.normal_(model.norm.bias)
    mean = model.features(image)[:, 2:].mean(1, keepdim=True)
    torch.testing.assert_close(model(image), model.head(model.norm(mean)[:, 0]))


def test_class_pooling_reads_the_class_token_alone():
    model, image = vit(registers=2), numbers(2, 3, 12, 20)
    torch.testing.assert_close(model(image), model.head(model.features(image)[:, 0]))


def test_prelogits_are_linear_tanh_linear():
    """B4."""
    model, image = vit(prelogits=13), numbers(2, 3, 12, 20)
    z = model.features(image)[:, 0]
    expected = model.head.logits((z @ model.head.prelogits.weight.T + model.head.prelogits.bias).tanh())
    torch.testing.assert_close(model(image), expected)
    assert vt.build("vit", **{**SHAPE, "prelogits": True}).config.prelogits == 24


def test_without_classes_the_pooled_features_are_the_output():
    model, image = vit(classes=0), numbers(2, 3, 12, 20)
    torch.testing.assert_close(model(image), model.features(image)[:, 0])


@every_position
@every_kernel
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("pool", ["class", "mean"])
def test_the_shortest_way_to_the_logits_is_the_whole_way(position, kernel, order, pool):
    """model(x, shortest=True) == model(x), and so are the gradients, with the last block for the class token alone."""
    model = vit(position=position, kernel=kernel, order=order, pool=pool, registers=2, layer_scale=0.3)
    image = numbers(2, 3, 12, 20)
    torch.testing.assert_close(model(image, shortest=True), model(image))
    short, whole = (
        torch.autograd.grad(model(image, shortest=way).square().sum(), list(model.parameters()), allow_unused=True)
        for way in (True, False)
    )
    torch.testing.assert_close(short, whole)


@every_norm
def test_the_shortest_way_in_training(norm):
    model, image = vit(norm=norm).train(), numbers(2, 3, 12, 20)
    torch.testing.assert_close(model(image, shortest=True), model(image))


def test_the_shortest_way_is_shorter():
    """One query in the last layer, all of them before."""
    model, image = vit(), numbers(2, 3, 12, 20)
    with vt.record(model) as trace:
        model(image, shortest=True)
    assert [trace.q(name).shape[2] for name in trace.names()] == [16, 1]


class Nearby(kernels["softmax"]):
    """A kernel in which a query's place among the queries matters."""

    rowwise = False

    def forward(self, q, k, v, mask=NONE):
        return super().forward(q, k, v, mask & Mask(window=1))

    def pattern(self, q, k, mask=NONE):
        return super().pattern(q, k, mask & Mask(window=1))


def test_a_kernel_that_needs_all_queries_gets_them():
    model, image = vit(), numbers(2, 3, 12, 20)
    for block in model.encoder:
        block.attention.f.kernel = Nearby()
    torch.testing.assert_close(model(image, shortest=True), model(image))
    with vt.record(model) as trace:
        model(image)
    torch.testing.assert_close(trace.pattern(0, rows=0), trace.pattern(0)[:, :, :1])


@pytest.mark.parametrize("fields", [{}, {"layer_drop": 0.999}])
def test_some_rows_of_the_features(fields):
    model, image = vit(**fields), numbers(2, 3, 12, 20)
    torch.testing.assert_close(model.stream(image, rows=slice(2, 5)), model.stream(image)[:, 2:5])
    assert model.train().stream(image, rows=slice(2, 5)).shape == (2, 3, 24)


def test_dropout_stands_before_the_encoder():
    """B3: in training numbers of the embedding are 0 or doubled; not in evaluation."""
    model, image = vit(dropout=0.5), numbers(2, 3, 12, 20)
    plain = model.embed(image)
    dropped = model.train().embed(image)
    assert 0.4 < (dropped == 0).double().mean() < 0.6
    torch.testing.assert_close(dropped[dropped != 0], 2 * plain[dropped != 0])


def test_drop_path_rises_to_its_value():
    for depth, expected in ((1, [0.3]), (4, [0.1, 0.2, 0.3])):
        model = vit(depth=depth, drop_path=0.3)
        rates = [drop.p for block in model.encoder for drop in block.attention.drops]
        assert rates == pytest.approx(expected), "a rate of 0 is no module"
