"""A Q/DQ network of an old calibration cache in NVIDIA's own parser and builder, with no GPU."""

from __future__ import annotations

import json

import onnx
import pytest

from engine_build.onnx_graph import rtx
from engine_build.quantization.calibration_cache import parse_cache
from engine_build.quantization.migration import migrate
from tests.unit.engine_build.quantization.test_migration import IMAGES, write_image_network

pytestmark = pytest.mark.compile_check


def test_migrated_network_compiles(tmp_path, capsys):
    cache = parse_cache(IMAGES.replace("scores", "features").encode(), "old.cache")
    result = migrate(write_image_network(tmp_path / "float.onnx", 16, 16), cache)
    assert result.int8 == ("/conv", "/classify", "/beside")
    onnx.save(result.network, tmp_path / "qdq.onnx")
    profiles = [{"batch": [1, 2, 4], "sequence": None}]
    assert rtx.main([str(tmp_path / "qdq.onnx"), json.dumps(profiles)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "pass", report
