"""Writes a network anew, each node in FP16 or FP32, with one cast where a tensor changes between
them.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.samples.feed import Array

HALF, FULL = TensorProto.FLOAT16, TensorProto.FLOAT
SUFFIX = {HALF: "_fp16", FULL: "_fp32"}
FULL_INPUTS = {"Resize": (2,)}
"""Inputs that ONNX allows in FP32 only, by operator."""


class Writing:
    """One network being written; `wide` are the places of the nodes that stay FP32."""

    def __init__(
        self,
        source: onnx.ModelProto,
        floats: frozenset[str],
        wide: frozenset[int],
        half_array: Callable[[Array], Array],
    ) -> None:
        self._source = source
        self._floats = floats
        self._wide = wide
        self._half_array = half_array
        self._constants = {weight.name: weight for weight in source.graph.initializer}
        self._kinds = {each.name: FULL for each in source.graph.input}
        self._outputs = {each.name for each in source.graph.output}
        self._nodes: list[onnx.NodeProto] = []
        self._written: dict[str, onnx.TensorProto] = {}
        self._casts: dict[tuple[str, int], str] = {}

    def model(self) -> onnx.ModelProto:
        """The network written."""
        for index, node in enumerate(self._source.graph.node):
            self._write(node, FULL if index in self._wide else HALF)
        for name in self._source.graph.output:
            if self._kinds.get(name.name) == HALF:
                self._nodes.append(
                    helper.make_node(
                        "Cast",
                        [name.name + SUFFIX[HALF]],
                        [name.name],
                        name=f"{name.name}_as{SUFFIX[FULL]}",
                        to=FULL,
                    )
                )
        return self._assembled()

    def _write(self, node: onnx.NodeProto, kind: int) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        full = FULL_INPUTS.get(node.op_type, ())
        copy.input[:] = [
            self._read(name, FULL if place in full else kind)
            for place, name in enumerate(node.input)
        ]
        for place, name in enumerate(node.output):
            if name in self._floats:
                self._kinds[name] = kind
                copy.output[place] = self._name(name)
        if kind == HALF:
            self._retype(copy, node)
        self._nodes.append(copy)

    def _read(self, name: str, kind: int) -> str:
        """The name under which a node reads a tensor in the type that it needs."""
        if name in self._constants:
            return self._constant(name, kind)
        if name not in self._floats or self._kinds[name] == kind:
            return self._name(name)
        if (name, kind) not in self._casts:
            self._casts[name, kind] = cast = f"{name}_as{SUFFIX[kind]}"
            self._nodes.append(
                helper.make_node("Cast", [self._name(name)], [cast], name=cast, to=kind)
            )
        return self._casts[name, kind]

    def _constant(self, name: str, kind: int) -> str:
        weight = self._constants[name]
        written = name + SUFFIX[HALF] if name in self._floats and kind == HALF else name
        if written not in self._written:
            values = self._half_array(numpy_helper.to_array(weight)) if written != name else None
            self._written[written] = (
                weight if values is None else numpy_helper.from_array(values, written)
            )
        return written

    def _name(self, name: str) -> str:
        """A float output of the network keeps its name for the cast that ends it."""
        return (
            name + SUFFIX[HALF] if name in self._outputs and self._kinds.get(name) == HALF else name
        )

    def _retype(self, copy: onnx.NodeProto, node: onnx.NodeProto) -> None:
        """Attributes that say FP32."""
        for attribute in copy.attribute:
            if (
                attribute.name in ("to", "dtype", "output_dtype")
                and attribute.i == FULL
                and node.output[0] in self._floats
            ):
                attribute.i = HALF
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == FULL:
                attribute.t.CopyFrom(
                    numpy_helper.from_array(self._half_array(numpy_helper.to_array(attribute.t)))
                )

    def _assembled(self) -> onnx.ModelProto:
        source = self._source
        result = onnx.ModelProto(ir_version=source.ir_version, producer_name=source.producer_name)
        result.opset_import.extend(source.opset_import)
        result.metadata_props.extend(source.metadata_props)
        result.graph.name = source.graph.name
        declared = set(self._constants)
        result.graph.input.extend(each for each in source.graph.input if each.name not in declared)
        result.graph.output.extend(source.graph.output)
        result.graph.node.extend(self._nodes)
        result.graph.initializer.extend(self._written.values())
        return result
