"""Old calibration caches as Q/DQ networks."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import InputRefused, SourceFault
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration_cache import CalibrationCache, cache_bytes, parse_cache
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.migration import main, migrate, trial_feed, write_network

TINY = Path(__file__).parents[3] / "fixtures" / "tiny_embedder" / "model.onnx"
IMAGES = """TRT-8510-EntropyCalibration2
pixels: 3c010a14
conv: 3d2aaaab
/relu/Relu_output_0: 3d0b7086
flat: 3d0b7086
(Unnamed Layer* 8) [Constant]_output: 39137939
scores: 3e5312f6
"""


def network(height: int | str = "height", width: int | str = "width") -> onnx.ModelProto:
    """Conv, ReLU, pooling, Gemm, and a MatMul of its own input.

    Rows are dynamic, and pixels unless given.
    """
    draw = np.random.default_rng(0)
    nodes = [
        helper.make_node(
            "Conv", ["pixels", "kernel", "bias"], ["conv"], name="/conv", kernel_shape=[3, 3]
        ),
        helper.make_node("Relu", ["conv"], ["/relu/Relu_output_0"], name="/relu"),
        helper.make_node("GlobalAveragePool", ["/relu/Relu_output_0"], ["pooled"], name="/pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="/flatten"),
        helper.make_node("Gemm", ["flat", "classes"], ["scores"], name="/classify", transB=1),
        helper.make_node("MatMul", ["features", "matrix"], ["beside"], name="/beside"),
    ]
    weights = {"kernel": (4, 3, 3, 3), "bias": (4,), "classes": (5, 4), "matrix": (6, 2)}
    inputs = {"pixels": ["rows", 3, height, width], "features": ["rows", 6]}
    graph = helper.make_graph(
        nodes,
        "images",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
            for name, size in (("scores", 5), ("beside", 2))
        ],
        [
            numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="pytorch"
    )


def constants(model):
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def steps(model) -> dict[str, bytes]:
    """The scale of each quantized activation, as a cache has it."""
    values = constants(model)
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return {node.input[0]: struct.pack("!f", values[node.input[1]]).hex() for node in nodes}


def test_activations_keep_the_caches_scales_bit_by_bit():
    result = migrate(network(), parse_cache(IMAGES.encode(), "old.cache"))
    assert result.int8 == ("/conv", "/classify")
    assert steps(result.network) == {"pixels": "3c010a14", "flat": "3d0b7086"}


def test_every_scale_survives_the_writer():
    words = np.random.default_rng(1).integers(0x30000000, 0x50000000, 500)
    for word in words:
        text = f"TRT-8510-EntropyCalibration2\nfeatures: {word:08x}\n"
        assert steps(migrate(network(), parse_cache(text.encode(), "old.cache")).network) == {
            "features": f"{word:08x}"
        }


def test_weights_get_a_symmetric_scale_for_each_output_channel():
    model = migrate(network(), parse_cache(IMAGES.encode(), "old.cache")).network
    before, after = constants(network()), constants(model)
    for output, weight, axes in (("conv", "kernel", (1, 2, 3)), ("scores", "classes", (1,))):
        assert after[f"{output}_weight_scale"] == pytest.approx(
            np.abs(before[weight]).max(axis=axes) / 127
        )
        assert (after[f"{output}_weight_zero"] == 0).all() and np.abs(
            after[f"{output}_weight_int8"].astype(int)
        ).max() == 127


def test_what_does_not_match_is_told_by_name():
    result = migrate(network(), parse_cache(IMAGES.encode(), "old.cache"), ("/conv",))
    assert (result.int8, result.excluded) == (("/classify",), ("/conv",))
    assert result.without_scale == ("/beside",)
    assert result.not_in_network == ("(Unnamed Layer* 8) [Constant]_output",)


def test_scale_of_zero_is_no_scale():
    text = IMAGES.replace("flat: 3d0b7086", "flat: 00000000")
    assert migrate(network(), parse_cache(text.encode(), "old.cache")).without_scale == (
        "/classify",
        "/beside",
    )


def test_trial_has_every_input_at_its_fixed_sizes():
    shapes = {name: (values.shape, values.dtype) for name, values in trial_feed(network()).items()}
    assert shapes == {"pixels": ((2, 3, 64, 64), np.float32), "features": ((2, 6), np.float32)}
    text = trial_feed(read_model(TINY))
    assert {name: set(values.ravel().tolist()) for name, values in text.items()} == {
        "input_ids": {0},
        "attention_mask": {1},
        "token_type_ids": {0},
    }


def measured(path: Path, feed) -> CalibrationCache:
    """A cache with the largest value of every layer's input, as the MinMax calibrator makes one."""
    model = read_model(path)
    names = list(dict.fromkeys(layer.activation for layer in quantizable_layers(model)))
    spied = onnx.ModelProto()
    spied.CopyFrom(model)
    spied.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = OrtNetwork(spied.SerializeToString()).values(names, feed)
    scales = {name: float(np.float32(np.abs(found).max() / 127)) for name, found in values.items()}
    return CalibrationCache(
        version="8510", algorithm="MinMaxCalibration", entries=tuple(scales.items())
    )


