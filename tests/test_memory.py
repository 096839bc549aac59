"""Small files that would unpack to much, each read in a process whose memory is limited."""

import gzip
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from corpus import png, write_classes
from limits import MB, limited
from PIL import Image, ImageOps
from processes import vitrail

import vitrail as vt


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model of three classes."""
    folder = tmp_path_factory.mktemp("memory") / "run"
    model = vt.build("vit", image=16, patch=4, width=24, depth=2, heads=3, hidden=29, classes=3)
    vt.save(model, folder, labels=("ant", "bee", "cow"), normalise=((0.5,) * 3, (0.5,) * 3))
    return folder


def reduced(name, *arguments):
    """A pickle that calls something by its name: {'x': name(*arguments)}."""
    module, _, thing = name.rpartition(".")
    body = b"".join(pickle.dumps(one, 2)[2:-1] for one in arguments)
    return b"\x80\x02}X\x01\x00\x00\x00x" + f"c{module}\n{thing}\n".encode() + b"(" + body + b"tRs."


def archive(path, pickled):
    """As torch.save writes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("m/data.pkl", pickled)
        file.writestr("m/byteorder", "little")
        file.writestr("m/version", "3\n")
    return path


def legacy(path, pickled):
    """As torch.save wrote it before."""
    path.write_bytes(
        pickle.dumps(0x1950A86A20F9469CFC6C, 2)
        + pickle.dumps(1001, 2)
        + pickle.dumps({}, 2)
        + pickled
        + pickle.dumps([], 2)
    )
    return path


HUGE = 6 * 2**30


@pytest.mark.parametrize("name", ["builtins.bytearray", "torch.FloatTensor", "torch.storage.UntypedStorage"])
@pytest.mark.parametrize("write", [archive, legacy])
def test_a_pickle_that_asks_for_memory_by_a_number(tmp_path, write, name):
    path = write(tmp_path / "m.pt", reduced(name, HUGE))
    assert path.stat().st_size < 500
    ran = vitrail("convert", path, tmp_path / "out", before=limited(600))
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == 1
    if write is archive:
        assert f"asks for {name.removeprefix('builtins.')}, which is more than weights are made of" in ran.stderr


@pytest.mark.parametrize("write", [archive, legacy])
def test_a_pickle_of_four_million_lists(tmp_path, write):
    path = write(tmp_path / "m.pt", b"\x80\x02(" + b"]" * 4_000_000 + b"t.")
    ran = vitrail("convert", path, tmp_path / "out", before=limited(150))
    assert ran.returncode == 1
    assert "describes more than any weights do" in ran.stderr


def test_an_idx_file_that_unpacks_to_much(run, tmp_path):
    for name, count, sides in (("images-idx3", 10_000, (280, 280)), ("labels-idx1", 10_000, ())):
        start = bytes([0, 0, 8, 1 + len(sides)]) + struct.pack(f">{1 + len(sides)}I", count, *sides)
        with gzip.open(tmp_path / f"t10k-{name}-ubyte.gz", "wb") as file:
            file.write(start)
            for _ in range(count):
                file.write(bytes(int(np.prod(sides))))
    assert (tmp_path / "t10k-images-idx3-ubyte.gz").stat().st_size < MB
    ran = vitrail("evaluate", run, tmp_path, before=limited(300))
    assert ran.returncode == 1
    assert "times its size, as no pictures do" in ran.stderr


def test_idx_files_are_in_memory_once(tmp_path):
    """410 MB of pictures, where two copies would not fit."""
    count, side = 4_000, 320
    pixels = np.zeros((count, side, side), np.uint8)
    for name, array in (("images-idx3", pixels), ("labels-idx1", np.zeros(count, np.uint8))):
        start = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        (tmp_path / f"t10k-{name}-ubyte").write_bytes(start + array.tobytes())
    vt.save(
        vt.build("vit", image=16, patch=4, channels=1, width=24, depth=1, heads=3, hidden=29, classes=1),
        tmp_path / "run",
        labels=("0",),
        normalise=((0.5,), (0.5,)),
    )
    ran = vitrail("evaluate", tmp_path / "run", tmp_path, "--json", before=limited(700))
    assert ran.returncode == 0, ran.stderr
    assert '"tested": 4000' in ran.stdout


DEEP = {
    "16 bits": lambda side: png(side, side, 16, 0, bytes(side * (2 * side + 1))),
    "grey and alpha": lambda side: png(side, side, 8, 4, bytes(side * (2 * side + 1))),
    "colour and alpha": lambda side: png(side, side, 8, 6, bytes(side * (4 * side + 1))),
}


