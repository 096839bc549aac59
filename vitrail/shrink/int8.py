"""Weights and activations of eight bits that run as such, by ONNX Runtime."""

import json
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.files import whole
from vitrail.weights.onnx import INPUT, KEY, metadata

KINDS = ("MatMul", "Gemm")  # the products that are made eight bits
STEPS = 255  # of an activation, from its least to its greatest
REDUCED = 63  # of a weight, to either side of 0: one bit is left unused


def quantize_onnx(source: Path, target: Path, keep: Sequence[str] = ()) -> None:
    """An ONNX file with the matrices of its products as signed bytes, each output with a scale of its own; activations
    are made bytes as they come, by the range that they have (Bhandare et al. 2019; Prato et al. 2020).

    One bit is left unused, since two products of bytes may not fit sixteen bits, which processors without VNNI add
    them in: there the answers would be wrong. Products that are named stay as they are.
    """
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]  # noqa: PLC0415

    graph = onnx.load(str(source))
    about = json.dumps({**metadata(source), "int8": True})
    del graph.graph.value_info[:]  # shapes, some of which are those before its matrices were turned
    with _quiet(), tempfile.TemporaryDirectory() as folder, whole(target) as part:
        bare = Path(folder) / "bare.onnx"
        onnx.save(graph, str(bare))
        quantize_dynamic(
            str(bare),
            str(part),
            op_types_to_quantize=list(KINDS),
            nodes_to_exclude=list(keep),
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
        made = onnx.load(str(part))
        onnx.helper.set_model_props(made, {KEY: about})
        onnx.save(made, str(part))


def sensitive(source: Path, pictures: Iterable[Any]) -> list[str]:
    """The products of a file by how far eight bits take them from what they are, the farthest first.

    Seen on pictures (b c H W) with values from 0 to 1: of each product the mean square of the difference, of that of
    the product.
    """
    import onnx  # noqa: PLC0415
    import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415

    graph = onnx.load(str(source))
    held = {one.name: onnx.numpy_helper.to_array(one) for one in graph.graph.initializer}
    products = [node for node in graph.graph.node if node.op_type in KINDS and node.input[1] in held]
    del graph.graph.output[:]
    graph.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in dict.fromkeys(node.input[0] for node in products)
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    lost = {node.name: [0.0, 1e-30] for node in products}
    for some in pictures:
        names = [one.name for one in session.get_outputs()]
        seen = dict(zip(names, session.run(names, {INPUT: some}), strict=True))
        for node in products:
            turned = any(one.name == "transB" and one.i for one in node.attribute)
            weight = held[node.input[1]].T if turned else held[node.input[1]]
            x = seen[node.input[0]].reshape(-1, weight.shape[0])
            exact = x @ weight
            lost[node.name][0] += float(np.square(_bytes(x) @ _signed(weight) - exact).sum())
            lost[node.name][1] += float(np.square(exact).sum())
    return sorted(lost, key=lambda name: -lost[name][0] / lost[name][1])


def _bytes(x: Any) -> Any:
    """Activations as they are when they have been bytes: even steps from the least to the greatest, 0 among them."""
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    step = (high - low) / STEPS or 1.0
    return np.round(x / step) * step


def _signed(weight: Any) -> Any:
    """Weights (i o) likewise, each output with a step of its own."""
    step = np.abs(weight).max(0) / REDUCED
    step[step == 0] = 1
    return np.round(weight / step) * step


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
