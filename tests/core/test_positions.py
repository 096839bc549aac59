"""Position schemes: their formulas, and resampling to another grid."""

import math

import pytest
import torch
from drawing import numbers

from vitrail.core import positions
from vitrail.core.positions import resample
from vitrail.errors import InputError

GRID, WIDTH, HEADS = (3, 5), 8, 2


def position(name, prefix=1, grid=GRID):
    return positions[name](grid, WIDTH, HEADS, prefix)


@pytest.mark.parametrize("prefix", [0, 1])
def test_sinusoidal_is_the_formula(prefix):
    table = position("sinusoidal", prefix).table(GRID)
    assert table.shape == (prefix + 15, WIDTH)
    for t in range(prefix + 15):
        for i in range(WIDTH // 2):
            angle = t / 10000 ** (2 * i / WIDTH)
            assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sincos2d_is_the_formula():
    table = position("sincos2d").table((2, 7))
    quarter = WIDTH // 4
    assert (table[0] == 0).all(), "the class token has no place"
    for y in range(2):
        for x in range(7):
            row = table[1 + y * 7 + x]
            for i in range(quarter):
                frequency = 10000 ** -(i / quarter)
                expected = [
                    math.sin(x * frequency),
                    math.cos(x * frequency),
                    math.sin(y * frequency),
                    math.cos(y * frequency),
                ]
                assert row[i::quarter].tolist() == pytest.approx(expected, abs=1e-6)


def test_learned2d_is_a_row_and_a_column():
    scheme = position("learned2d", prefix=0)
    table = scheme.table(GRID)
    for y in range(3):
        for x in range(5):
            torch.testing.assert_close(table[y * 5 + x], torch.cat([scheme.rows[y], scheme.columns[x]]))


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_relative_bias_depends_on_the_offset_alone(prefix):
    scheme = position("relative")
    bias = scheme.mask(GRID, prefix).bias
    assert bias.shape == (1, HEADS, prefix + 15, prefix + 15)
    for i in range(15):
        for j in range(15):
            dy, dx = i // 5 - j // 5, i % 5 - j % 5
            torch.testing.assert_close(bias[0, :, prefix + i, prefix + j], scheme.bias[:, dy + 2, dx + 4])
    away, to, within = scheme.prefix_bias.unbind(1)
    for p in range(prefix):
        torch.testing.assert_close(bias[0, :, p, prefix:], away[:, None].expand(-1, 15))
        torch.testing.assert_close(bias[0, :, prefix:, p], to[:, None].expand(-1, 15))
        torch.testing.assert_close(bias[0, :, p, :prefix], within[:, None].expand(-1, prefix))


def test_its_own_grid_is_left_as_it_is():
    x, scheme = numbers(2, 16, WIDTH, dtype=torch.float32), position("learned")
    assert torch.equal(scheme(x, GRID), x + scheme.embedding)


@pytest.mark.parametrize("grid", [(6, 10), (2, 9), (7, 3)])
def test_learned_positions_are_resampled_as_pictures(grid):
    """The class token's is kept; the rest is PyTorch's own antialiased bicubic resize of a 3 x 5 picture."""
    scheme = position("learned")
    table = scheme.table(grid)
    picture = scheme.embedding[1:].T.reshape(1, WIDTH, *GRID)
    expected = torch.nn.functional.interpolate(picture, grid, mode="bicubic", antialias=True)
    torch.testing.assert_close(table[0], scheme.embedding[0])
    torch.testing.assert_close(table[1:].T.reshape(1, WIDTH, *grid), expected)


@pytest.mark.parametrize("name", ["learned", "learned2d", "relative"])
def test_what_is_constant_stays_constant(name):
    scheme = position(name, prefix=0)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.fill_(0.7)
    added = scheme.mask((5, 8), 0).bias if name == "relative" else scheme.table((5, 8))
    torch.testing.assert_close(added, torch.full_like(added, 0.7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_resampled_in_float32(dtype):
    image = numbers(3, 4, 4, dtype=torch.float32)
    assert resample(image.to(dtype), (7, 7)).dtype == dtype
    torch.testing.assert_close(resample(image.to(dtype), (7, 7)).float(), resample(image, (7, 7)), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("name", "width"), [("learned2d", 7), ("sinusoidal", 7), ("sincos2d", 6)])
def test_a_width_that_cannot_be_shared_gets_a_sentence(name, width):
    with pytest.raises(InputError, match=f"width={width} is not divisible by .* choose width=8"):
        positions[name](GRID, width, 1)
