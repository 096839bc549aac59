"""Weights and activations of eight bits that run as such, by ONNX Runtime."""

import gzip
import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.files import whole
from vitrail.progress import Progress, silent
from vitrail.weights.onnx import INPUT, KEY, OnnxModel, metadata

KINDS = ("MatMul", "Gemm")  # the products that are made eight bits
LEAST = 256  # numbers of a kernel that is worth it
NARROW = 16  # numbers that come in or out of a product, below which there is nothing to gain,
SMALL = 2**13  # if its matrix has fewer than these
FLOATS = ("cnn",)  # families that have bytes on disk alone


def quantize_onnx(source: Path, target: Path, keep: Sequence[str] = ()) -> None:
    """An ONNX file with the matrices of its products as signed bytes, each output with a scale of its own; activations
    are made bytes as they come, by the range that they have (Bhandare et al. 2019; Prato et al. 2020).

    Kernels of convolutions are bytes in the file, and floats again once it is loaded; a model of convolutions has its
    head so too.

    One bit is left unused, since two products of bytes may not fit sixteen bits, which processors without VNNI add
    them in: there the answers would be wrong. Products that are named, and small narrow ones, stay as they are. A
    target that ends in .gz is packed, which takes a fifth of it again: most of the bytes are near 0.
    """
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]  # noqa: PLC0415

    graph, facts = onnx.load(str(source)), metadata(source)
    keep = [*keep, *_products(graph.graph, narrow=True)]
    about, convolves = json.dumps({**facts, "int8": True}), facts["family"] in FLOATS
    del graph.graph.value_info[:]  # shapes, some of which are those before its matrices were turned
    with _quiet(), tempfile.TemporaryDirectory() as folder, whole(target) as part:
        bare = Path(folder) / "bare.onnx"
        onnx.save(graph, str(bare))
        if not convolves:
            quantize_dynamic(
                str(bare),
                str(part),
                op_types_to_quantize=list(KINDS),
                nodes_to_exclude=[*keep, *(f"{name}_MatMul" for name in keep)],  # which a Gemm becomes first
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
                extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},  # of what comes out of ONNX Runtime's own
            )
        model = onnx.load(str(bare if convolves else part))
        _held_as_bytes(model.graph, ("Conv", "Gemm") if convolves else ("Conv",))
        onnx.helper.set_model_props(model, {KEY: about})
        data = model.SerializeToString()
        part.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)


def _held_as_bytes(graph: Any, kinds: Sequence[str]) -> None:
    """Have weights of some operators be bytes, each output with a scale of its own; they are floats again once ONNX
    Runtime has loaded the file.
    """
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415

    held = {one.name: one for one in graph.initializer}
    named = dict.fromkeys(node.input[1] for node in graph.node if node.op_type in kinds and node.input[1] in held)
    for name in named:
        weight = numpy_helper.to_array(held[name])
        if weight.dtype != np.float32 or weight.size < LEAST:
            continue
        largest = np.abs(weight).max(tuple(range(1, weight.ndim)), keepdims=True)
        scales = np.maximum(largest / 127, 1e-12).astype(np.float32)
        graph.initializer.remove(held[name])
        graph.initializer.append(numpy_helper.from_array(np.rint(weight / scales).astype(np.int8), f"{name}.bytes"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{name}.scales"))
        floats = helper.make_node("Cast", [f"{name}.bytes"], [f"{name}.floats"], to=TensorProto.FLOAT)
        graph.node.insert(0, helper.make_node("Mul", [f"{name}.floats", f"{name}.scales"], [name]))
        graph.node.insert(0, floats)


def products(source: Path) -> list[str]:
    """The products of a file that can be made eight bits: those with a matrix, and not narrow."""
    import onnx  # noqa: PLC0415

    if metadata(source)["family"] in FLOATS:
        return []
    return _products(onnx.load(str(source)).graph, narrow=False)


def _products(graph: Any, *, narrow: bool) -> list[str]:
    """Those with a matrix that is narrow, or that is not."""
    held = {one.name: min(one.dims, default=0) < NARROW and prod(one.dims) < SMALL for one in graph.initializer}
    return [node.name for node in graph.node if node.op_type in KINDS and held.get(node.input[1]) is narrow]


def sensitive(source: Path, pictures: Any, progress: Progress = silent) -> list[str]:
    """The products of a file by how far each, as eight bits alone, takes its answers from what they are, the farthest
    first: seen on pictures (b c H W) with values from 0 to 1.
    """
    every = products(source)
    exact, far = _answers(source, pictures), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in progress("products tried as eight bits", every, len(every)):
            one = Path(folder) / "one.onnx"
            quantize_onnx(source, one, [other for other in every if other != name])
            far[name] = float(np.square(_answers(one, pictures) - exact).mean())
    return sorted(far, key=lambda name: -far[name])


def _answers(path: Path, pictures: Any) -> Any:
    return OnnxModel(path, None).session.run(["logits"], {INPUT: pictures})[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what ONNX Runtime says of its own ways."""
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
