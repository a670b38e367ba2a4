"""Inputs, outputs and operators of an ONNX file, read without the onnx package and its weights.

The wire format is Protocol Buffers'; the field numbers are those of onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 70
"""Bits: ten bytes of seven."""


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
    exporter: str
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
    if path.stat().st_size > LARGEST_BYTES:
        raise ValueError("has more than 2 GiB, and an ONNX file holds 2 GiB at most")
    with path.open("rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ValueError("is empty") from error
        with mapped:
            try:
                return _model(_Message(mapped, 0, len(mapped)))
            except (IndexError, UnicodeDecodeError) as error:
                raise ValueError(DAMAGED) from error


@dataclass(frozen=True)
class _Message:
    """The bytes of one protobuf message."""

    data: mmap.mmap
    begin: int
    end: int

    def fields(self) -> Iterator[tuple[int, int | _Message]]:
        """Yield field numbers with numbers or messages; texts are messages too."""
        position = self.begin
        while position < self.end:
            tag, position = self._varint(position)
            wire = tag & 7
            if tag >> 3 == 0:
                raise ValueError(DAMAGED)
            if wire == VARINT:
                number, position = self._varint(position)
                yield tag >> 3, number
            elif wire == LENGTH:
                length, position = self._varint(position)
                if length > self.end - position:
                    raise ValueError(DAMAGED)
                yield tag >> 3, _Message(self.data, position, position + length)
                position += length
            elif wire in (FIXED64, FIXED32):
                position += 8 if wire == FIXED64 else 4
            else:
                raise ValueError(DAMAGED)

    def messages(self, *numbers: int) -> Iterator[_Message]:
        """Yield the messages of these fields, in their order."""
        for number, value in self.fields():
            if number in numbers and isinstance(value, _Message):
                yield value

    def text(self, number: int) -> str:
        """Return a field's text; empty where there is none."""
        found = list(self.messages(number))
        return self.data[found[-1].begin : found[-1].end].decode() if found else ""

    def number(self, number: int) -> int | None:
        """Return a field's number; None where there is none."""
        found = [value for key, value in self.fields() if key == number and isinstance(value, int)]
        return found[-1] if found else None

    def _varint(self, position: int) -> tuple[int, int]:
        value = shift = 0
        while shift < LONGEST_VARINT:
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
        raise ValueError(DAMAGED)


def _model(model: _Message) -> OnnxHeader:
    graphs = list(model.messages(7))
    if len(graphs) != 1:
        raise ValueError(DAMAGED)
    weights, inputs, outputs, operators = set(), [], [], set()
    external, places = False, set()
    for number, value in graphs[0].fields():
        if not isinstance(value, _Message):
            continue
        if number == 1:
            operators.add(value.text(4))
        elif number == 5:
            weights.add(value.text(8))
            if value.number(14) == EXTERNAL:
                external = True
                entries = {item.text(1): item.text(2) for item in value.messages(13)}
                places.add(entries.get("location", ""))
        elif number == 11:
            inputs.append(_tensor(value))
        elif number == 12:
            outputs.append(_tensor(value))
    if not outputs:
        raise ValueError(DAMAGED)
    return OnnxHeader(
        inputs=tuple(tensor for tensor in inputs if tensor.name not in weights),
        outputs=tuple(outputs),
        operators=frozenset(operators),
        exporter=f"{model.text(2)} {model.text(3)}".strip(),
        has_external_weights=external,
        external_names=tuple(sorted(places)),
    )


def _tensor(value_info: _Message) -> NetworkTensor:
    datatype, shape = "a list, a map or another type", None
    for type_proto in value_info.messages(2):
        for tensor_type in type_proto.messages(1):
            number = tensor_type.number(1)
            datatype = DATATYPES.get(number or 0, f"type {number}")
            for shape_proto in tensor_type.messages(2):
                sizes = (dimension.number(1) for dimension in shape_proto.messages(1))
                # Old exporters write a dynamic axis as size -1, which is a large number here.
                shape = tuple(-1 if size is None or size >= 1 << 63 else size for size in sizes)
    return NetworkTensor(name=value_info.text(1), datatype=datatype, shape=shape)