def test_command_migrates_a_network_that_then_answers_nearly_the_same(tmp_path):
    draw = np.random.default_rng(0)
    feed = {
        "pixels": draw.random((4, 3, 16, 16), dtype=np.float32),
        "features": draw.random((4, 6), dtype=np.float32),
    }
    source, cache, out = tmp_path / "float.onnx", tmp_path / "old.cache", tmp_path / "qdq.onnx"
    onnx.save(network(), source)
    cache.write_bytes(cache_bytes(measured(source, feed)))
    stdout = io.StringIO()
    assert (
        main(
            [str(cache), "--network", str(source), "--out", str(out), "--exclude", "/beside"],
            stdout,
            io.StringIO(),
        )
        == 0
    )
    lines = stdout.getvalue().splitlines()
    assert lines[0].startswith(
        f"{out}: 2 layers in INT8, their inputs by old.cache of TensorRT 8510, MinMaxCalibration; "
        "runs in"
    )
    assert lines[1:] == ["left float, excluded (1):", "  /beside"]
    wanted, found = OrtNetwork(source).rows(feed), OrtNetwork(out).rows(feed)
    scores = np.s_[:, :5]
    assert (
        1e-6
        < np.linalg.norm(wanted[scores] - found[scores]) / np.linalg.norm(wanted[scores])
        < 0.05
    )
    assert (wanted[:, 5:] == found[:, 5:]).all()


def refused(tmp_path, text=IMAGES, *extra, model=None):
    """What the command says, given a cache and a network."""
    (tmp_path / "old.cache").write_text(text)
    onnx.save(network() if model is None else model, tmp_path / "float.onnx")
    paths = [
        str(tmp_path / "old.cache"),
        "--network",
        str(tmp_path / "float.onnx"),
        "--out",
        str(tmp_path / "qdq.onnx"),
    ]
    stdout, stderr = io.StringIO(), io.StringIO()
    code = main([*paths, *extra], stdout, stderr)
    assert stdout.getvalue() == ""
    return code, stderr.getvalue()


def test_refuses_a_cache_of_another_network(tmp_path):
    code, said = refused(tmp_path, "TRT-8510-EntropyCalibration2\ndata: 3c010a14\n")
    assert (
        code == 1
        and "no layer of the network takes its input's scale from the cache, whose tensors are data"
        in said
    )


def test_refuses_an_unknown_node_with_the_nearest_one(tmp_path):
    assert refused(tmp_path, IMAGES, "--exclude", "/conv1")[1].startswith(
        "FAILED: --exclude /conv1 is no layer of the network; did you mean '/conv'?"
    )


def test_refuses_a_malformed_cache_by_its_line(tmp_path):
    assert (
        "old.cache, line 3: 'conv: 3d2a'"
        in refused(tmp_path, IMAGES.replace("3d2aaaab", "3d2a"))[1]
    )


def test_refuses_a_network_that_is_not_there(tmp_path):
    (tmp_path / "old.cache").write_text(IMAGES)
    stderr = io.StringIO()
    assert (
        main(
            [str(tmp_path / "old.cache"), "--network", "no.onnx", "--out", "qdq.onnx"],
            io.StringIO(),
            stderr,
        )
        == 1
    )
    assert "--network no.onnx is no file" in stderr.getvalue()


def test_refuses_an_incomplete_command():
    stderr = io.StringIO()
    assert main(["old.cache"], io.StringIO(), stderr) == 1
    assert (
        "--network, --out; run `python -m engine_build.quantization.migration --help`"
        in stderr.getvalue()
    )


def test_refuses_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "qdq.onnx").mkdir()
    code, said = refused(tmp_path)
    assert code == 1 and "qdq.onnx: Is a directory; repair that" in said


def test_refuses_an_opset_without_scales_by_channel(tmp_path):
    old = network()
    old.opset_import[0].version = 11
    code, said = refused(tmp_path, model=old)
    assert code == 5 and "the network has opset 11" in said


def test_refuses_a_network_that_gives_nan(tmp_path):
    model = network()
    model.graph.node.append(helper.make_node("Sqrt", ["below"], ["beside2"], name="/root"))
    model.graph.node.insert(6, helper.make_node("Neg", ["exponent"], ["below"]))
    model.graph.node.insert(6, helper.make_node("Exp", ["beside"], ["exponent"]))
    model.graph.output[1].name = "beside2"
    with pytest.raises(SourceFault, match=r"output beside2 of qdq.onnx becomes NaN or Inf"):
        write_network(
            migrate(model, parse_cache(IMAGES.encode(), "old.cache")).network, tmp_path / "qdq.onnx"
        )


def test_refuses_a_network_that_does_not_run(tmp_path):
    model = network()
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "any"
    with pytest.raises(SourceFault, match=r"ONNX Runtime cannot run qdq.onnx \(.*/beside"):
        write_network(
            migrate(model, parse_cache(IMAGES.encode(), "old.cache")).network, tmp_path / "qdq.onnx"
        )


def test_refuses_nothing_but_unknown_nodes():
    with pytest.raises(InputRefused, match="--exclude relu is no layer"):
        migrate(network(), parse_cache(IMAGES.encode(), "old.cache"), ("relu",))
