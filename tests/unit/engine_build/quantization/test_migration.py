"""Old calibration caches as Q/DQ networks."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine_build.errors import InputRefused, SourceFault
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration_cache import parse_cache
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.migration import main, migrate, trial_feed, write_network
from tests.unit.engine_build.graphs import node, tensor, write_graph

TINY = Path(__file__).parents[3] / "fixtures" / "tiny_embedder" / "model.onnx"
HEADER = "TRT-8510-EntropyCalibration2\n"
IMAGES = f"""{HEADER}pixels: 3c010a14
conv: 3d2aaaab
/relu/Relu_output_0: 3d0b7086
flat: 3d0b7086
(Unnamed Layer* 8) [Constant]_output: 39137939
scores: 3e5312f6
"""


def write_image_network(path: Path, height="height", width="width") -> onnx.ModelProto:
    """Conv, ReLU, pooling, Gemm, and a MatMul of its own input; rows are dynamic."""
    random = np.random.default_rng(0)
    nodes = [
        node("Conv", "pixels kernel bias", "conv", name="/conv", kernel_shape=[3, 3]),
        node("Relu", "conv", "/relu/Relu_output_0", name="/relu"),
        node("GlobalAveragePool", "/relu/Relu_output_0", "pooled", name="/pool"),
        node("Flatten", "pooled", "flat", name="/flatten"),
        node("Gemm", "flat classes", "scores", name="/classify", transB=1),
        node("MatMul", "features matrix", "beside", name="/beside"),
    ]
    weights = {"kernel": (4, 3, 3, 3), "bias": (4,), "classes": (5, 4), "matrix": (6, 2)}
    write_graph(
        path,
        nodes,
        [tensor("pixels", "rows", 3, height, width), tensor("features", "rows", 6)],
        [tensor("scores", "rows", 5), tensor("beside", "rows", 2)],
        **{name: random.standard_normal(shape, np.float32) for name, shape in weights.items()},
    )
    return onnx.load(path)


@pytest.fixture
def network(tmp_path) -> onnx.ModelProto:
    return write_image_network(tmp_path / "float.onnx")


def migrated(model, text=IMAGES, exclude=()):
    return migrate(model, parse_cache(text.encode(), "old.cache"), exclude)


def constants(model):
    return {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}


def scales(model) -> dict[str, str]:
    """The scale of each quantized activation, as a cache has it."""
    values = constants(model)
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return {node.input[0]: struct.pack("!f", values[node.input[1]]).hex() for node in nodes}


def test_activations_keep_the_caches_scales_bit_by_bit(network):
    result = migrated(network)
    assert result.int8 == ("/conv", "/classify")
    assert scales(result.network) == {"pixels": "3c010a14", "flat": "3d0b7086"}


def test_every_scale_survives_the_writer(network):
    for word in np.random.default_rng(1).integers(0x30000000, 0x50000000, 500):
        result = migrated(network, f"{HEADER}features: {word:08x}\n")
        assert scales(result.network) == {"features": f"{word:08x}"}


def test_weights_get_a_symmetric_scale_for_each_output_channel(network):
    before, after = constants(network), constants(migrated(network).network)
    for output, weight, axes in (("conv", "kernel", (1, 2, 3)), ("scores", "classes", (1,))):
        largest = np.abs(before[weight]).max(axis=axes)
        assert after[f"{output}_weight_scale"] == pytest.approx(largest / 127)
        assert (after[f"{output}_weight_zero"] == 0).all()
        assert np.abs(after[f"{output}_weight_int8"].astype(int)).max() == 127


def test_layers_and_tensors_that_do_not_match_are_named(network):
    result = migrated(network, exclude=("/conv",))
    assert (result.int8, result.without_scale) == (("/classify",), ("/beside",))
    assert result.not_in_network == ("(Unnamed Layer* 8) [Constant]_output",)


def test_scale_of_zero_is_no_scale(network):
    text = IMAGES.replace("flat: 3d0b7086", "flat: 00000000")
    assert migrated(network, text).without_scale == ("/classify", "/beside")


def test_trial_has_every_input_at_its_fixed_sizes(network):
    shapes = {name: (values.shape, values.dtype) for name, values in trial_feed(network).items()}
    assert shapes == {"pixels": ((2, 3, 64, 64), np.float32), "features": ((2, 6), np.float32)}
    text = trial_feed(read_model(TINY))
    values = {name: set(array.ravel().tolist()) for name, array in text.items()}
    assert values == {"input_ids": {0}, "attention_mask": {1}, "token_type_ids": {0}}


def largest_values(path: Path, feed) -> str:
    """A cache with the largest value of every layer's input, as the MinMax calibrator makes one."""
    model = read_model(path)
    names = list(dict.fromkeys(layer.activation for layer in quantizable_layers(model)))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = OrtNetwork(model.SerializeToString()).values(names, feed)
    lines = [
        f"{name}: {struct.pack('!f', np.abs(array).max() / 127).hex()}\n"
        for name, array in values.items()
    ]
    return "".join(["TRT-8510-MinMaxCalibration\n", *lines])


