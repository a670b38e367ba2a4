"""What ONNX Runtime refuses, and the way out of it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from tests.unit.engine_build.graphs import node, tensor, write_graph

BFLOAT16 = TensorProto.BFLOAT16


@pytest.mark.parametrize(
    ("nodes", "domains", "way_out"),
    [
        (
            [node("NoSuchOp", "x", "y", domain="com.microsoft")],
            ["com.microsoft"],
            "standard operators of ONNX",
        ),
        (
            [
                node("Cast", "x", "b", to=BFLOAT16),
                node("MatMul", "b b", "m"),
                node("Cast", "m", "y", to=TensorProto.FLOAT),
            ],
            [],
            "cast them to FP32",
        ),
        (
            [node("Relu", "x", "r", name="n"), node("Relu", "r", "y", name="n")],
            [],
            "a name of its own",
        ),
        ([node("MatMul", "x long", "y")], [], "contradict each other"),
    ],
)
def test_refuses_a_network_with_the_way_out_of_its_fault(nodes, domains, way_out, tmp_path):
    path = write_graph(
        tmp_path / "model.onnx",
        nodes,
        [tensor("x", "b", 4)],
        [tensor("y", "b", 4)],
        domains=domains,
        long=np.ones((9, 4), np.float32),
    )
    with pytest.raises(SourceFault, match=way_out):
        OrtNetwork(path)
