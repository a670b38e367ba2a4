"""A network of arrays: its file, its starter arrays, and an instance type for each environment."""

from __future__ import annotations

import io

import numpy as np
import pytest
import yaml

from onboarding.checkpoint import files_sha256
from onboarding.onnx_header import NetworkTensor
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.inspection.model_file import LARGEST_BYTES, starter_arrays
from tests.unit.onboarding.onnx_bytes import onnx_bytes
from tests.unit.roundhouse.engines import copied_tree
from tests.unit.roundhouse.inspection.sources import new_model

VISION = {"inputs": {"pixels": (1, (None, 3, 32, 32)), "mask": (9, (None, 4))}}


@pytest.fixture
def tree(tmp_path):
    return copied_tree(tmp_path / "tree")


def model_of(tree, **network):
    (tree / "models/data/net.onnx").write_bytes(onnx_bytes(**network))
    result = new_model(tree, onnx="models/data/net.onnx")
    ((file, line),) = result.to_add.items()
    assert file == "environments/local.yaml" and result.faults == ()
    local = yaml.safe_load((tree / file).read_text())
    local["models"] |= yaml.safe_load(line)["models"]
    (tree / file).write_text(yaml.safe_dump(local))
    assert read_tree(tree).faults == ()
    return yaml.safe_load((tree / "models/mine.yaml").read_text()), result


def test_file_and_the_line_to_add_pass_check_in_every_environment(tree):
    model, result = model_of(tree, **VISION)
    assert model["task"] == "tensors" and "calibration" not in model["engine"]
    assert model["endpoint"]["instance_type"] == "ml.g5.xlarge"
    assert {path.name for path in result.files} == {"mine.yaml", "mine-validation.npz"}
    view = read_tree(tree).views["local"].models["mine"]
    assert view.spec.endpoint.instance_type == "ml.c7i.xlarge"


def test_starter_arrays_have_the_networks_names_shapes_and_types(tree):
    model_of(tree, **VISION)
    arrays = np.load(tree / "models/data/mine-validation.npz")
    assert arrays["pixels"].shape == (128, 3, 32, 32) and arrays["pixels"].dtype == np.float32
    assert arrays["mask"].shape == (128, 4) and arrays["mask"].dtype == np.bool_


def test_dynamic_axis_1_is_a_sequence(tree):
    model, _ = model_of(tree, inputs={"signal": (1, (None, None, 8))})
    assert model["engine"]["optimization_profiles"][0]["sequence"] == [16, 128, 512]
    assert np.load(tree / "models/data/mine-validation.npz")["signal"].shape == (128, 16, 8)


def test_network_with_data_files_is_pinned_by_the_digest_of_all(tree):
    (tree / "models/data/data").mkdir()
    (tree / "models/data/data/w.bin").write_bytes(b"weights")
    model, _ = model_of(tree, **VISION, weights=("w",), external=True)
    expected = files_sha256(tree / "models/data", ("data/w.bin", "net.onnx"))
    assert model["source"]["sha256"] == expected


def test_input_may_be_named_as_an_argument_of_numpy():
    named = [NetworkTensor(name=name, datatype="FP32", shape=(-1, 2)) for name in ("file", "args")]
    assert set(np.load(io.BytesIO(starter_arrays(named)))) == {"file", "args"}


def test_starter_arrays_stay_small_and_the_same():
    inputs = (NetworkTensor(name="x", datatype="FP32", shape=(-1, 3, 224, 224)),)
    content = starter_arrays(inputs)
    assert np.load(io.BytesIO(content))["x"].shape[0] == 8
    assert len(content) < 2 * LARGEST_BYTES and content == starter_arrays(inputs)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"inputs": {"x": (1, (1, 4))}}, r"no dynamic first axis"),
        ({"inputs": {"x": (8, (None, 4))}}, "BYTES .* no string enters or leaves an engine"),
        ({"inputs": {"x": (14, (None, 4))}}, "x COMPLEX64 .* real and imaginary parts"),
        ({**VISION, "outputs": {"y": (11, (None, 2))}}, "output y FP64 .* a Cast inside"),
        ({**VISION, "weights": ("w",), "external": True}, "'data/w.bin', which is no file beside"),
        ({"inputs": {"x": (1, (None, 4, None))}}, "dynamic beyond axis 1"),
        ({"inputs": {}}, "takes no input"),
    ],
)
def test_refuses_a_network_that_no_build_takes(tree, network, message):
    (tree / "models/data/net.onnx").write_bytes(onnx_bytes(**network))
    with pytest.raises(RoundhouseError, match=message):
        new_model(tree, onnx="models/data/net.onnx")
    assert not (tree / "models/mine.yaml").exists()
