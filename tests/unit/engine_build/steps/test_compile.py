"""CPU engines: `auto` goes on without INT8 where ONNX Runtime cannot quantize dynamically."""

from __future__ import annotations

import dataclasses
import io

import onnx
import pytest

from engine_build.errors import NothingForInt8
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.compile import compile_candidates
from tests.unit.engine_build.quantization.graphs import chain
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_tree


def compile_contradicting_network(tmp_path, precision, stream):
    graph, path = chain("Relu"), tmp_path / "float.onnx"
    graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 9
    onnx.save(graph, path)
    root = write_tree(tmp_path / "root", model("tiny", precision))
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner())
    tools = dataclasses.replace(tools, log=Log(stream))
    network = Network(precision="float", path=path, inputs=(), outputs=(), facts={})
    with tools.work:
        return compile_candidates(tools, {"float": network, "int8": network})


def test_auto_goes_on_without_int8(tmp_path):
    stream = io.StringIO()
    candidates = compile_contradicting_network(tmp_path, "auto", stream)
    assert [candidate.precision for candidate in candidates] == ["fp32"]
    assert "int8 is not tried: ONNX Runtime cannot quantize" in stream.getvalue()


def test_refuses_int8_that_the_model_requires(tmp_path):
    with pytest.raises(NothingForInt8, match="cannot quantize the network dynamically"):
        compile_contradicting_network(tmp_path, "int8", io.StringIO())
