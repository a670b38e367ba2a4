"""An ONNX file: read and checked, its opset within what TensorRT's parser documents.

Sources: onnx-tensorrt docs/operators.md of releases 10.0-GA ("opset 9 to opset 20") and 10.15
("opset 9 to opset 24"); TensorRT 11's ONNX Opset Guide (minimum 9, maximum 25). A release between
two rows has the older one's range.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from engine_build.datasets.dataset import Array
from engine_build.errors import NetworkRefused, SourceFault, one_line
from engine_build.onnx_graph.external_data import (
    external_files,
    external_names,
    load_weights,
    model_tensors,
    refuse_large,
    subgraphs,
    without_data,
)
from onboarding.manifest import TensorRecord
from onboarding.platform import ServingPlatform
from onboarding.values import LEAST_INT8_OPSET

RANGES: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((10, 0), (9, 20)),
    ((10, 15), (9, 24)),
    ((11, 0), (9, 25)),
)
"""(TensorRT release, (least opset, largest opset)), the oldest release first."""


def opset_range(tensorrt: str) -> tuple[int, int] | None:
    """Return the least and largest opset of an exact TensorRT build, such as 10.16.1.11.

    None for releases older than the table.
    """
    major, minor = (*map(int, tensorrt.split(".")[:2]), 0)[:2]
    return next(
        (allowed for release, allowed in reversed(RANGES) if release <= (major, minor)), None
    )


def refuse_opset(opset: int, platform: ServingPlatform, *, may_be_int8: bool = False) -> None:
    """Raise NetworkRefused for an opset beyond the platform's TensorRT, or without INT8."""
    allowed = None if platform.tensorrt is None else opset_range(platform.tensorrt)
    if allowed is not None and not allowed[0] <= opset <= allowed[1]:
        raise NetworkRefused(
            f"the network has opset {opset}, and TensorRT {platform.tensorrt} of platform "
            f"{platform.name} reads {allowed[0]} to {allowed[1]}; export it with opset 17, or "
            "convert it with onnx.version_converter.convert_version(model, 17)."
        )
    if may_be_int8 and opset < LEAST_INT8_OPSET:
        raise NetworkRefused(
            f"the network has opset {opset}, and INT8 needs {LEAST_INT8_OPSET} or newer; export it "
            "with opset 17, or ask for precision fp16 or fp32."
        )


QDQ = ("QuantizeLinear", "DequantizeLinear")
DATATYPES = {
    "FLOAT": "FP32",
    "FLOAT16": "FP16",
    "DOUBLE": "FP64",
    "BFLOAT16": "BF16",
    "STRING": "BYTES",
}
"""KServe v2 names where they differ from ONNX's."""


WAYS_OUT = {
    "Field 'shape' of 'type' is required": (
        "give each input and output its axes: export it again, or for outputs alone save "
        "onnx.shape_inference.infer_shapes(model)"
    ),
    "ir_version": "set model.ir_version to that number or less with the onnx package, and save it",
    "in initializer but not in graph input": (
        "files of ir_version 3 list weights as inputs: set model.ir_version to 4, and save it"
    ),
    "initializer name is not unique": (
        "two weights have one name: rename the second one, or remove it if it is the same, with "
        "the onnx package"
    ),
    "topologically sorted": (
        "a node reads a tensor that no node before it makes: export it again, or sort its nodes"
    ),
}
"""By what ONNX's checker says of a file."""


