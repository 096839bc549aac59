"""Weights and activations of eight bits that run as such, by ONNX Runtime."""

import json
import logging
import tempfile
from pathlib import Path

from vitrail.files import whole
from vitrail.weights.onnx import KEY, metadata


def quantize_onnx(source: Path, target: Path) -> None:
    """An ONNX file with the matrices of its products as signed bytes, each output with a scale of its own; activations
    are made bytes as they come, by the range that they have (Bhandare et al. 2019; Prato et al. 2020).

    One bit is left unused, since two products of bytes may not fit sixteen bits, which processors without VNNI add
    them in: there the answers would be wrong.
    """
    import onnx  # noqa: PLC0415
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]  # noqa: PLC0415

    graph = onnx.load(str(source))
    about = json.dumps({**metadata(source), "int8": True})
    del graph.graph.value_info[:]  # shapes, some of which are those before its matrices were turned
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as folder, whole(target) as part:
            bare = Path(folder) / "bare.onnx"
            onnx.save(graph, str(bare))
            quantize_dynamic(
                str(bare),
                str(part),
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
            )
            made = onnx.load(str(part))
            onnx.helper.set_model_props(made, {KEY: about})
            onnx.save(made, str(part))
    finally:
        log.setLevel(level)