@pytest.mark.parametrize("kind", DEEP)
def test_large_pictures_are_taken_one_at_a_time(run, tmp_path, kind):
    """Each of 81 million pixels in a file of a few hundred kilobytes, with a thread for each."""
    data = DEEP[kind](9_000)
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(data)
    ran = vitrail("predict", run, tmp_path, "--json", before=limited(700))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count('"answers"') == 4


def test_the_limit_is_one(tmp_path, run):
    """What does not fit ends the command: the tests above could fail."""
    write_classes(tmp_path, {"ant": 1})
    ran = vitrail("predict", run, tmp_path / "ant", before=_and_take)
    assert ran.returncode != 0
    assert "MemoryError" in ran.stderr or "Traceback" in ran.stderr


def _and_take():
    limited(300)()
    np.ones(400 * MB, np.uint8)


def test_a_large_picture_is_what_a_small_one_would_be(tmp_path):
    """A gradient with a corner of its own, 17 million pixels, in every orientation: as Pillow makes it at once."""
    from vitrail.data.decode import LARGE, read_pixels

    down, across = 4_100, 4_200
    assert down * across > LARGE
    y, x = np.mgrid[:down, :across]
    grey = ((y * 150) // down + (x * 60) // across).astype(np.uint8)
    grey[:1000, :1000] = 255
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = tmp_path / f"{orientation}.tif"
        Image.fromarray(grey).save(path, exif=exif)
        found = read_pixels(path, (24, 32), 1)
        with Image.open(path) as image:
            fitted = ImageOps.fit(ImageOps.exif_transpose(image), (32, 24), Image.Resampling.BICUBIC)
        assert np.abs(found[0].astype(int) - np.asarray(fitted).astype(int)).max() <= 6
    deep = tmp_path / "deep.png"
    Image.fromarray(grey.astype(np.uint16) * 257).save(deep)
    assert np.abs(read_pixels(deep, (24, 32), 1).astype(int) - read_pixels(tmp_path / "1.tif", (24, 32), 1)).max() <= 1


def test_real_checkpoints_are_opened(tmp_path):
    """With an optimizer, a schedule, arguments, sets and sizes beside the weights, in both layouts."""
    from argparse import Namespace

    model = vt.build("vit", image=16, patch=4, width=24, depth=2, heads=3, hidden=29, classes=3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 16, 16)).sum().backward()
    optimizer.step()
    vt.save(model, tmp_path / "t.pt", format="timm")
    content = {
        "model": torch.load(tmp_path / "t.pt"),
        "optimizer": optimizer.state_dict(),
        "args": Namespace(lr=1e-3, device=torch.device("cpu"), size=torch.Size([1, 2]), type=torch.float16),
        "epoch": 3,
        "seen": {1, 2, 3},
        "parameter": torch.nn.Parameter(torch.ones(3)),
    }
    for number, new in enumerate((True, False)):
        path = tmp_path / f"{number}.pt"
        torch.save(content, path, _use_new_zipfile_serialization=new)
        again = vt.load(path, heads=3)
        for name, tensor in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("side", [224, 336, 518])
def test_a_large_picture_of_any_shape_is_read(side):
    """However the sides round."""
    from corpus import encoded

    from vitrail.data.decode import read_pixels

    for width in (5000, 5382, 5392):
        data = encoded(Image.new("L", (width, 4260 if width == 5000 else width * 3 // 4)), "PNG")
        assert read_pixels(data, (side, side), 3).shape == (3, side, side)


def test_a_checkpoint_may_hold_what_is_no_tensor(tmp_path):
    """Bytes, complex numbers, types of 8 bits, and numbers larger than the file."""
    model = vt.build("vit", image=16, patch=4, width=24, depth=2, heads=3, hidden=29, classes=3)
    vt.save(model, tmp_path / "t.pt", format="timm")
    beside = {"git": b"abc\xff", "z": 1 + 2j, "type": torch.float8_e4m3fn, "seed": 10**9}
    for number, new in enumerate((True, False)):
        path = tmp_path / f"{number}.pt"
        torch.save({"model": torch.load(tmp_path / "t.pt"), **beside}, path, _use_new_zipfile_serialization=new)
        assert torch.equal(vt.load(path, heads=3).state_dict()["norm.weight"], model.norm.weight)
    torch.save({"model": torch.load(tmp_path / "t.pt")}, tmp_path / "4.pt", pickle_protocol=4)
    with pytest.raises(vt.InputError, match="a pickle of a later protocol"):
        vt.load(tmp_path / "4.pt")


def test_a_model_without_memory_needs_none():
    with torch.device("meta"):
        assert vt.build("vit-l/16", width=16_384, hidden=65_536).config.width == 16_384
    with pytest.raises(vt.InputError, match=r"the [\d,]+ parameters of the model take"):
        vt.build("vit-l/16", width=16_384, hidden=65_536)
