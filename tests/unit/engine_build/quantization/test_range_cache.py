"""Ranges by digest."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.quantization.calibration import Range
from engine_build.quantization.range_cache import RangeCache, ranges_digest
from engine_build.quantization.smoothing import Smoothing
from engine_build.store import FolderStore
from tests.unit.engine_build.quantization.graphs import images

RANGES = {
    "/layer.0/MatMul": Range(
        smoothing=Smoothing(alpha=0.9, scales=np.array([1.0, 20.0], dtype=np.float32)),
        threshold=3.5,
        weights={
            "/layer.0/query": np.eye(2, dtype=np.int8),
            "/layer.0/key": np.ones((2, 3), np.int8),
        },
    ),
    "/layer.1/MatMul": Range(
        smoothing=Smoothing(
            alpha=0.5,
            scales=np.array([1.0, 2.0], dtype=np.float32),
            shifts=np.array([-0.5, 4.0], dtype=np.float32),
        ),
        threshold=1.5,
    ),
    "x": Range(smoothing=None, threshold=1.25),
}


@pytest.fixture
def cache(tmp_path):
    return RangeCache((FolderStore(tmp_path / "near"), FolderStore(tmp_path / "far")), tmp_path)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"float")
    return path


def test_ranges_come_back_as_they_were(cache):
    cache.keep("digest", RANGES)
    found = cache.find("digest")
    assert list(found) == list(RANGES)
    assert found["x"] == RANGES["x"]
    assert found["/layer.0/MatMul"].threshold == 3.5
    assert found["/layer.0/MatMul"].smoothing.alpha == 0.9
    assert np.array_equal(found["/layer.0/MatMul"].smoothing.scales, [1.0, 20.0])
    assert found["/layer.0/MatMul"].smoothing.shifts is None
    assert np.array_equal(found["/layer.1/MatMul"].smoothing.shifts, [-0.5, 4.0])
    weights = found["/layer.0/MatMul"].weights
    assert list(weights) == ["/layer.0/query", "/layer.0/key"]
    assert np.array_equal(weights["/layer.0/query"], [[1, 0], [0, 1]])
    assert weights["/layer.0/key"].shape == (2, 3) and weights["/layer.0/key"].dtype == np.int8


def test_another_store_is_read_too(cache, tmp_path):
    RangeCache((FolderStore(tmp_path / "far"),), tmp_path).keep("digest", RANGES)
    assert cache.find("digest") is not None


def test_a_damaged_file_is_none(cache, tmp_path):
    cache.keep("digest", RANGES)
    path = next((tmp_path / "near").rglob("*.npz"))
    whole = path.read_bytes()
    for data in (b"", b"PK\x03\x04 cut short", b"no archive"):
        path.write_bytes(data)
        assert cache.find("digest") is None
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x55]) + whole[index + 1 :])
        ranges = cache.find("digest")
        assert ranges is None or len(ranges) == len(RANGES)


def test_digest_changes_with_network_samples_order_and_method(network):
    digests = {
        ranges_digest(network, ("a", "b"), "max"),
        ranges_digest(network, ("b", "a"), "max"),
        ranges_digest(network, ("a",), "max"),
        ranges_digest(network, ("a", "b"), "entropy"),
        ranges_digest(network, images(2, seed=1), "max"),
        ranges_digest(network, images(2, seed=1), "max"),
        ranges_digest(network, images(2, seed=2), "max"),
    }
    network.write_bytes(b"other")
    assert len(digests | {ranges_digest(network, ("a", "b"), "max")}) == 7