def read_model(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """Return a parsed and checked ONNX file. Raises SourceFault.

    `weights`: those in data files beside it are read into memory.
    """
    refuse_large(path.name, path.stat().st_size)
    try:
        model = onnx.load(path, load_external_data=False)
        names = external_files(path, model)
        # By path: the checker of a loaded model would hold two copies of it.
        onnx.checker.check_model(without_data(model) if names else str(path))
        if weights and names:
            load_weights(model, path.parent)
    except (SourceFault, OSError):
        raise
    except Exception as error:
        reason = one_line(error)
        way_out = next(
            (way_out for words, way_out in WAYS_OUT.items() if words in reason),
            "it may be damaged or cut short: export it again",
        )
        raise SourceFault(f"{path.name} is no valid ONNX file ({reason}); {way_out}.") from error
    return model


def opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model is written in."""
    return next(
        (int(item.version) for item in model.opset_import if item.domain in ONNX_DOMAINS), 0
    )


def qdq_node_count(model: onnx.ModelProto) -> int:
    """Return the number of QuantizeLinear and DequantizeLinear nodes."""
    return sum(node.op_type in QDQ for node in model.graph.node)


def tensor_records(tensors: Iterable[onnx.ValueInfoProto]) -> tuple[TensorRecord, ...]:
    """Return names, KServe datatypes and shapes of inputs or outputs; -1 is a dynamic axis."""
    records, names = [], onnx.TensorProto.DataType
    for tensor in tensors:
        kind = tensor.type.tensor_type
        number = kind.elem_type
        name = str(names.Name(number)) if number in names.values() else f"number {number}"
        if tensor.type.WhichOneof("value") != "tensor_type":
            name = str(tensor.type.WhichOneof("value"))
        dims = (dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
        datatype = DATATYPES.get(name, name)
        records.append(TensorRecord(name=tensor.name, datatype=datatype, shape=tuple(dims)))
    return tuple(records)


def refuse_broken_weights(model: onnx.ModelProto) -> None:
    """Refuse NaN and Inf in weights by name: their engines look plausible."""
    for name, weight in model_tensors(model):
        try:
            values: Array = numpy_helper.to_array(weight)
        except (KeyError, TypeError, ValueError) as error:
            raise SourceFault(
                f"weight {name} cannot be read ({error}); the file may be damaged: export it again."
            ) from error
        if values.dtype.kind != "f" or np.isfinite(values).all():
            continue
        # Attention adds masks of zeros and negative infinities to its scores.
        if not ((values == 0) | np.isneginf(values)).all():
            raise SourceFault(f"weight {name} holds NaN or Inf; train or export the source again.")


KEEP_VALUES = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output has the values of their first input, if in another shape."""
KEEP_SHAPE = frozenset({"Cast", "DequantizeLinear", "Identity", "QuantizeLinear"})
"""Operators between a weight and its table."""


def with_table_rows(
    model: onnx.ModelProto, records: Sequence[TensorRecord]
) -> tuple[TensorRecord, ...]:
    """Return the records of a network's inputs, each with the rows of the table it is looked up in.

    Of several tables the smallest counts. An input whose columns belong to different tables, or
    whose values the network changes first, has none.
    """
    rows = table_rows(model)
    return tuple(
        record.model_copy(update={"table_rows": rows[record.name]})
        if record.name in rows
        else record
        for record in records
    )


def table_rows(model: onnx.ModelProto) -> dict[str, int]:
    """Return the rows of the smallest table of each input that reaches a Gather unchanged."""
    shapes = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    inputs = {value.name: value.name for value in model.graph.input}
    rows: dict[str, int] = {}
    for node in model.graph.node:
        first = node.input[0] if node.input else ""
        if node.op_type == "Constant":
            for item in node.attribute:
                if item.name == "value":
                    shapes[node.output[0]] = tuple(item.t.dims)
        if node.op_type in KEEP_SHAPE and first in shapes:
            shapes[node.output[0]] = shapes[first]
        if node.op_type in KEEP_VALUES and first in inputs:
            inputs[node.output[0]] = inputs[first]
        if node.op_type == "Gather" and first in shapes and node.input[1] in inputs:
            axes = [helper.get_attribute_value(item) for item in node.attribute]
            name, size = inputs[node.input[1]], shapes[first][axes[0] if axes else 0]
            rows[name] = min(size, rows.get(name, size))
    return rows


OWN = re.compile(r"int8_(\d+_\w+|gate_\d+(_\w+)?)|fp8_(zero|\d+_\w+)|gated_\d+_\w+")
"""Whole names."""
SUFFIXES = (
    *("_weight_int8", "_weight_fp8", "_weight_scale", "_weight_zero", "_weight_dequantized"),
    *("_bias", "_shifted_away", "_of_shifted"),
    *("_fp16", "_as_fp16", "_as_fp32", "_output_fp32"),
)
"""What follows the name of another tensor."""


def free_own_names(model: onnx.ModelProto) -> bool:
    """Rename tensors inside a network that bear a name of this build's; True where some do.

    Quantization and half precision add tensors named `int8_<number>_…`, `fp8_<number>_…`, and by a
    tensor of the network with a suffix. Exporters choose such names too: MXNet's add `fc1_bias`
    beside `fc1`. Raises SourceFault for an input or output, whose names callers know.
    """
    names = set(_names(model.graph))
    taken = {name for name in names if _is_own(name, names)}
    served = {value.name for value in (*model.graph.input, *model.graph.output)}
    for name in sorted(taken & served):
        if OWN.fullmatch(name):
            raise SourceFault(
                f"an input or output of the network is named {name!r}, which this build names a "
                "tensor of its own; export it with another name."
            )
    inside = taken - served
    if inside:
        _rename(model.graph, {name: f"source/{name}/source" for name in inside})
    return bool(inside)


def _is_own(name: str, names: set[str]) -> bool:
    if OWN.fullmatch(name):
        return True
    return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in SUFFIXES)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for body in (graph, *subgraphs(graph.node)):
        yield from (value.name for value in (*body.input, *body.initializer))
        for node in body.node:
            yield from node.output


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for body in (graph, *subgraphs(graph.node)):
        values = (*body.input, *body.output, *body.value_info, *body.initializer)
        for value in values:
            value.name = names.get(value.name, value.name)
        for sparse in body.sparse_initializer:
            sparse.values.name = names.get(sparse.values.name, sparse.values.name)
        for node in body.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]


