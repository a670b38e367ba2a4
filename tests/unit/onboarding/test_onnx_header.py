"""The header of an ONNX file is what the file says; damaged ones are sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from onboarding.onnx_header import NetworkTensor, read_onnx_header
from tests.unit.onboarding.onnx_bytes import field, onnx_bytes, varint

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tiny_embedder"


def header(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    return read_onnx_header(path)


def test_header_is_that_of_an_exported_network():
    found = read_onnx_header(FIXTURES / "arithmetic.onnx")
    assert found.inputs == (
        NetworkTensor(name="signal", datatype="FP32", shape=(-1, 2, -1)),
        NetworkTensor(name="gain", datatype="INT64", shape=(-1,)),
    )
    assert [tensor.datatype for tensor in found.outputs] == ["FP32", "BOOL", "INT64"]
    assert found.operators >= {"ReduceSum", "Mul"}


def test_weights_that_old_files_list_as_inputs_are_none(tmp_path):
    inputs = {"x": (1, (None, 3)), "w": (1, (3, 3))}
    found = header(tmp_path, onnx_bytes(inputs, weights=("w",)))
    assert [tensor.name for tensor in found.inputs] == ["x"]
    assert not found.has_external_weights and found.exporter == "pytorch"


def test_external_weights_are_known(tmp_path):
    content = onnx_bytes({"x": (16, (None,))}, weights=("w",), external=True)
    found = header(tmp_path, content)
    assert found.has_external_weights and found.inputs[0].datatype == "BF16"
    assert found.external_names == ("data/w.bin",)


def test_tensor_may_have_no_shape(tmp_path):
    bare = field(1, "x") + field(2, field(1, field(1, 1)))
    graph = field(11, bare) + field(12, bare)
    found = header(tmp_path, field(7, graph))
    assert found.inputs[0].shape is None and str(found.inputs[0]) == "x FP32"


def test_axis_of_size_minus_one_is_dynamic(tmp_path):
    """As keras2onnx and others of its time write it."""
    found = header(tmp_path, onnx_bytes({"x": (1, ((1 << 64) - 1, 3))}))
    assert found.inputs[0].shape == (-1, 3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
        b"\x00" * 64,
        b"\xff" * 64,
        field(1, 8),
        field(7, b""),
        onnx_bytes({"x": (1, (None,))})[:-20],
        varint(7 << 3 | 2) + varint(1 << 62),
        field(7, field(12, field(1, b"\xff\xfe"))),
    ],
)
def test_refuses_what_is_no_onnx_file(tmp_path, content):
    with pytest.raises(ValueError, match=r"is empty|is no ONNX file, or a damaged one"):
        header(tmp_path, content)
