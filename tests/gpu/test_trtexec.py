"""What needs an NVIDIA GPU with trtexec: plans compiled, read back and judged.

On any other machine counted as not run.
"""

from __future__ import annotations

import dataclasses
import shutil
from contextlib import closing

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.runner import Runner
from engine_build.steps.compile import Candidate, compile_candidates, fallback, refuse_unfit_machine
from engine_build.store import FolderStore
from engine_build.tensorrt.network import load_plan
from engine_build.tensorrt.trtexec import gpu_host, trtexec_version
from onboarding.manifest import RuntimeIdentity, TensorRecord
from onboarding.names import timing_cache_path
from tests.unit.engine_build import stand_ins
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("trtexec") is None or shutil.which("nvidia-smi") is None,
        reason="needs an NVIDIA GPU with trtexec and its driver",
    ),
]
WIDTH = 256
X = TensorRecord(name="x", datatype="FP32", shape=(-1, WIDTH))
Y = TensorRecord(name="y", datatype="FP32", shape=(-1, WIDTH))


def layers(folder, *, quantized):
    """Two MatMuls and a Relu; with Q/DQ pairs and INT8 weights, or without."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16 for _ in range(2)]
    constants, nodes, tensor = {}, [], "x"
    for index, weight in enumerate(weights):
        names = {part: f"{part}{index}" for part in ("w", "s", "z", "a", "n", "q", "d", "v", "m")}
        if quantized:
            scale = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
            constants |= {
                names["w"]: np.clip(np.rint(weight / scale), -127, 127).astype(np.int8),
                names["s"]: scale,
                names["z"]: np.zeros(WIDTH, dtype=np.int8),
                names["a"]: np.array(0.03, dtype=np.float32),
                names["n"]: np.array(0, dtype=np.int8),
            }
            grid = [names["a"], names["n"]]
            nodes += [
                helper.make_node("QuantizeLinear", [tensor, *grid], [names["q"]]),
                helper.make_node("DequantizeLinear", [names["q"], *grid], [names["d"]]),
                helper.make_node(
                    "DequantizeLinear", [names["w"], names["s"], names["z"]], [names["v"]], axis=1
                ),
            ]
        else:
            constants[names["v"]] = weight
        nodes.append(
            helper.make_node(
                "MatMul", [names["d"] if quantized else tensor, names["v"]], [names["m"]]
            )
        )
        nodes.append(
            helper.make_node(
                "Relu" if index == 0 else "Identity",
                [names["m"]],
                [f"h{index}" if index == 0 else "y"],
            )
        )
        tensor = "h0"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layers",
        [value("x", onnx.TensorProto.FLOAT, ["batch", WIDTH])],
        [value("y", onnx.TensorProto.FLOAT, ["batch", WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = folder / ("int8.onnx" if quantized else "float.onnx")
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return Network(precision=path.stem, path=path, inputs=(X,), outputs=(Y,), facts={})


@pytest.fixture
def networks(tmp_path):
    return {"float": layers(tmp_path, quantized=False), "int8": layers(tmp_path, quantized=True)}


def context(folder, precision, store=None, out="out"):
    """A build for this very machine."""
    spec = model("tiny", precision, endpoint={"instance_type": "ml.g5.xlarge"})
    spec["engine"]["optimization_profiles"] = [{"batch": [1, 8, 32], "sequence": [1, 1, 1]}]
    root = write_tree(folder / "root", spec, platform="triton-26.05")
    tools = stand_ins.context(root, folder / out, store=store, runner=None)
    runner = Runner(tools.log)
    host, version = gpu_host(runner), trtexec_version(runner)
    dialect = 11 if int(version.split(".")[0]) >= 11 else 10
    request = dataclasses.replace(
        tools.request,
        compute_capability=host.compute_capability,
        # The tree names an A10G.
        gpu=host.gpu,
        runtime=RuntimeIdentity(name="tensorrt", version=version),
        platform=tools.request.platform.model_copy(
            update={"tensorrt": version, "trtexec_dialect": dialect, "minimum_driver": None}
        ),
    )
    return dataclasses.replace(tools, runner=runner, request=request)


def difference(candidate: Candidate, network: Network) -> float:
    x = np.random.default_rng(1).standard_normal((40, WIDTH)).astype(np.float32)
    expected = OrtNetwork(network.path).rows({"x": x})
    with closing(load_plan(candidate.path)) as plan:
        found = plan.rows({"x": x})
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_this_machine_is_taken_for_its_own_key(tmp_path):
    tools = context(tmp_path, "fp16")
    refuse_unfit_machine(tools)


def test_plans_are_built_read_back_and_answer_as_their_networks(tmp_path, networks):
    tools = context(tmp_path, "auto")
    with tools.work:
        plain, int8 = compile_candidates(tools, networks)
        exact = fallback(tools, networks)
    assert (plain.plan.int8_layers, int8.plan.int8_layers > 0) == (0, True)
    assert difference(exact, networks["float"]) < 1e-4
    assert difference(plain, networks["float"]) < 1e-2
    assert difference(int8, networks["int8"]) < 3e-2


def test_timing_cache_is_shared_and_a_damaged_one_survived(tmp_path, networks):
    store = FolderStore(tmp_path / "store")
    first = context(tmp_path, "fp16", store)
    with first.work:
        compile_candidates(first, networks)
    name = timing_cache_path(first.request.runtime.version, gpu_host(first.runner).gpu)
    assert store.size(name)
    (tmp_path / "damaged").write_bytes(b"no timing cache at all")
    store.upload(tmp_path / "damaged", name)
    again = context(tmp_path, "fp32", store, out="again")
    with again.work:
        assert compile_candidates(again, networks)[0].plan is not None
