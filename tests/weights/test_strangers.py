"""Files from a stranger: none runs code, none exhausts memory, each gets one sentence."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from limits import limited_here

import vitrail as vt

SHAPE = {"image": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}


class Harm:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def timm_state():
    path = "m.pt"
    vt.save(vt.build("vit", **SHAPE), path, format="timm")
    Path(f"{path}.json").unlink()
    return torch.load(path)


def npz_arrays():
    vt.save(vt.build("vit", **SHAPE), "m.npz", format="npz")
    Path("m.npz.json").unlink()
    with np.load("m.npz") as file:
        return dict(file)


def header(content, data=b""):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(offsets, shape=(4,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def write(name, data):
    Path(name).write_bytes(data)
    return name


def cut(name, share):
    os.truncate(name, int(Path(name).stat().st_size * share))
    return name


def saved(content, name="s.pt", **options):
    torch.save(content, name, **options)
    return name


def npy(shape, dtype="<f4", data=b"", descr=None):
    text = repr({"descr": descr or dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def zipped(name, compression=zipfile.ZIP_STORED, **entries):
    with zipfile.ZipFile(name, "w", compression) as archive:
        for entry, data in entries.items():
            archive.writestr(entry.replace("__", "/"), data)
    return name


def pickled(content, name="p.pt"):
    return write(name, pickle.dumps(content))


def legacy_with(count):
    """The older layout of torch.save, whose storage claims so many numbers."""
    buffer = io.BytesIO()
    torch.save({"cls_token": torch.zeros(4)}, buffer, _use_new_zipfile_serialization=False)
    data = buffer.getvalue()
    return data.replace(b"K\x04N", b"\x8a\x06" + count.to_bytes(6, "little") + b"N")


def npz_with(**changes):
    np.savez("c.npz", **{**npz_arrays(), **changes})
    return "c.npz"


def timm_with(drop=(), **changes):
    state = {name: tensor for name, tensor in timm_state().items() if name not in drop}
    return saved({**state, **{name.replace("__", "."): tensor for name, tensor in changes.items()}})


def folder(**files):
    Path("f").mkdir()
    for name, content in files.items():
        write(f"f/{name.replace('__', '.')}", content)
    return "f"


def hf_with(**changes):
    vt.save(vt.build("vit", **SHAPE), "h", format="hf")
    about = json.loads(Path("h/config.json").read_text())
    Path("h/config.json").write_text(json.dumps({**about, **changes}))
    return "h"


def run_with(**changes):
    vt.save(vt.build("vit", **SHAPE), "r")
    about = json.loads(Path("r/config.json").read_text())
    about["model"].update(changes)
    Path("r/config.json").write_text(json.dumps(about))
    return "r"


CASES = {
    "nothing there": (lambda: "nowhere.npz", "is not there"),
    "an empty file": (lambda: write("e.safetensors", b""), "is empty"),
    "an empty directory": (folder, "should hold one file of weights, and holds none"),
    "a directory with two": (
        lambda: folder(a__pt=b"x", b__pt=b"y"),
        "should hold one file of weights, and holds several",
    ),
    "text": (lambda: write("t.safetensors", b"<!DOCTYPE html><html>404</html>"), "no file of weights"),
    "random bytes": (lambda: write("r.pt", b"\x07" + bytes(range(200))), "no file of weights"),
    "a pickle with code": (
        lambda: pickled({"cls_token": Harm("mark")}),
        "a pickle of a later protocol",
    ),
    "a torch file with code": (
        lambda: saved({"cls_token": Harm("mark")}),
        "which is more than weights are made of and could do harm",
    ),
    "a pickle of a class": (
        lambda: pickled(vt.InputError("x")),
        "a pickle of a later protocol",
    ),
    "an npz with code": (
        lambda: npz_with(cls=np.array([Harm("mark")], dtype=object)),
        "pickled Python objects",
    ),
    "an npz that hides its objects": (
        lambda: zipped("o.npz", **{"embedding__kernel.npy": npy((1,), descr="|O", data=pickle.dumps([Harm("mark")]))}),
        "pickled Python objects",
    ),
    "an npz bomb": (
        lambda: zipped("b.npz", zipfile.ZIP_DEFLATED, **{"cls.npy": npy((1, 1, 10**7), data=bytes(4 * 10**7))}),
        "times its size",
    ),
    "an npz that claims much": (
        lambda: zipped("c.npz", **{"embedding__kernel.npy": npy((10**6, 10**6), data=bytes(64))}),
        "does not hold as many numbers as it says",
    ),
    "an npz with a negative side": (
        lambda: zipped("c.npz", **{"embedding__kernel.npy": npy((-1, 4), data=bytes(64))}),
        "damaged",
    ),
    "an npz with a header of code": (
        lambda: zipped("c.npz", **{"cls.npy": npy("__import__('os').system('touch mark')")}),
        "damaged",
    ),
    "an npz cut short": (lambda: (npz_with(), cut("c.npz", 0.6))[1], "damaged"),
    "an npz of another thing": (lambda: zipped("d.npz", **{"x.npy": npy((2,), data=bytes(8))}), "in no format known"),
    "an npz of text": (lambda: npz_with(cls=np.array("hello")), "does not hold floating-point numbers"),
    "a torch bomb": (
        lambda: zipped("b.pt", zipfile.ZIP_DEFLATED, **{"b__data.pkl": b"\x80\x02}.", "b__data__0": bytes(10**7)}),
        "times its size",
    ),
    "a compressed torch file": (
        lambda: zipped("b.pt", zipfile.ZIP_DEFLATED, **{"b__data.pkl": b"\x80\x02}.", "b__version": b"3\n"}),
        "compressed archive",
    ),
    "a torch file cut short": (lambda: cut(saved(timm_state()), 0.5), "damaged"),
    "a tensor larger than its file": (
        lambda: timm_with(pos_embed=torch.zeros(1).as_strided((1, 10**9, 24), (0, 0, 0))),
        "claims more numbers than the file holds for it",
    ),
    "an older torch file that claims much": (
        lambda: write("l.pt", legacy_with(10**12)),
        "asks for 1,000,000,000,000 numbers",
    ),
    "a torch file without names": (lambda: saved([torch.zeros(3)]), "no tensors by name"),
    "safetensors whose header is too long": (
        lambda: write("h.safetensors", struct.pack("<Q", 10**12) + b"{" + bytes(100)),
        "not safetensors",
    ),
    "safetensors with no JSON": (lambda: write("j.safetensors", header(b"{" + b"x" * 50)), "not safetensors"),
    "safetensors that overlap": (
        lambda: write("o.safetensors", header({"a": one((0, 16)), "b": one((8, 24))}, bytes(24))),
        "not safetensors",
    ),
    "safetensors beyond the end": (
        lambda: write("x.safetensors", header({"a": one((0, 16))}, bytes(8))),
        "not safetensors",
    ),
    "safetensors that overflow": (
        lambda: write("v.safetensors", header({"a": one((0, 16), (2**62, 2**62))}, bytes(16))),
        "not safetensors",
    ),
    "safetensors with a negative offset": (
        lambda: write("n.safetensors", header({"a": one((-16, 0))}, bytes(16))),
        "not safetensors",
    ),
    "safetensors of an odd type": (
        lambda: write("q.safetensors", header({"a": one((0, 4), (4,), "Q4")}, bytes(4))),
        "not safetensors",
    ),
    "safetensors deeply nested": (
        lambda: write("d.safetensors", header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")),
        "not safetensors",
    ),
    "whole numbers for weights": (
        lambda: timm_with(head__weight=torch.zeros(5, 24, dtype=torch.int64)),
        "does not hold floating-point numbers",
    ),
    "shapes that disagree": (
        lambda: timm_with(blocks__1__mlp__fc1__weight=torch.zeros(99, 24)),
        "of another shape",
    ),
    "attention that cannot be cut": (lambda: timm_with(blocks__1__attn__qkv__weight=torch.zeros(71, 24)), "cut evenly"),
    "positions in no square": (lambda: timm_with(pos_embed=torch.zeros(1, 16 + 7, 24)), "which are no square"),
    "no first block": (
        lambda: timm_with(drop=[name for name in timm_state() if name.startswith("blocks.0.")]),
        "blocks.0.norm1.weight",
    ),
    "a patch of another shape": (
        lambda: timm_with(patch_embed__proj__weight=torch.zeros(24, 48)),
        "axes were expected",
    ),
    "a billion layers by name": (
        lambda: timm_with(blocks__999999999__norm1__weight=torch.zeros(24)),
        "beyond all bounds",
    ),
    "a config of another model": (lambda: hf_with(hidden_size=48), "config.json says width 48"),
    "a config with an unknown activation": (lambda: hf_with(hidden_act="quick_gelu"), "hidden_act 'quick_gelu'"),
    "a config that is no JSON": (
        lambda: folder(config__json=b"{", model__safetensors=header({"a": one((0, 16))}, bytes(16))),
        "is not valid JSON",
    ),
    "many tensors that share few numbers": (
        lambda: saved(dict.fromkeys([*timm_state(), *map(str, range(99))], torch.zeros(99, 99))),
        "more numbers than it has bytes for",
    ),
    "a name that is none": (lambda: saved({0: torch.zeros(3)}), "no tensors by name"),
    "a tensor without memory": (
        lambda: timm_with(head__bias=torch.zeros(5, device="meta")),
        "not an array of numbers in memory",
    ),
    "positions of one axis": (lambda: timm_with(pos_embed=torch.zeros(17)), "axes were expected"),
    "positions that are missing": (
        lambda: timm_with(drop=["pos_embed"]),
        "'pos_embed' is missing; if the model has no",
    ),
    "registers of another width": (
        lambda: timm_with(reg_token=torch.zeros(1, 3, 7), pos_embed=torch.zeros(1, 20, 24)),
        "do not fit together",
    ),
    "a run with computed positions of a vast picture": (
        lambda: run_with(image=40_000, position="sincos2d"),
        "beyond all bounds",
    ),
    "a run with numbers beyond counting": (lambda: run_with(registers=10**30), "beyond all bounds"),
    "labels that are none": (
        lambda: (run_with(), write("r/labels.json", b"5"), "r")[2],
        "are not a list of names",
    ),
    "a device": (lambda: "/dev/zero", "is not there"),
    "a run that claims many layers": (lambda: run_with(depth=10**5), "describes 100000 layers"),
    "a run that claims a great width": (lambda: run_with(width=3 * 10**9, hidden=10**9), "beyond all bounds"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_no_harm(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    make, says = CASES[case]
    path = make()
    with limited_here(100), pytest.raises(vt.InputError) as caught:
        vt.load(path, heads=3)
    text = str(caught.value)
    assert says in text
    assert "\n" not in text
    assert len(text) < 500
    assert not (tmp_path / "mark").exists()
