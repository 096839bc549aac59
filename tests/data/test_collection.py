"""From folders, tables and idx files to pictures; what cannot be used is named and set aside."""

import gzip
import shutil

import numpy as np
import pytest
import torch
from corpus import encoded, good, gradient, write_bad, write_classes
from PIL import Image

from vitrail.data import View, collect, find, from_idx, idx_parts, labelled, read_idx_part, survey
from vitrail.data.collection import _store
from vitrail.data.pictures import Pictures
from vitrail.errors import InputError


def shown(_, items, __):
    return items


def gather(path, *, test=0.2, seed=0, limit=0.1, size=(8, 8), channels=3, memory=1.0):
    looked = survey(find(path), shown)
    return collect(looked, View(size, channels), test=test, seed=seed, limit=limit, memory=memory, progress=shown)


def pixels_of(pictures):
    return {file: pictures.store[row] for file, row in zip(pictures.files, pictures.rows, strict=True)}


def test_a_folder_for_each_class(tmp_path):
    """Every picture once, in its class, a fifth of each class to test on, the same ones each time."""
    parts = gather(write_classes(tmp_path, {"ant": 10, "bee": 20, "cat": 31}))
    assert parts.train.names == parts.test.names == ("ant", "bee", "cat")
    assert torch.bincount(parts.test.labels).tolist() == [2, 4, 7]
    files = [*parts.train.files, *parts.test.files]
    assert sorted(files) == sorted(str(file) for file in tmp_path.rglob("*.png"))
    for pictures in (parts.train, parts.test):
        for file, label in zip(pictures.files, pictures.labels.tolist(), strict=True):
            assert f"/{pictures.names[label]}/" in file
        for file, pixels in list(pixels_of(pictures).items())[:5]:
            with Image.open(file) as image:
                assert abs(pixels.float().mean().item() - np.asarray(image).mean()) < 3
    assert gather(tmp_path).test.files == parts.test.files != gather(tmp_path, seed=1).test.files
    assert parts.aside == []
    assert parts.leaks == []


@pytest.mark.parametrize(("first", "second"), [("train", "val"), ("train", "test"), ("Training", "Validation")])
def test_parts_that_are_there_already(tmp_path, first, second):
    write_classes(tmp_path / first, {"ant": 5, "bee": 7})
    write_classes(tmp_path / second, {"ant": 3, "bee": 2}, seed=1)
    parts = gather(tmp_path)
    assert torch.bincount(parts.train.labels).tolist() == [5, 7]
    assert torch.bincount(parts.test.labels).tolist() == [3, 2]


def test_val_before_test_which_is_left_for_later(tmp_path):
    for name in ("train", "val", "test"):
        write_classes(tmp_path / name, {"ant": 3, "bee": 3}, seed=len(name))
    parts = gather(tmp_path)
    assert all("/val/" in file for file in parts.test.files)
    assert (parts.held, parts.left) == ("validation", str(tmp_path / "test"))
    pictures, _ = labelled(find(tmp_path), ("ant", "bee"), View((8, 8), 3), shown)
    assert len(pictures) == 6
    assert all("/test/" in file for file in pictures.files)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [True, False])
def test_a_table_of_path_and_label(tmp_path, delimiter, header):
    write_classes(tmp_path / "all", {"ant": 5, "bee": 5})
    rows = [["path", "label"]] * header
    rows += [[str(f.relative_to(tmp_path)), f.parent.name] for f in sorted((tmp_path / "all").rglob("*.png"))]
    (tmp_path / "table.csv").write_text("\n".join(delimiter.join(row) for row in rows), encoding="utf-8-sig")
    parts = gather(tmp_path / "table.csv")
    assert len(parts.train) + len(parts.test) == 10
    assert parts.train.names == ("ant", "bee")


