"""The opset from which on Q/DQ nodes may have FP16 scales."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from engine_build.errors import NetworkRefused, one_line

QDQ = ("QuantizeLinear", "DequantizeLinear")
QDQ_OPSET = 19
"""The first whose scales may be FP16."""
LARGEST_CONVERTED_BYTES = 1 << 20
"""Of a weight that the conversion to another opset may read, as it does axes and shapes."""


def at_qdq_opset(
    model: onnx.ModelProto, *, largest: int = LARGEST_CONVERTED_BYTES
) -> onnx.ModelProto:
    """Return the network at an opset whose Q/DQ nodes may have FP16 scales, or refuse it.

    Weights above `largest` bytes are taken out meanwhile: ONNX's converter writes the network into
    one message, which holds 2 GiB.
    """
    opsets = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    version = max(opsets, default=1)
    if version >= QDQ_OPSET or not any(node.op_type in QDQ for node in model.graph.node):
        return model
    weights = _take_out_weights(model, largest)
    try:
        converted = onnx.version_converter.convert_version(model, QDQ_OPSET)
        _put_back_weights(converted, weights)
        return converted
    except Exception as error:
        reason = one_line(error, 200)
        raise NetworkRefused(
            f"the Q/DQ network of opset {version} cannot be raised to opset {QDQ_OPSET}, which "
            f"FP16 scales need ({reason}); export it at opset {QDQ_OPSET}."
        ) from error
    finally:
        _put_back_weights(model, weights)


def _take_out_weights(model: onnx.ModelProto, largest: int) -> dict[str, bytes]:
    """Return the bytes of large weights by name, which the network then has no longer."""
    weights = {
        weight.name: weight.raw_data
        for weight in model.graph.initializer
        if len(weight.raw_data) > largest
    }
    for weight in model.graph.initializer:
        if weight.name in weights:
            weight.ClearField("raw_data")
    return weights


def _put_back_weights(model: onnx.ModelProto, weights: Mapping[str, bytes]) -> None:
    for weight in model.graph.initializer:
        if weight.name in weights:
            weight.raw_data = weights[weight.name]
