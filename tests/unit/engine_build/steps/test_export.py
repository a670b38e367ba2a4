"""The export step refuses networks that are quantized already."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from engine_build.errors import InputRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import qdq_node_count
from engine_build.steps.export import refuse_quantized_network

QAT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4] x) => (float[n, 4] y) <float s = {0.1}, int8 z = {0}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    y = Relu(d)
}"""


def network(nodes: int) -> Network:
    facts = {"qdq_nodes": nodes} if nodes else {}
    return Network(precision="float", path=Path("f.onnx"), inputs=(), outputs=(), facts=facts)


@pytest.mark.parametrize("precision", ["auto", "fp16", "bf16", "int8"])
def test_refuses_a_quantized_network_under_another_precision(precision):
    nodes = qdq_node_count(parser.parse_model(QAT))
    with pytest.raises(InputRefused, match=f"has 2 Quantize.*no network of precision {precision}"):
        refuse_quantized_network(network(nodes), precision)


@pytest.mark.parametrize(("nodes", "precision"), [(2, "fp32"), (0, "auto"), (0, "fp16")])
def test_float_networks_and_kept_types_pass(nodes, precision):
    refuse_quantized_network(network(nodes), precision)
