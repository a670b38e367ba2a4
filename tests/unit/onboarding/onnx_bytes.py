"""ONNX files written field by field, for tests that have no onnx package."""

from __future__ import annotations

from collections.abc import Mapping

Shapes = Mapping[str, tuple[int, tuple[int | None, ...]]]
"""Element type and sizes by name; None: a dynamic axis."""


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, kind: int, sizes: tuple[int | None, ...]) -> bytes:
    dimensions = (field(2, "axis") if size is None else field(1, size) for size in sizes)
    shape = b"".join(field(1, dimension) for dimension in dimensions)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def onnx_bytes(
    inputs: Shapes,
    outputs: Shapes | None = None,
    *,
    operators: tuple[str, ...] = ("Relu",),
    weights: tuple[str, ...] = (),
    external: bool = False,
    exporter: str = "pytorch",
) -> bytes:
    """A model of these inputs and outputs; weights hold 4 bytes that no reader needs."""
    graph = b"".join(field(1, field(4, operator)) for operator in operators)
    for name in weights:
        entry = field(13, field(1, "location") + field(2, "data/w.bin"))
        place = entry + field(14, 1) if external else field(9, b"1234")
        graph += field(5, field(2, 1) + field(8, name) + place)
    graph += b"".join(field(11, tensor(name, *rest)) for name, rest in inputs.items())
    given = {"y": (1, (None, 2))} if outputs is None else outputs
    graph += b"".join(field(12, tensor(name, *rest)) for name, rest in given.items())
    return field(1, 8) + field(2, exporter) + field(7, graph) + field(8, field(2, 17))