ATTENTION = "Attention"
"""ONNX's own, of opset 23. TensorRT-RTX 1.7 ends with SIGSEGV or refuses it where no fused kernel
fits, and quantization looks for the MatMul nodes inside."""
ONNX_DOMAINS = ("", "ai.onnx")


def inline_functions(model: onnx.ModelProto, kept: Collection[str] = ()) -> onnx.ModelProto:
    """Return the model with a function's nodes in the place of its calls, but for those `kept`.

    `kept` are names of operators.
    """
    names = [(item.domain, item.name) for item in model.functions if item.name in kept]
    if len(names) == len(model.functions):
        return model
    if not names:
        return onnx.inliner.inline_local_functions(model)
    return onnx.inliner.inline_selected_functions(model, names, exclude=True)


def read_inlined(source: Path, operators: Collection[str] = ()) -> tuple[onnx.ModelProto, bool]:
    """Return the file with its data, all in standard nodes; True where that changes it.

    A function's nodes take the place of its calls: placement, typing and counting look at nodes.
    Those of `operators`, which a plugin computes, stay functions. Raises NetworkRefused for sparse
    weights.
    """
    whole = read_model(source, weights=False)
    model = _decompose_attention(inline_functions(whole, operators))
    _refuse_sparse_weights(model)
    if not external_names(source.name, model):
        return model, model is not whole
    load_weights(model, source.parent)
    return model, True


def _decompose_attention(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the nodes of ONNX's own definition in the place of each Attention."""
    attention = [node for node in _nodes(model) if node.op_type == ATTENTION]
    if all(node.domain not in ONNX_DOMAINS for node in attention):
        return model
    names = [(domain, ATTENTION) for domain in ONNX_DOMAINS]
    return onnx.inliner.inline_selected_functions(model, names, inline_schema_functions=True)


def refuse_undefined_operators(model: onnx.ModelProto, operators: Collection[str]) -> None:
    """Refuse operators of plugins that no node has, or no function defines. Raises NetworkRefused.

    `model` has its functions inlined, but for those of these operators.
    """
    known = {node.op_type: node.domain for node in _nodes(model)}
    for operator in sorted(operators):
        if operator not in known:
            others = sorted(name for name, domain in known.items() if domain not in ONNX_DOMAINS)
            raise NetworkRefused(
                f"`engine.plugins` names operator {operator}, which no node of the network has; "
                f"those beyond ONNX's own: {', '.join(others) or 'none'}. Correct `operators`, or "
                "take the plugin out."
            )
        if operator not in {function.name for function in model.functions}:
            raise NetworkRefused(
                f"operator {operator} of `engine.plugins` has no function in the ONNX file, so "
                "no engine's answers can be judged: say what it computes in standard operators "
                f"(onnx.helper.make_function({known[operator]!r}, {operator!r}, …), added to "
                "model.functions), and name the new file and its digest."
            )


def leave_to_plugins(network: Path, operators: Collection[str]) -> None:
    """Take the functions of operators out of a network's file: its nodes alone name them.

    ONNX Runtime runs a function's own nodes, by which its operator is judged. TensorRT's parser
    takes a function before it looks for a plugin of that name (onnx-tensorrt, ModelImporter.cpp),
    so trtexec gets the network without them.
    """
    model = onnx.load(network, load_external_data=False)
    others = [function for function in model.functions if function.name not in operators]
    del model.functions[:]
    model.functions.extend(others)
    network.write_bytes(model.SerializeToString())


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield nodes and those of the loops and branches among them."""
    yield from model.graph.node
    for graph in subgraphs(model.graph.node):
        yield from graph.node


def _refuse_sparse_weights(model: onnx.ModelProto) -> None:
    """Refuse weights and constants in ONNX's sparse form. Raises NetworkRefused."""
    lists = [model.graph.node, *(function.node for function in model.functions)]
    graphs = [model.graph, *(graph for nodes in lists for graph in subgraphs(nodes))]
    names = [item.values.name for graph in graphs for item in graph.sparse_initializer]
    nodes = chain(*lists, *(graph.node for graph in graphs[1:]))
    names += [
        node.output[0]
        for node in nodes
        if any(attribute.name == "sparse_value" for attribute in node.attribute)
    ]
    if names:
        raise NetworkRefused(
            f"weight {names[0]} of the network is sparse (SparseTensorProto), which TensorRT does "
            "not read; save it as an array of all its values (onnx.numpy_helper.from_array)."
        )
