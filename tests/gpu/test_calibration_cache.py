"""INT8 by a calibration cache in a real TensorRT 10: a ResNet-50 in INT8, attention in FP16."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing

import numpy as np
import onnx
import pytest
import torch
import transformers

from engine_build.datasets.dataset import Samples
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.steps.calibrate import calibrate_cache, parse_cache, run
from engine_build.steps.compile import compile_candidates
from engine_build.steps.step import BuildState
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import run_command
from onboarding.manifest import TensorRecord
from onboarding.model_spec import CalibrationSpec
from tests.gpu.test_trtexec import context, pytestmark  # noqa: F401
from tests.unit.engine_build.quantization.graphs import transformer

SIZE, BATCH = 224, 8
IMAGE = (TensorRecord(name="pixel_values", datatype="FP32", shape=(-1, 3, SIZE, SIZE)),)
LOGITS = (TensorRecord(name="logits", datatype="FP32", shape=(-1, 1000)),)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> Network:
    """ResNet-50 with random weights."""
    torch.manual_seed(0)
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
    path = tmp_path_factory.mktemp("resnet") / "float.onnx"
    torch.onnx.export(
        model.eval(),
        (torch.zeros(2, 3, SIZE, SIZE),),
        str(path),
        input_names=["pixel_values"],
        output_names=["logits"],
        dynamic_axes={"pixel_values": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    return Network(precision="float", path=path, inputs=IMAGE, outputs=LOGITS, facts={})


def build(folder, precision):
    """A build for this very machine with images of one fixed shape, by a calibration cache."""
    tools = context(folder, precision, out=precision)
    random = np.random.default_rng(0)
    rows = tuple(
        {"pixel_values": random.standard_normal((3, SIZE, SIZE)).astype(np.float32)}
        for _ in range(4 * BATCH)
    )
    engine = tools.request.model.engine
    calibration = CalibrationSpec(
        dataset="models/data/calibration.txt", samples=len(rows), method="entropy"
    )
    profiles = tuple(
        profile.model_copy(update={"batch": (1, BATCH, BATCH), "sequence": None})
        for profile in engine.optimization_profiles
    )
    engine = engine.model_copy(
        update={"calibration": calibration, "optimization_profiles": profiles}
    )
    request = dataclasses.replace(
        tools.request,
        model=tools.request.model.model_copy(update={"engine": engine}),
        quantization="calibration-cache",
        network_keys={"float": "f" * 20, "int8": "8" * 20},
        calibration=Samples(values=rows),
    )
    if request.platform.trtexec_dialect != 10:
        pytest.skip("TensorRT 11 has no calibrators")
    return dataclasses.replace(tools, request=request)


def median_ms(tools, plan, folder):
    """The plan's own time at the largest batch, by trtexec."""
    command = run_command(
        plan,
        10,
        shapes=[("pixel_values", (BATCH, 3, SIZE, SIZE))],
        inputs=(),
        times=folder / "times.json",
        layers=folder / "layers.json",
        version_compatible=False,
    )
    ended = tools.runner.run(command)
    assert ended.code == 0, ended.errors
    times = [row["latencyMs"] for row in json.loads((folder / "times.json").read_text())]
    return float(np.median(times))


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_resnet_is_calibrated_by_tensorrt_and_has_layers_in_int8(tmp_path, resnet, record_property):
    x = np.random.default_rng(1).standard_normal((BATCH, 3, SIZE, SIZE)).astype(np.float32)
    expected = OrtNetwork(resnet.path).rows({"pixel_values": x})
    times = {}
    for precision in ("fp16", "int8"):
        tools = build(tmp_path, precision)
        with tools.work:
            if precision == "int8":
                path = calibrate_cache(tools, resnet, TensorEncoder(IMAGE))
                cache = parse_cache(path.read_bytes(), path.name)
                record_property("scales", len(cache.scales))
            (candidate,) = compile_candidates(tools, {"float": resnet})
            times[precision] = median_ms(tools, candidate.path, tmp_path)
            with closing(load_plan(candidate.path)) as plan:
                rows = plan.rows({"pixel_values": x})
        cosine = (rows * expected).sum() / np.linalg.norm(rows) / np.linalg.norm(expected)
        record_property(f"{precision}_p50_ms", round(times[precision], 3))
        record_property(f"{precision}_cosine", round(float(cosine), 5))
        record_property(f"{precision}_int8_layers", candidate.plan.int8_layers)
        assert np.isfinite(rows).all() and cosine > 0.95
    assert candidate.plan.int8_layers > 0 and cache.infinite == ()
    record_property("fp16_by_int8", round(times["fp16"] / times["int8"], 3))


def test_attention_is_refused_and_really_stays_fp16(tmp_path, record_property):
    """The refusal's own claim: calibrated all the same, no layer is in INT8."""
    onnx.save(transformer(), tmp_path / "float.onnx")
    inputs = (
        TensorRecord(name="x", datatype="FP32", shape=(-1, -1, 16)),
        TensorRecord(name="attention_mask", datatype="INT64", shape=(-1, -1)),
    )
    output = TensorRecord(name="y", datatype="FP32", shape=(-1, 5))
    network = Network(
        precision="float",
        path=tmp_path / "float.onnx",
        inputs=inputs,
        outputs=(output,),
        facts={},
    )
    tools = build(tmp_path, "int8")
    random = np.random.default_rng(0)
    rows = tuple(
        {
            "x": random.standard_normal((16, 16)).astype(np.float32),
            "attention_mask": np.ones(16, dtype=np.int64),
        }
        for _ in range(2 * BATCH)
    )
    engine = tools.request.model.engine
    profiles = tuple(
        profile.model_copy(update={"sequence": (16, 16, 16)})
        for profile in engine.optimization_profiles
    )
    engine = engine.model_copy(update={"optimization_profiles": profiles})
    request = dataclasses.replace(
        tools.request,
        model=tools.request.model.model_copy(update={"engine": engine}),
        calibration=Samples(values=rows),
    )
    tools = dataclasses.replace(tools, request=request)
    state = BuildState(tools)
    state.networks, state.encoder = {"float": network}, TensorEncoder(inputs)
    with tools.work:
        with pytest.raises(NetworkRefused, match=r"`quantization: explicit`"):
            run(tools, state)
        calibrate_cache(tools, network, state.encoder)
        try:
            (candidate,) = compile_candidates(tools, {"float": network})
        except NetworkRefused as error:
            assert "computes in INT8" in str(error)
            record_property("int8_layers", 0)
        else:
            record_property("int8_layers", candidate.plan.int8_layers)
            assert candidate.plan.int8_layers == 0