def test_a_table_that_says_the_split(tmp_path):
    write_classes(tmp_path, {"ant": 5, "bee": 5})
    files = sorted(tmp_path.rglob("*.png"))
    rows = [f"{f.name},{f.parent}/{f.name},{f.parent.name},{'val' if f.name < '002' else 'train'}" for f in files]
    (tmp_path / "t.csv").write_text("id,filename,class,split\n" + "\n".join(rows))
    parts = gather(tmp_path / "t.csv")
    assert (len(parts.train), len(parts.test), parts.held, parts.left) == (6, 4, "validation", "")
    (tmp_path / "t.csv").write_text(
        "id,filename,class,split\n" + "\n".join(row.replace("004.png,ant,train", "004.png,ant,test") for row in rows)
    )
    parts = gather(tmp_path / "t.csv")
    assert (len(parts.train), len(parts.test), parts.held) == (5, 4, "validation")
    assert parts.left == f"the test part of {tmp_path / 't.csv'}"
    assert [item.file.name for item in find(tmp_path / "t.csv").measured] == ["004.png"]


def test_a_class_of_two_is_in_both_parts(tmp_path):
    """A fifth of 30 and 2 pictures, each class by itself rounded, would leave the second without a test."""
    parts = gather(write_classes(tmp_path, {"ant": 30, "bee": 2}))
    assert torch.bincount(parts.train.labels).tolist() == [23, 1]
    assert torch.bincount(parts.test.labels).tolist() == [7, 1]
    assert sorted([*parts.train.files, *parts.test.files]) == sorted(map(str, tmp_path.rglob("*.png")))
    parts = gather(tmp_path, test=0.9)
    assert torch.bincount(parts.train.labels).tolist() == [3, 1]
    assert torch.bincount(parts.test.labels).tolist() == [27, 1]


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files(tmp_path, zipped):
    """As numpy wrote them, by the format's own description."""
    pixels = {
        name: np.random.default_rng(0).integers(0, 256, (count, 5, 7), np.uint8)
        for name, count in (("train", 23), ("t10k", 11))
    }
    for name, values in pixels.items():
        labels = (np.arange(len(values)) % 3).astype(np.uint8)
        for what, array in (("images-idx3", values), ("labels-idx1", labels)):
            data = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
            suffix = "ubyte.gz" if zipped else "ubyte"
            (tmp_path / f"{name}-{what}-{suffix}").write_bytes(gzip.compress(data) if zipped else data)
    parts = from_idx(tmp_path, 0.2, 0)
    assert np.array_equal(parts.train.images[:, 0].numpy(), pixels["train"])
    assert np.array_equal(parts.test.images[:, 0].numpy(), pixels["t10k"])
    assert parts.test.labels.tolist() == [n % 3 for n in range(11)]
    assert parts.train.names == ("0", "1", "2")
    again, part = read_idx_part(tmp_path)
    assert torch.equal(again.images, parts.test.images)
    assert part == parts.held == "test"
    image, _ = idx_parts(tmp_path)["train"]
    image.write_bytes(image.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"take it from its source again"):
        from_idx(tmp_path, 0.2, 0)


def test_every_bad_file_is_named_and_set_aside(tmp_path):
    """At least 40 files of every kind among good ones: none is used, none stops the others, none is forgotten."""
    write_classes(tmp_path, {"ant": 40, "bee": 40})
    names = write_bad(tmp_path / "ant")
    for name, data in good().items():
        (tmp_path / "bee" / name).write_bytes(data)
    (tmp_path / "empty").mkdir()
    write_classes(tmp_path, {"single": 1})
    (tmp_path / "ant" / ".hidden.png").write_bytes(b"junk")
    (tmp_path / "ant" / "Thumbs.db").write_bytes(b"junk")
    parts = gather(tmp_path, limit=0.5)
    named = {one.what for one in parts.aside}
    assert len(names) >= 40
    assert len(named) == len(parts.aside)
    assert {str(tmp_path / "ant" / name) for name in names} <= named
    assert named - {str(tmp_path / "ant" / name) for name in names} == {
        "class 'empty'",
        "class 'single'",
        str(tmp_path / "single" / "000.png"),
    }
    used = {*parts.train.files, *parts.test.files}
    assert not used & named
    assert len(used) == 80 + len(good())
    assert parts.train.names == ("ant", "bee")


