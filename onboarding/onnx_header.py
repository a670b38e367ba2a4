"""Inputs, outputs and operators of an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

DATATYPES = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "BYTES",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
    14: "COMPLEX64",
    15: "COMPLEX128",
    16: "BF16",
}
"""KServe v2 datatypes by TensorProto.DataType, or ONNX's own names."""
TAKEN = ("FP32", "FP16", "INT64", "INT32", "UINT8", "BOOL")
"""Datatypes of inputs and outputs that builds take, as TensorRT does."""
WAYS_OUT = {
    "COMPLEX": (
        "take and give real and imaginary parts as a last axis of 2 (torch.view_as_real), in FP32"
    ),
    "a list": "write Python lists as one tensor (stack), and export it again",
    "BYTES": "no string enters or leaves an engine: take and give numbers",
}
"""By the begin of a datatype that is not taken."""
DAMAGED = "is no ONNX file, or a damaged one"
LARGEST_BYTES = (1 << 31) - 1
"""Of a protobuf message; larger networks keep their weights in other files."""
EXTERNAL = 1
"""TensorProto.DataLocation of weights in other files."""


@dataclass(frozen=True, kw_only=True)
class NetworkTensor:
    """One input or output; -1 stands for a dynamic axis, None for a shape that is not told."""

    name: str
    datatype: str
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {list(self.shape)}"
        return f"{self.name} {self.datatype}{shape}"


@dataclass(frozen=True, kw_only=True)
class OnnxHeader:
    """What a network takes and gives; weights that old files list as inputs are none."""

    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    operators: frozenset[str]
    """Types of the graph's own nodes."""
    has_external_weights: bool
    external_names: tuple[str, ...] = ()
    """Files of the main graph's external weights, by the names that it gives them, sorted."""

    @property
    def is_quantized(self) -> bool:
        """True for a network that holds Q/DQ nodes."""
        return {"QuantizeLinear", "DequantizeLinear"} <= self.operators


def way_out_of(datatype: str) -> str:
    """Return what makes a network of one with a datatype that is not taken."""
    for begin, way_out in WAYS_OUT.items():
        if datatype.startswith(begin):
            return way_out
    return "export it with a Cast inside, from or to one of these"


def read_onnx_header(path: Path) -> OnnxHeader:
    """Read the header of an ONNX file. Raises ValueError with what is wrong, OSError."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    size = path.stat().st_size
    if size > LARGEST_BYTES:
        raise ValueError("has more than 2 GiB, and an ONNX file holds 2 GiB at most")
    if size == 0:
        raise ValueError("is empty")
    model = ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
        return _header(model)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(DAMAGED) from error


def _header(model: ModelProto) -> OnnxHeader:
    graph = model.graph
    # protobuf gives a name that is not UTF-8 as bytes.
    if not all(isinstance(item.name, str) for item in (*graph.input, *graph.output)):
        raise ValueError(DAMAGED)
    if not graph.output:
        raise ValueError(DAMAGED)
    weights = {weight.name for weight in graph.initializer}
    external = [item for item in graph.initializer if item.data_location == EXTERNAL]
    places = {
        entry.value for item in external for entry in item.external_data if entry.key == "location"
    }
    return OnnxHeader(
        inputs=tuple(_tensor(item) for item in graph.input if item.name not in weights),
        outputs=tuple(map(_tensor, graph.output)),
        operators=frozenset(node.op_type for node in graph.node),
        has_external_weights=bool(external),
        external_names=tuple(sorted(places)),
    )


def _tensor(value_info: ValueInfoProto) -> NetworkTensor:
    if not value_info.type.HasField("tensor_type"):
        datatype = "a list, a map or another type"
        return NetworkTensor(name=value_info.name, datatype=datatype, shape=None)
    tensor_type, shape = value_info.type.tensor_type, None
    if tensor_type.HasField("shape"):
        # Old exporters write a dynamic axis as size -1.
        shape = tuple(
            axis.dim_value if axis.HasField("dim_value") else -1 for axis in tensor_type.shape.dim
        )
    number = tensor_type.elem_type
    datatype = DATATYPES.get(number, f"type {number}")
    return NetworkTensor(name=value_info.name, datatype=datatype, shape=shape)
