"""The GPU steps of a build with programs that are stood in for.

Typed network, trtexec, plan read back, candidate.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.errors import InputRefused, NetworkRefused
from engine_build.evaluation.runtimes import load_engine
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration_cache import cache_path
from engine_build.steps.compile import check_machine, compile_candidates, fallback
from engine_build.store import FolderStore
from onboarding.names import timing_cache_path
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, GpuMachine, install_runtime

ELEVEN = [11, 0, 0, 114]
CACHE = timing_cache_path("10.16.1.11", "NVIDIA A10G")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return GpuMachine(tmp_path, monkeypatch)


def made(context, networks):
    with context.work:
        return compile_candidates(context, networks)


def logged(context):
    return context.log._stream.getvalue()


def test_auto_makes_fp16_and_int8_plans_that_are_read_back(machine):
    context = machine.context()
    plain, int8 = made(context, machine.networks())
    assert [plain.precision, int8.precision] == ["fp16", "int8"]
    assert (plain.plan.tensorrt, plain.plan.int8_layers, int8.plan.int8_layers) == (
        "10.16.1.11",
        0,
        1,
    )
    assert int8.plan.layers > 10 and plain.plan.timing_cache_sha256 is not None
    assert plain.plan.command.startswith(
        "trtexec --onnx=network.onnx --saveEngine=model.plan --stronglyTyped --minShapes=input_ids:"
    )
    assert "int8: 0.0 MB of TensorRT 10.16.1.11" in logged(context)
    assert "1.254 ms by trtexec at 2 x 8 without a CUDA graph" in logged(context)


def test_plans_are_strongly_typed_networks_in_fp16(machine):
    candidates = made(machine.context(), machine.networks())
    for candidate in candidates:
        weights = onnx.load(candidate.path.with_name("network.onnx")).graph.initializer
        assert TensorProto.FLOAT16 in {weight.data_type for weight in weights}


def test_plan_answers_in_the_runtime_that_judges_it(machine, monkeypatch):
    candidate = made(machine.context(), machine.networks())[0]
    install_runtime(monkeypatch)
    ids = np.arange(1, 17).reshape(2, 8)
    feed = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    assert np.allclose(
        load_engine("tensorrt", candidate.path).rows(feed), OrtNetwork(TINY).rows(feed), atol=2e-3
    )


def test_eleven_builds_the_same_networks_without_typing_flags(machine):
    machine.describe(version=ELEVEN)
    plain, int8 = made(machine.context(platform="triton-26.06"), machine.networks())
    assert "--stronglyTyped" not in plain.plan.command and "--fp16" not in plain.plan.command
    assert (plain.plan.tensorrt, int8.plan.int8_layers) == ("11.0.0.114", 1)


def test_fallback_is_fp32_and_only_for_auto(machine):
    context = machine.context()
    with context.work:
        candidate = fallback(context, machine.networks())
    assert candidate.precision == "fp32" and "--noTF32" in candidate.plan.command
    asked = machine.context("fp16", out="asked")
    with asked.work:
        assert fallback(asked, machine.networks()) is None


def test_bf16_is_left_to_trtexec_in_dialect_10(machine):
    (candidate,) = made(machine.context("bf16"), machine.networks())
    assert "--bf16" in candidate.plan.command and "--stronglyTyped" not in candidate.plan.command


def test_refuses_bf16_in_dialect_11(machine):
    machine.describe(version=ELEVEN)
    with pytest.raises(
        InputRefused, match=r"bf16 needs TensorRT 10, and platform triton-26.06 has TensorRT 11"
    ):
        machine.context("bf16", platform="triton-26.06")


def test_engine_options_reach_trtexec(machine):
    options = {
        "optimization_level": 5,
        "workspace_mib": 1024,
        "hardware_compatibility": "same_compute_capability",
        "version_compatible": True,
    }
    context = machine.context("fp16", **options)
    (candidate,) = made(context, machine.networks())
    for flag in (
        "--builderOptimizationLevel=5",
        "--memPoolSize=workspace:1024M",
        "--hardwareCompatibilityLevel=sameComputeCapability",
        "--versionCompatible",
    ):
        assert flag in candidate.plan.command
    (run,) = [
        line
        for line in logged(context).splitlines()
        if "--loadEngine" in line and "--shapes" in line and "$ trtexec" in line
    ]
    assert "--versionCompatible" in run


def test_calibration_cache_is_given_to_trtexec(machine):
    context = machine.context(
        "int8", quantization="calibration-cache", calibration=calibration("entropy")
    )
    path = context.work_store.path(cache_path(context.request))
    path.parent.mkdir(parents=True)
    path.write_text("TRT-101601-EntropyCalibration2\ninput: 3c010a14\n")
    (candidate,) = made(context, {"float": machine.networks()["float"]})
    assert "--int8 --fp16 --calib=calibration.cache" in candidate.plan.command
    assert candidate.plan.int8_layers == 3
    assert candidate.path.with_name("network.onnx").read_bytes() == TINY.read_bytes()


def test_refuses_int8_whose_calibration_cache_was_not_made(machine):
    context = machine.context(
        "int8", quantization="calibration-cache", calibration=calibration("entropy")
    )
    with pytest.raises(InputRefused, match="there is no calibration cache"):
        made(context, {"float": machine.networks()["float"]})


def calibration(method):
    return {"dataset": "models/data/calibration.txt", "samples": 48, "method": method}


def test_finished_plans_are_reused_after_a_kill(machine):
    context = machine.context()
    first = made(context, machine.networks())
    machine.describe(breaks_at="compile")
    again = machine.context()
    assert made(again, machine.networks()) == first
    assert "the plan of an earlier run is reused" in logged(again) and "--saveEngine" not in logged(
        again
    )


@pytest.mark.parametrize("change", ["record", "plan", "network", "option"])
def test_plan_that_is_not_the_same_is_made_anew(machine, change):
    networks = machine.networks()
    (candidate,) = made(machine.context("fp16"), networks)
    if change == "record":
        candidate.path.with_name("plan.json").write_text("{")
    if change == "plan":
        candidate.path.write_bytes(candidate.path.read_bytes()[:-1])
    if change == "network":
        networks = {"float": machine.network("float", networks["int8"].path)}
    again = machine.context("fp16", **({"optimization_level": 1} if change == "option" else {}))
    made(again, networks)
    assert "--saveEngine" in logged(again)


def test_timing_cache_is_shared_by_the_builds_of_a_store(machine, tmp_path):
    store = FolderStore(tmp_path / "store")
    made(machine.context("fp16", store=store), machine.networks())
    assert store.read(CACHE) == b"timings of [10, 16, 1, 11]"
    other = machine.context("fp32", store=store, out="elsewhere")
    made(other, machine.networks())
    assert f"timing cache {CACHE} of {store.place}" in logged(other)


def test_timing_cache_is_of_the_exact_build(machine, tmp_path):
    machine.describe(version=ELEVEN)
    store = FolderStore(tmp_path / "store")
    made(machine.context("fp16", store=store, platform="triton-26.06"), machine.networks())
    assert store.size(timing_cache_path("11.0.0.114", "NVIDIA A10G")) is not None


def test_damaged_timing_cache_is_dropped(machine, tmp_path):
    store = FolderStore(tmp_path / "store")
    (tmp_path / "damaged").write_bytes(b"damaged")
    store.upload(tmp_path / "damaged", CACHE)
    context = machine.context("fp16", store=store)
    (candidate,) = made(context, machine.networks())
    assert "the timing cache may be damaged: once more without it" in logged(context)
    assert candidate.plan is not None and store.read(CACHE).startswith(b"timings")


def test_each_process_has_its_log_and_its_line_in_the_script(machine):
    made(machine.context("fp16"), machine.networks())
    logs = sorted(path.name for path in (machine.folder / "out/logs").iterdir())
    assert logs == ["01-nvidia-smi.log", *(f"0{place}-trtexec.log" for place in (2, 3, 4, 5))]
    assert (
        "&&&& PASSED TensorRT.trtexec [TensorRT v101601] [b11]"
        in (machine.folder / "out/logs/02-trtexec.log").read_text()
    )
    assert (machine.folder / "out/reproduce.sh").read_text().count("\ntrtexec --") == 4


def test_refuses_an_int8_plan_without_an_int8_layer(machine):
    machine.describe(loses_int8=True)
    with pytest.raises(
        NetworkRefused,
        match=r"none of its \d+ layers computes in INT8, though precision int8 was asked for",
    ):
        made(machine.context("int8"), machine.networks())


def test_refuses_a_plan_of_another_tensorrt(machine):
    machine.describe(plan_version=[10, 16, 1, 12])
    with pytest.raises(NetworkRefused, match=r"written by TensorRT 10\.16\.1\.12"):
        made(machine.context("fp16"), machine.networks())


def test_refuses_what_trtexec_refuses_in_its_own_words(machine):
    machine.describe(breaks_at="compile")
    with pytest.raises(
        NetworkRefused,
        match=r"code 1 and gave no fp16 plan: Error Code 9: Skipping tactic .* memory; the log",
    ):
        made(machine.context("fp16"), machine.networks())


def test_refuses_a_plan_that_does_not_run(machine):
    machine.describe(breaks_at="run")
    with pytest.raises(
        NetworkRefused, match=r"does not run at its own opt shape .*illegal memory access"
    ):
        made(machine.context("fp16"), machine.networks())


def test_machine_of_the_key_is_taken(machine, monkeypatch):
    install_runtime(monkeypatch)
    context = machine.context()
    assert check_machine(context.request, context.runner).gpu == "NVIDIA A10G"


@pytest.mark.parametrize("lacks", [("tensorrt",), ("cuda.bindings.runtime",)])
def test_refuses_a_machine_that_could_not_judge_the_plans(machine, monkeypatch, lacks):
    install_runtime(monkeypatch, lacks=lacks)
    context = machine.context()
    with pytest.raises(
        InputRefused, match=f"cannot be judged on this machine, whose Python has no {lacks[0]}"
    ):
        check_machine(context.request, context.runner)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"gpus": ["NVIDIA L4, 580.95.05, 8.9, 23034"]},
            "NVIDIA L4 has compute capability 8.9, but engine .* is for 8.6",
        ),
        ({"gpus": []}, "finds no GPU on this machine .*No devices were found"),
        (
            {"version": ELEVEN},
            r"trtexec is of TensorRT 11\.0\.0\.114, but platform triton-26\.05 serves "
            r"10\.16\.1\.11",
        ),
    ],
)
def test_refuses_another_machine_before_anything_is_made(machine, changes, reason):
    machine.describe(**changes)
    context = machine.context()
    with pytest.raises(InputRefused, match=reason):
        check_machine(context.request, context.runner)


def test_refuses_fp8_in_one_sentence(machine):
    with pytest.raises(
        InputRefused,
        match=r"fp8 cannot be built: nothing calibrates an FP8 network.* allowed: fp32, fp16",
    ):
        machine.context("fp8", instance="ml.g6.xlarge")
