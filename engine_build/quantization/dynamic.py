"""Dynamic INT8 by ONNX Runtime, for engines on a CPU."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

import onnx

from engine_build.errors import NothingForInt8
from engine_build.onnx_graph.data_file import data_file
from engine_build.onnx_graph.external_data import pack_network

INTEGER = ("MatMulInteger", "ConvInteger", "QAttention", "DynamicQuantizeLSTM")
"""Operators of ONNX Runtime's dynamic quantization that compute in INT8; the rest store it."""


def quantize_dynamically(network: Path, path: Path) -> None:
    """Write a dynamically quantized network. Raises NothingForInt8 where ONNX Runtime cannot.

    Shapes that the exporter noted are dropped first: some contradict the network, and ONNX infers
    all of them anew.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Its advice to pre-process comes as a bare warning of the root logger.
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="dynamic-") as folder:
            source, quantized = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
            data = data_file(network)
            model = onnx.load(network, load_external_data=False)
            del model.graph.value_info[:]
            onnx.save(model, source)
            if data is not None:
                # onnx, which reads it, refuses a file with several hard links.
                shutil.copyfile(data, source.with_name(data.name))
            quantize_dynamic(
                source,
                quantized,
                weight_type=QuantType.QInt8,
                per_channel=True,
                use_external_data_format=data is not None,
            )
            pack_network(quantized, path)
        if not integer_layers(path):
            raise NothingForInt8(
                "the network has no MatMul, Gemm, Conv or LSTM with constant weights, which INT8 "
                "needs; ask for fp32."
            )
    except (OSError, MemoryError, NothingForInt8):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise NothingForInt8(
            f"ONNX Runtime cannot quantize the network dynamically ({reason}); ask for fp32, or "
            "export it with opset 17."
        ) from error


def integer_layers(network: Path) -> int:
    """Return how many layers of a dynamically quantized network compute in INT8."""
    nodes = onnx.load(network, load_external_data=False).graph.node
    return sum(node.op_type in INTEGER for node in nodes)
