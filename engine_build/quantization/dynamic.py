"""Dynamic INT8 by ONNX Runtime, for engines on a CPU."""

from __future__ import annotations

import logging
from pathlib import Path

import onnx

from engine_build.errors import NothingForInt8


def quantize_dynamically(network: Path, path: Path) -> None:
    """Write a dynamically quantized network. Raises NothingForInt8 where ONNX Runtime cannot.

    Shapes that the exporter noted are dropped first: some contradict the network, and ONNX infers
    all of them anew.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(network)
    del model.graph.value_info[:]
    # Its advice to pre-process comes as a bare warning of the root logger.
    logging.getLogger().setLevel(logging.ERROR)
    try:
        quantize_dynamic(model, str(path), weight_type=QuantType.QInt8, per_channel=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise NothingForInt8(
            f"ONNX Runtime cannot quantize the network dynamically ({reason}); ask for fp32, or "
            "export it with opset 17."
        ) from error
