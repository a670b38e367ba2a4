"""The search for the first layer that differs; ONNX Runtime plays the engines, with a fault."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from engine_build.errors import NetworkRefused
from engine_build.ort import OrtNetwork
from engine_build.tensorrt.bisection import (
    bisect_points,
    compare,
    cut_points,
    first_difference,
)
from engine_build.tensorrt.half_precision import half_precision
from tests.unit.engine_build.quantization.graphs import feed, images, texts, transformer, vit

NETWORKS = {"transformer": (transformer, texts), "vit": (vit, images)}


def network(name, folder):
    """A network in FP16, and a batch for it."""
    make, rows = NETWORKS[name]
    path = folder / f"{name}.onnx"
    onnx.save(half_precision(make()), path)
    return path, feed(rows(4, seed=1))


class Engines:
    """Answer as the cut does, but from a tensor on as `fault` says."""

    def __init__(self, tensor=None, fault=lambda rows: rows * np.nan):
        self._tensor = tensor
        self._fault = fault
        self.cuts = 0

    def __call__(self, path, values, seconds):
        self.cuts += 1
        rows = OrtNetwork(path, fuses_qdq=False).rows(values)
        tensors = {name for node in onnx.load(path).graph.node for name in node.output}
        return self._fault(rows) if self._tensor in tensors else rows


@pytest.mark.parametrize("count", range(6))
def test_search_ends_between_the_last_equal_and_the_first_different(count):
    names = [str(index) for index in range(count)]
    for first in range(count + 1):
        calls = []

        def differs(name, first=first, calls=calls):
            calls.append(name)
            return int(name) >= first

        assert bisect_points(names, differs) == (first - 1, first)
        assert len(calls) <= np.ceil(np.log2(count + 1))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_planted_fault_is_found_by_its_node(name, tmp_path):
    path, values = network(name, tmp_path)
    points = cut_points(onnx.load(path), values)
    assert len(points) > 15 and sum(point.is_landmark for point in points) >= 4
    nodes = {point.tensor: point.node for point in points}
    for point in points:
        engines = Engines(point.tensor)
        found = first_difference(path, values, engines, tmp_path)
        assert (found.node, found.stopped) == (point.node, None)
        assert found.after in {nodes[source] for source in point.sources} or not point.sources
        assert found.cuts == engines.cuts <= 12 and np.isnan(found.engine)
        assert f"node {point.node} is the first one that differs: nan in the engine" in str(found)


def test_wrong_numbers_are_found_with_both_values(tmp_path):
    path, values = network("vit", tmp_path)
    point = cut_points(onnx.load(path), values)[7]
    found = first_difference(path, values, Engines(point.tensor, lambda rows: rows * 2), tmp_path)
    assert found.node == point.node and found.engine == pytest.approx(2 * found.network)
    assert found.error == pytest.approx(1) and "100% of the whole apart" in str(found)


def test_search_stops_at_the_end_of_its_time_and_says_how_far_it_came(tmp_path):
    path, values = network("vit", tmp_path)
    points = cut_points(onnx.load(path), values)
    seconds = itertools.count(step=40)
    engines = Engines(points[0].tensor)
    found = first_difference(
        path, values, engines, tmp_path, seconds=300, clock=lambda: float(next(seconds))
    )
    assert 1 <= found.cuts < 5 and found.node is not None
    assert "the search stopped there: another cut would end after 300 seconds" in str(found)


def test_search_stops_at_a_cut_that_does_not_compile(tmp_path):
    path, values = network("vit", tmp_path)

    def refuse(cut, values, seconds):
        raise NetworkRefused("trtexec ended with code 1: no memory.")

    found = first_difference(path, values, refuse, tmp_path)
    assert found.cuts == 0 and "has no engine (trtexec ended with code 1" in str(found)


@pytest.mark.parametrize(
    ("found", "expected", "values"),
    [
        ([[1.0, np.nan]], [[1.0, 2.0]], (np.nan, 2.0, np.inf)),
        ([[1.0, np.inf]], [[1.0, 2.0]], (np.inf, 2.0, np.inf)),
        ([[1.0, 5.0]], [[3.0, np.inf]], (1.0, 3.0, 2 / 3)),
        ([[3.0, 4.0]], [[3.0, 4.0]], (3.0, 3.0, 0.0)),
    ],
)
def test_values_are_compared_where_they_differ_most(found, expected, values):
    result = compare(np.array(found, np.float32), np.array(expected, np.float32))
    assert np.allclose(result, values, equal_nan=True)