def run(tmp_path, text, *extra, network="float.onnx"):
    """The exit code of the command, its output and its errors."""
    (tmp_path / "old.cache").write_text(text)
    paths = ("--network", str(tmp_path / network), "--out", str(tmp_path / "qdq.onnx"))
    stdout, stderr = io.StringIO(), io.StringIO()
    code = main([str(tmp_path / "old.cache"), *paths, *extra], stdout, stderr)
    return code, stdout.getvalue(), stderr.getvalue()


def test_command_migrates_a_network_that_then_answers_nearly_the_same(tmp_path, network):
    random = np.random.default_rng(0)
    shapes = {"pixels": (4, 3, 16, 16), "features": (4, 6)}
    feed = {name: random.random(shape, dtype=np.float32) for name, shape in shapes.items()}
    source, out = tmp_path / "float.onnx", tmp_path / "qdq.onnx"
    code, report, _ = run(tmp_path, largest_values(source, feed), "--exclude", "/beside")
    first, *others = report.splitlines()
    origin = "their inputs by old.cache of TensorRT 8510, MinMaxCalibration; runs in"
    assert code == 0 and first.startswith(f"{out}: 2 layers in INT8, {origin}")
    assert others == ["left float, excluded (1):", "  /beside"]
    before, after = OrtNetwork(source).rows(feed), OrtNetwork(out).rows(feed)
    distance = np.linalg.norm(before[:, :5] - after[:, :5]) / np.linalg.norm(before[:, :5])
    assert 1e-6 < distance < 0.05
    assert (before[:, 5:] == after[:, 5:]).all()


@pytest.mark.parametrize(
    ("text", "extra", "fault"),
    [
        (
            f"{HEADER}data: 3c010a14\n",
            (),
            "its input's scale from the cache, whose tensors are data",
        ),
        (
            IMAGES,
            ("--exclude", "/conv1"),
            "--exclude /conv1 is no layer of the network; did you mean '/conv'?",
        ),
        (IMAGES.replace("3d2aaaab", "3d2a"), (), "old.cache, line 3: 'conv: 3d2a'"),
        (IMAGES.replace("flat: 3d0b7086", "flat: 7f800000"), (), "scale of flat, which /"),
    ],
)
def test_refuses_a_cache_or_node_of_another_network(tmp_path, network, text, extra, fault):
    code, report, errors = run(tmp_path, text, *extra)
    assert (code, report) == (1, "") and errors.startswith("FAILED: ") and fault in errors


def test_refuses_a_network_that_is_not_there(tmp_path):
    code, _, errors = run(tmp_path, IMAGES, network="no.onnx")
    assert code == 1 and "no.onnx is no file" in errors


def test_refuses_an_incomplete_command():
    stderr = io.StringIO()
    assert main(["old.cache"], io.StringIO(), stderr) == 1
    way_out = "--network, --out; run `python -m engine_build.quantization.migration --help`"
    assert way_out in stderr.getvalue()


def test_refuses_a_folder_that_cannot_be_written(tmp_path, network):
    (tmp_path / "qdq.onnx").mkdir()
    code, _, errors = run(tmp_path, IMAGES)
    assert code == 1 and "qdq.onnx: Is a directory; repair that" in errors


def test_refuses_an_opset_without_scales_by_channel(tmp_path, network):
    network.opset_import[0].version = 11
    onnx.save(network, tmp_path / "float.onnx")
    code, _, errors = run(tmp_path, IMAGES)
    assert code == 5 and "the network has opset 11" in errors


def test_refuses_a_network_that_gives_nan(tmp_path, network):
    network.graph.node.extend(
        [
            node("Exp", "beside", "power"),
            node("Neg", "power", "below"),
            node("Sqrt", "below", "root"),
        ]
    )
    network.graph.output[1].name = "root"
    with pytest.raises(SourceFault, match=r"output root of qdq.onnx becomes NaN or Inf"):
        write_network(migrated(network).network, tmp_path / "qdq.onnx")


def test_refuses_a_network_that_does_not_run(tmp_path, network):
    network.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "any"
    with pytest.raises(SourceFault, match=r"ONNX Runtime cannot run qdq.onnx \(.*/beside"):
        write_network(migrated(network).network, tmp_path / "qdq.onnx")


def test_refuses_a_node_that_int8_does_not_compute(network):
    with pytest.raises(InputRefused, match="--exclude /relu is no layer"):
        migrated(network, exclude=("/relu",))
