"""Vectors as bits."""

import numpy as np
import pytest

from vitrail.errors import InputError
from vitrail.shrink.binary import Planes, angles, differing, near
from vitrail.shrink.library import Library


def vectors(count=400, width=48, seed=0):
    """Some around each of twenty places, off the origin."""
    draw = np.random.default_rng(seed)
    places = draw.standard_normal((20, width)) + 3
    return (places[draw.integers(20, size=count)] + 0.5 * draw.standard_normal((count, width))).astype(np.float32)


def test_bits_differ_as_the_angle_is_of_half_a_turn():
    x = vectors()
    planes = Planes.of(x, 8192)
    codes = planes.encode(x)
    assert codes.shape == (400, 1024)
    assert codes.dtype == np.uint8
    found = differing(codes[:20], codes) / 8192
    exact = angles(x[:20] - planes.mean, x - planes.mean)
    assert np.abs(found - exact).max() < 0.03
    assert np.abs(found - exact).mean() < 0.006


def test_the_more_bits_the_more_of_the_true_neighbours():
    x, questions = vectors(2000), vectors(50, seed=1)
    exact, _ = near(angles(questions - x.mean(0), x - x.mean(0)), 10)
    recalls = []
    for bits in (32, 256, 2048):
        planes = Planes.of(x, bits)
        found, _ = near(differing(planes.encode(questions), planes.encode(x)), 10)
        recalls.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, exact, strict=True)]))
    assert recalls == sorted(recalls)
    assert recalls[-1] > 0.6


def test_the_same_bits_each_time_and_none_that_do_not_fit():
    x = vectors()
    assert np.array_equal(Planes.of(x, 64).encode(x), Planes.of(x, 64).encode(x))
    assert np.array_equal(
        differing(Planes.of(x, 64).encode(x[:3]), Planes.of(x, 64).encode(x[:3])).diagonal(), [0, 0, 0]
    )
    for bits in (0, 7, 100):
        with pytest.raises(InputError, match="multiple of 8"):
            Planes.of(x, bits)


@pytest.mark.parametrize("bits", [None, 256])
def test_a_library_is_written_read_and_searched(tmp_path, bits):
    x = vectors(60)
    names = [f"picture {number}.png" for number in range(60)]
    Library.of(names, x, "files", bits).write(tmp_path / "all.npz")
    library = Library.read(tmp_path / "all.npz")
    assert len(library) == 60
    found = library.nearest(x[:5], 3)
    assert [some[0][0] for some in found] == names[:5]
    assert [some[0][1] for some in found] == pytest.approx([1.0] * 5, abs=1e-3)
    assert all(some[0][1] >= some[1][1] >= some[2][1] for some in found)
    with pytest.raises(InputError, match="vectors of 7 numbers, and the file has them of 48"):
        library.nearest(x[:2, :7], 3)
    size = (tmp_path / "all.npz").stat().st_size
    assert size < 60 * 48 * 4 if bits else size > 60 * 48 * 4


def test_files_that_are_no_library(tmp_path):
    (tmp_path / "some.npz").write_bytes(b"nothing")
    np.savez(tmp_path / "other.npz", features=np.zeros((3, 2)), files=np.array(["a"]))
    np.savez(tmp_path / "third.npz", x=np.zeros(3))
    for name in ("some", "other", "third"):
        with pytest.raises(InputError, match="no file of vectors"):
            Library.read(tmp_path / f"{name}.npz")
    with pytest.raises(InputError, match="is not there"):
        Library.read(tmp_path / "none.npz")