def test_too_many_bad_files_stop_with_the_list(tmp_path):
    write_classes(tmp_path, {"ant": 40, "bee": 40})
    names = write_bad(tmp_path / "ant")
    with pytest.raises(InputError) as caught:
        gather(tmp_path)
    assert f"{len(names)} of {80 + len(names)} files cannot be read, more than data.bad=0.1 allows" in str(caught.value)
    assert "cut.jpg: cut short" in str(caught.value)


def test_bad_pixels_behind_good_headers_count_too(tmp_path):
    """A picture that opens but cannot be decoded is found when it is decoded."""
    write_classes(tmp_path, {"ant": 5, "bee": 5})
    for number in range(3):
        (tmp_path / "ant" / f"{number:03}.png").write_bytes(encoded(gradient(size=(300, 300)), "JPEG")[:-900])
    assert survey(find(tmp_path), shown).aside == []
    with pytest.raises(InputError, match="3 of 10 files cannot be read"):
        gather(tmp_path)
    assert len(gather(tmp_path, limit=0.4, test=0.3).aside) == 3


@pytest.mark.parametrize(
    ("counts", "says"),
    [({}, "holds no folder"), ({"ant": 0}, "there is no file in it"), ({"ant": 5}, "only one class, 'ant'")],
)
def test_too_little_gets_a_sentence(tmp_path, counts, says):
    write_classes(tmp_path, counts)
    with pytest.raises(InputError, match=says):
        gather(tmp_path)


def test_leaks_between_the_parts_are_found(tmp_path):
    write_classes(tmp_path / "train", {"ant": 5, "bee": 5})
    write_classes(tmp_path / "test", {"ant": 3, "bee": 3}, seed=1)
    shutil.copy(tmp_path / "train" / "ant" / "002.png", tmp_path / "test" / "bee" / "copy.png")
    assert gather(tmp_path).leaks == [
        (str(tmp_path / "test" / "bee" / "copy.png"), str(tmp_path / "train" / "ant" / "002.png"))
    ]


def test_classes_of_the_test_part_alone_are_set_aside(tmp_path):
    write_classes(tmp_path / "train", {"ant": 5, "bee": 5})
    write_classes(tmp_path / "test", {"ant": 3, "cow": 3}, seed=1)
    parts = gather(tmp_path)
    assert parts.train.names == ("ant", "bee")
    assert len(parts.test) == 3
    assert {one.what for one in parts.aside} == {"class 'cow'", *map(str, (tmp_path / "test" / "cow").iterdir())}


def test_pictures_to_measure_on_are_matched_by_name(tmp_path):
    """Classes stand where the model has them, whatever others are there."""
    write_classes(tmp_path, {"bee": 4, "ant": 3, "cow": 2})
    pictures, aside = labelled(find(tmp_path), ("cat", "bee", "ant"), View((8, 8), 3), shown)
    assert torch.bincount(pictures.labels).tolist() == [0, 4, 3]
    assert len(aside) == 2
    assert "which the model does not know" in aside[0].why


def test_many_pictures_go_to_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = gather(write_classes(tmp_path / "all", {"ant": 5, "bee": 5}), memory=1e-9)
    again = gather(tmp_path / "all")
    assert isinstance(_store((3, 5), 1e-9), np.memmap)
    assert torch.equal(parts.train.images, again.train.images)
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_statistics_are_numpy_s(tmp_path):
    parts = gather(write_classes(tmp_path, {"ant": 11, "bee": 7}))
    values = parts.train.images.numpy() / 255
    found = parts.train.statistics()
    np.testing.assert_allclose(found.mean, values.mean((0, 2, 3)), rtol=1e-9)
    np.testing.assert_allclose(found.std, values.std((0, 2, 3)), rtol=1e-9)


