"""An ONNX file: read and checked, its opset within what TensorRT's parser documents.

Sources: onnx-tensorrt docs/operators.md of releases 10.0-GA ("opset 9 to opset 20") and 10.15
("opset 9 to opset 24"); TensorRT 11's ONNX Opset Guide (minimum 9, maximum 25). A release between
two rows has the older one's range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from engine_build.datasets.dataset import Array
from engine_build.errors import NetworkRefused, SourceFault, one_line
from onboarding.manifest import TensorRecord
from onboarding.platform import ServingPlatform

RANGES: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((10, 0), (9, 20)),
    ((10, 15), (9, 24)),
    ((11, 0), (9, 25)),
)
"""(TensorRT release, (least opset, largest opset)), the oldest release first."""
LEAST_INT8 = 13
"""QuantizeLinear and DequantizeLinear have had an axis since."""


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
    if may_be_int8 and opset < LEAST_INT8:
        raise NetworkRefused(
            f"the network has opset {opset}, and INT8 needs {LEAST_INT8} or newer; export it with "
            "opset 17, or ask for precision fp16 or fp32."
        )


LARGEST_ONNX_BYTES = 2**31 - 1
QDQ = ("QuantizeLinear", "DequantizeLinear")
DATATYPES = {
    "FLOAT": "FP32",
    "FLOAT16": "FP16",
    "DOUBLE": "FP64",
    "BFLOAT16": "BF16",
    "STRING": "BYTES",
}
"""KServe v2 names where they differ from ONNX's."""


def refuse_large(name: str, size: int) -> None:
    """Refuse a file before it is read: protobuf, and so ONNX, reads no larger one."""
    if size > LARGEST_ONNX_BYTES:
        raise SourceFault(
            f"{name} has {size / 1e9:.2f} GB, and an ONNX file has {LARGEST_ONNX_BYTES / 1e9:.2f} "
            "at most; save its weights as float16, or name the checkpoint instead."
        )


def read_model(path: Path) -> onnx.ModelProto:
    """Return a parsed and checked ONNX file. Raises SourceFault."""
    refuse_large(path.name, path.stat().st_size)
    try:
        model = onnx.load(path, load_external_data=False)
        refuse_external_data(path.name, model)
        # By path: the checker of a loaded model would hold two copies of it.
        onnx.checker.check_model(str(path))
    except (SourceFault, OSError):
        raise
    except Exception as error:
        raise SourceFault(
            f"{path.name} is no valid ONNX file ({one_line(error)}); it may be damaged or cut "
            "short: export it again."
        ) from error
    return model


def refuse_external_data(name: str, model: onnx.ModelProto) -> None:
    """Refuse weights in other files, wherever in the graph: the digest pins one file."""
    external = onnx.TensorProto.EXTERNAL
    outside = [weight for _, weight in _weights(model) if weight.data_location == external]
    if outside:
        entries = [entry for weight in outside for entry in weight.external_data]
        places = sorted({entry.value for entry in entries if entry.key == "location"})
        raise SourceFault(
            f"{name} keeps {len(outside)} weights in other files ({', '.join(places[:3])}), which "
            "its digest does not pin; save it as one file: onnx.save(onnx.load('model.onnx'), "
            "'one.onnx')."
        )


def opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model is written in."""
    return next(
        (int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), 0
    )


def qdq_node_count(model: onnx.ModelProto) -> int:
    """Return the number of QuantizeLinear and DequantizeLinear nodes."""
    return sum(node.op_type in QDQ for node in model.graph.node)


def tensor_records(tensors: Iterable[onnx.ValueInfoProto]) -> tuple[TensorRecord, ...]:
    """Return names, KServe datatypes and shapes of inputs or outputs; -1 is a dynamic axis."""
    return tuple(
        TensorRecord(
            name=tensor.name,
            datatype=_datatype(tensor.type),
            shape=tuple(
                dim.dim_value if dim.HasField("dim_value") else -1
                for dim in tensor.type.tensor_type.shape.dim
            ),
        )
        for tensor in tensors
    )


def refuse_broken_weights(model: onnx.ModelProto) -> None:
    """Refuse NaN and Inf in weights by name: their engines look plausible."""
    for name, weight in _weights(model):
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


def _weights(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield every tensor that a model carries, with the name of its weight or node."""
    yield from _graph_weights(model.graph)
    for function in model.functions:
        yield from _node_weights(function.node)


def _graph_weights(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield from ((weight.name, weight) for weight in graph.initializer)
    for sparse in graph.sparse_initializer:
        yield from ((sparse.values.name, part) for part in (sparse.values, sparse.indices))
    yield from _node_weights(graph.node)


def _node_weights(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, onnx.TensorProto]]:
    for node in nodes:
        name = node.output[0] if node.output else node.name
        for attribute in node.attribute:
            sparse = (attribute.sparse_tensor, *attribute.sparse_tensors)
            parts = [part for tensor in sparse for part in (tensor.values, tensor.indices)]
            for tensor in (attribute.t, *attribute.tensors, *parts):
                # An attribute of another type has empty tensors and an empty graph.
                if tensor.ByteSize():
                    yield name, tensor
            for graph in (attribute.g, *attribute.graphs):
                yield from _graph_weights(graph)


def _datatype(kind: onnx.TypeProto) -> str:
    if kind.WhichOneof("value") != "tensor_type":
        return str(kind.WhichOneof("value"))
    number, names = kind.tensor_type.elem_type, onnx.TensorProto.DataType
    name = str(names.Name(number)) if number in names.values() else f"number {number}"
    return DATATYPES.get(name, name)
