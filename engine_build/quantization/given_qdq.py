"""QuantizeLinear and DequantizeLinear nodes that a source network holds already.

Such a network, of quantization-aware training or of another quantizer, is kept as it is. Its facts
are those of a network that is quantized here, with mode source, and `asymmetric`, a node that
TensorRT does not take.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from engine_build.datasets.dataset import Encoder
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import QDQ, read_model
from engine_build.quantization.layers import (
    Constants,
    multiply_accumulates,
    node_name,
    work_facts,
)
from engine_build.request import BuildRequest
from onboarding.values import LEAST_FP8, Precision

MODE = "source"
KEPT: dict[str, Precision] = {"int8": "int8", "uint8": "int8", "float8_e4m3fn": "fp8"}
"""Precision by the type of quantized values, in numpy's words."""
BIAS = "int32"
"""What quantizers of ONNX Runtime write biases in; dequantized once, it computes in float."""
MULTIPLY = ("MatMul", "Gemm", "Conv", "ConvTranspose")
VIEWS = ("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that change no value."""


class GivenQuantization(NamedTuple):
    """What a network's own nodes say."""

    types: tuple[str, ...]
    """Of quantized values, in numpy's words, sorted; without those of biases."""
    asymmetric: str | None
    """A node whose zero point is not a constant 0 of a signed type; None where there is none."""


def given_precision(networks: Mapping[str, Network]) -> Precision | None:
    """Return what a source's own nodes compute in; None for a float source."""
    given = [network for network in networks.values() if network.facts.get("mode") == MODE]
    return given[0].facts["precision"] if given else None


def given_network(network: Network, request: BuildRequest, encoder: Encoder) -> Network | None:
    """Return a source network as the one that engines are made of; None for a float one.

    Raises InputRefused where the model file wants something else than its nodes say, NetworkRefused
    for nodes that no engine of the request takes.
    """
    if not network.facts.get("qdq_nodes"):
        return None
    model = read_model(network.path)
    given = given_quantization(model)
    precision = kept_precision(given)
    refuse_other_request(request, precision, int(network.facts["qdq_nodes"]))
    if request.is_plan:
        refuse_for_tensorrt(given, precision, request.compute_capability)
    opt = request.opt_shape
    row = encoder.shaped(request.validation.values, dataclasses.replace(opt, batch=1))
    work = multiply_accumulates(model, row)
    eight_bit = [name for name in _multiplications_of_dequantized(model) if work.get(name)]
    facts = {"mode": MODE, "precision": precision, "share_at_sequence": opt.sequence}
    return dataclasses.replace(
        network,
        precision=precision,
        facts=facts | work_facts(model, work, eight_bit),
        tokenizer=None,
    )


def given_quantization(model: onnx.ModelProto) -> GivenQuantization:
    """Return what the nodes of a network say, those of its bodies left out."""
    constants, types = Constants(model), dict[str, str]()
    seen, asymmetric = set[str](), None
    for node in model.graph.node:
        if node.op_type not in QDQ:
            continue
        zero = constants.name(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        point = None if zero is None else constants.array(zero)
        kind = _type(node, point, constants, types)
        if node.op_type == "QuantizeLinear":
            types[node.output[0]] = kind
        is_constant = len(node.input) < 3 or not node.input[2] or point is not None
        is_symmetric = is_constant and (point is None or not point.astype(np.float32).any())
        if kind == "uint8" or (kind != BIAS and not is_symmetric):
            asymmetric = node_name(node) if asymmetric is None else asymmetric
        if kind != BIAS or node.op_type == "QuantizeLinear":
            seen.add(kind)
    return GivenQuantization(types=tuple(sorted(seen)), asymmetric=asymmetric)


def kept_precision(given: GivenQuantization) -> Precision:
    """Return the precision of a network's nodes. Raises NetworkRefused for other types, or two."""
    precisions = {KEPT.get(kind) for kind in given.types}
    (precision, *others) = sorted(precisions, key=str)
    if others or precision is None:
        raise NetworkRefused(
            "the source network's QuantizeLinear and DequantizeLinear nodes hold "
            f"{' and '.join(given.types).upper()}; allowed: INT8, or FLOAT8E4M3FN, in all of them. "
            "Quantize it so, or name the float network."
        )
    return precision


def refuse_other_request(request: BuildRequest, precision: Precision, nodes: int) -> None:
    """Refuse another precision, and whatever would quantize once more. Raises InputRefused."""
    engine = request.model.engine
    held = (
        f"the source network holds {nodes} QuantizeLinear and DequantizeLinear nodes and computes "
        f"in {precision}"
    )
    if engine.precision not in ("auto", precision):
        raise InputRefused(
            f"{held}, so it is no network of precision {engine.precision}; allowed: auto, "
            f"{precision}, which keep its nodes. Or name the float network."
        )
    for key in ("calibration", "sensitivity_search"):
        if getattr(engine, key) is not None:
            raise InputRefused(
                f"{held}, so nothing is quantized here, and engine.{key} has no use; take it out, "
                "or name the float network."
            )
    if request.quantization != "explicit":
        raise InputRefused(
            f"{held}, which is quantization explicit, and this engine's is "
            f"{request.quantization}; choose `quantization: explicit`, or name the float network."
        )


def refuse_for_tensorrt(
    given: GivenQuantization, precision: Precision, compute_capability: str
) -> None:
    """Refuse nodes that TensorRT does not take. Raises NetworkRefused."""
    if given.asymmetric is not None:
        raise NetworkRefused(
            f"node {given.asymmetric} of the source network quantizes asymmetrically (UINT8, or a "
            "zero point that is not 0), which TensorRT does not take; quantize symmetrically to "
            "INT8 (onnxruntime.quantization: QuantType.QInt8 and extra_options ActivationSymmetric "
            "and WeightSymmetric), or serve it on a CPU instance type."
        )
    if precision == "fp8" and float(compute_capability) < LEAST_FP8:
        raise NetworkRefused(
            f"the source network computes in fp8, which needs compute capability {LEAST_FP8}, and "
            f"this engine's is {compute_capability}; choose a newer GPU, or name the float network."
        )


def refuse_scales_of_rows(model: onnx.ModelProto) -> None:
    """Refuse scales along the axis that a product sums over. Raises NetworkRefused.

    No integer kernel can take them out of its sum; TensorRT and ONNX Runtime say so in other words,
    or compute in float.
    """
    constants, producers = Constants(model), {node.output[0]: node for node in model.graph.node}
    for node in model.graph.node:
        weight = producers.get(node.input[1]) if node.op_type in ("MatMul", "Gemm") else None
        if weight is None or weight.op_type != "DequantizeLinear":
            continue
        quantizer = producers.get(weight.input[0])
        name = constants.name((weight if quantizer is None else quantizer).input[0])
        scales = constants.name(weight.input[1])
        shape = () if name is None else constants.shape(name)
        if len(shape) < 2 or scales is None or constants.shape(scales) in ((), (1,)):
            continue
        attributes = {item.name: item.i for item in (*node.attribute, *weight.attribute)}
        columns = len(shape) - (2 if attributes.get("transB") else 1)
        if attributes.get("axis", 1) % len(shape) != columns:
            raise NetworkRefused(
                f"{node.op_type} {node_name(node)} of the source network multiplies by a weight "
                f"{list(shape)} that has a scale for each index of axis "
                f"{attributes.get('axis', 1)}, over which it sums; quantize the weight with axis "
                f"{columns} (in onnxruntime.quantization per_channel), or with one scale."
            )


def _multiplications_of_dequantized(model: onnx.ModelProto) -> list[str]:
    """Return the nodes that multiply two dequantized tensors: with one alone they stay float."""
    producers = {output: node for node in model.graph.node for output in node.output}

    def is_dequantized(tensor: str) -> bool:
        node = producers.get(tensor)
        while node is not None and node.op_type in VIEWS:
            node = producers.get(node.input[0])
        return node is not None and node.op_type == "DequantizeLinear"

    return [
        node_name(node)
        for node in model.graph.node
        if node.op_type in MULTIPLY and all(map(is_dequantized, node.input[:2]))
    ]


def _type(
    node: onnx.NodeProto,
    zero_point: np.ndarray | None,
    constants: Constants,
    types: Mapping[str, str],
) -> str:
    """Return the type of a node's quantized values, by its zero point, attribute or input."""
    if zero_point is not None:
        return str(zero_point.dtype.name)
    if node.op_type == "DequantizeLinear":
        constant = constants.name(node.input[0])
        if constant is not None:
            return str(constants.array(constant).dtype.name)
        return types.get(node.input[0], "uint8")
    for attribute in node.attribute:
        if attribute.name == "output_dtype" and attribute.i:
            return str(helper.tensor_dtype_to_np_dtype(attribute.i).name)
    return "uint8"
