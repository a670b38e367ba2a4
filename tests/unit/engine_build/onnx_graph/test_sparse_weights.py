"""Sparse weights are written out in full."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from engine_build.onnx_graph.custom_operators import read_inlined
from engine_build.ort import OrtNetwork
from tests.unit.engine_build.graphs import node, tensor, write_graph

FEED = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}


def network(path, indices):
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices)), [4, 3])
    constant = node("Constant", "", "c")
    constant.attribute.add(
        name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse
    )
    nodes = [constant, node("Add", "w c", "s"), node("MatMul", "x s", "y")]
    write_graph(path, nodes, [tensor("x", "b", 4)], [tensor("y", "b", 3)])
    model = onnx.load(path)
    model.graph.sparse_initializer.append(sparse)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("indices", [[[0, 1], [3, 2]], [1, 11]])
def test_sparse_weights_and_constants_become_dense_and_answers_stay(indices, tmp_path):
    path = network(tmp_path / "model.onnx", indices)
    model, is_changed = read_inlined(path)
    assert is_changed and not model.graph.sparse_initializer
    expected = np.zeros((4, 3), np.float32)
    expected[0, 1], expected[3, 2] = 4, 6
    assert np.allclose(OrtNetwork(model.SerializeToString()).rows(FEED), FEED["x"] @ expected)


def test_a_dense_network_stays_as_it_is(tmp_path):
    path = tmp_path / "model.onnx"
    nodes = [node("Flatten", "x", "y", axis=1)]
    write_graph(path, nodes, [tensor("x", "b", 4)], [tensor("y", "b", 4)])
    model, is_changed = read_inlined(path)
    assert not is_changed and model == onnx.load(path)