def test_labels_with_gaps_are_the_classes_that_are_there(tmp_path):
    """As in EMNIST's letters, which begin at 1; a class of the test part alone is set aside."""
    for name, labels in (("train", [1, 2, 4] * 5), ("test", [4, 2, 3])):
        for what, array in (
            ("images-idx3", np.zeros((len(labels), 5, 7), np.uint8)),
            ("labels-idx1", np.array(labels, np.uint8)),
        ):
            data = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
            (tmp_path / f"{name}-{what}-ubyte").write_bytes(data)
    parts = from_idx(tmp_path, 0.2, 0)
    assert parts.train.names == ("1", "2", "4")
    assert parts.train.labels.tolist() == [0, 1, 2] * 5
    assert parts.test.labels.tolist() == [2, 1]
    assert [one.what for one in parts.aside] == ["test 2"]


def test_a_training_part_alone_is_split(tmp_path):
    write_classes(tmp_path / "train", {"ant": 10, "bee": 10})
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "unlabelled.png").write_bytes(good()["plain.png"])
    assert gather(tmp_path).train.names == ("ant", "bee")


def test_a_class_may_be_called_train(tmp_path):
    write_classes(tmp_path, {"bus": 10, "train": 10})
    assert gather(tmp_path).train.names == ("bus", "train")


def test_a_table_beside_its_folder_of_pictures(tmp_path):
    write_classes(tmp_path, {"images": 10})
    rows = [f"images/{n:03}.png,{'odd' if n % 2 else 'even'}" for n in range(10)]
    (tmp_path / "labels.csv").write_text("file,label\n" + "\n".join(rows))
    assert gather(tmp_path).train.names == ("even", "odd")


def test_files_of_no_class_are_named(tmp_path):
    write_classes(tmp_path, {"ant": 10, "bee": 10})
    (tmp_path / "stray.png").write_bytes(good()["plain.png"])
    assert [one.what for one in gather(tmp_path).aside] == [str(tmp_path / "stray.png")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("a,b\nc,d", "has no columns 'path' and 'label'"),
        ("path,label\nx.png", "a row without a label"),
        ("path,label,split\nx.png,a,holdout", "says 'holdout' in column 'split'"),
        ("path,label,split\nx.png,a,train", "puts all pictures in one part"),
        ("path,label\n" + "x" * 200_000 + ",a", "is not a table of path and label"),
    ],
)
def test_a_table_that_is_none_gets_a_sentence(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        find(tmp_path / "t.csv")


def test_pictures_in_memory_are_fitted_as_files_are(tmp_path):
    """The middle, scaled: against what Pillow makes of the same picture."""
    from vitrail.data import Pictures, read_pixels

    pixels = np.asarray(
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8)).resize((40, 24))
    )
    Image.fromarray(pixels).save(tmp_path / "p.png")
    store = torch.from_numpy(pixels.transpose(2, 0, 1)[None].copy())
    pictures = Pictures.of(store, torch.tensor([0]), ["a"], "p")
    for size, channels in (((12, 12), 3), ((12, 12), 1), ((24, 40), 1), ((16, 32), 3)):
        expected = read_pixels(tmp_path / "p.png", size, channels).astype(float)
        assert np.abs(pictures.fitted(size, channels).images[0].numpy() - expected).mean() < 2


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 1.0])
def test_a_part_of_each_class_is_drawn_and_smaller_parts_are_in_larger_ones(fraction):
    labels = torch.tensor([0] * 40 + [1] * 7 + [2])
    pictures = Pictures.of(torch.zeros(48, 1, 2, 2, dtype=torch.uint8), labels, "abc", "p")
    some, more = pictures.some(fraction, 3), pictures.some(min(1.0, 2 * fraction), 3)
    counts = some.labels.bincount(minlength=3).tolist()
    assert counts == [max(1, round(fraction * count)) for count in (40, 7, 1)]
    assert set(some.rows.tolist()) <= set(more.rows.tolist())
    assert fraction == 1 or set(pictures.some(0.5, 4).rows.tolist()) != set(pictures.some(0.5, 3).rows.tolist())
