"""What a GPU machine lacks, on machines that lack one thing."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from engine_build.tensorrt.trtexec import GpuHost
from onboarding.platform import instance_types, serving_platforms
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.dev.gpu.engines import LOCAL_GPU, Builds, write_tree
from roundhouse.dev.gpu.machine import (
    GpuMachine,
    InterpreterFacts,
    find_machine,
    missing,
    python_variables,
)
from roundhouse.dev.gpu.servers import serving
from roundhouse.errors import BuildFailedError, NotReadyError
from roundhouse.paths import Paths
from roundhouse.processes import Outcome

ROOT = Path(__file__).parents[5]
H100 = GpuHost(gpu="NVIDIA H100 80GB HBM3", driver="580.159.04", compute_capability="9.0")
FACTS = InterpreterFacts(tensorrt="10.6.0")
SOUND = GpuMachine(python="python3", host=H100, trtexec="10.6.0.26", interpreter=FACTS)


def machine(**changes):
    return dataclasses.replace(SOUND, **changes)


def with_gpu(gpu, capability):
    return machine(host=GpuHost(gpu=gpu, driver="580.1", compute_capability=capability))


def of_python(**changes):
    return {"interpreter": dataclasses.replace(FACTS, **changes)}


def test_a_sound_machine_lacks_nothing_and_has_a_platform():
    assert list(missing(SOUND)) == []
    assert (SOUND.platform.name, SOUND.instance_type.name) == ("triton-24.11", "ml.p5.4xlarge")


@pytest.mark.parametrize(
    ("lacks", "thing", "line"),
    [
        ({"host": None, "host_reason": "no nvidia-smi"}, "no nvidia-smi", "docker run --gpus all"),
        ({"host": dataclasses.replace(H100, driver="535.1")}, "this is 535.1", "nvidia-driver-580"),
        (
            {"trtexec": "", "trtexec_reason": "there is none"},
            "trtexec",
            "nvidia/tensorrt:24.11-py3",
        ),
        ({"trtexec": "8.6.1.6"}, "allowed: 10.16.1.11, 10.6.0.26, 11.0.0", "tensorrt:24.11-py3"),
        (of_python(missing=("onnx",)), "modules of python3: onnx", "make environments"),
        (of_python(tensorrt_reason="no libnvinfer"), "libnvinfer", "tensorrt-cu12==10.6.0.*"),
        (of_python(tensorrt="10.16.1.11"), "these are of 10.16.1.11", "pypi.nvidia.com"),
        (of_python(cuda_reason="no GPU"), "CUDA's Python bindings (no GPU)", "cuda-bindings==12.*"),
    ],
)
def test_refuses_a_machine_that_lacks(lacks, thing, line):
    found = list(missing(machine(**lacks)))
    assert any(thing in lacking and line in way_out for lacking, way_out in found)
    # An old TensorRT has other bindings too.
    assert len(found) == (2 if "8.6.1.6" in lacks.values() else 1)


@pytest.mark.parametrize(
    ("gpu", "capability", "instance_type", "is_exact"),
    [
        ("NVIDIA H200", "9.0", "ml.p5en.48xlarge", True),
        ("NVIDIA A10G", "8.6", "ml.g5.xlarge", True),
        ("NVIDIA GeForce RTX 4090", "8.9", "ml.g6.xlarge", False),
    ],
)
def test_a_gpu_gets_the_smallest_instance_type_that_has_it(
    gpu, capability, instance_type, is_exact
):
    found = with_gpu(gpu, capability)
    assert (found.instance_type.name, found.is_exact) == (instance_type, is_exact)


def test_facts_of_this_machines_own_interpreter(tmp_path):
    variables = python_variables(Paths(code=ROOT, tree=ROOT, build=tmp_path), {"SM_MODEL_DIR": "x"})
    assert "SM_MODEL_DIR" not in variables

    def run(command, on_line=None):
        facts = {"tensorrt": "10.6.0", "missing": [command.argv[-1]]}
        return Outcome(code=0, output=f"a warning\n{json.dumps(facts)}\n")

    found = find_machine(sys.executable, ROOT, variables, run, modules=("no_such_module",))
    assert found.interpreter == InterpreterFacts(tensorrt="10.6.0", missing=("no_such_module",))


def test_refuses_an_interpreter_that_prints_no_facts():
    def run(command, on_line=None):
        return Outcome(code=1, output="Traceback\nModuleNotFoundError: No module named 'yaml'\n")

    found = find_machine(sys.executable, ROOT, {}, run)
    assert found.interpreter.missing == ("ModuleNotFoundError: No module named 'yaml'",)


def tree_for(folder, instance_type, **options):
    write_tree(
        ROOT,
        folder,
        platform=serving_platforms()["triton-24.11"],
        instance_type=instance_types()[instance_type],
        **options,
    )
    tree = read_tree(folder)
    assert tree.faults == ()
    return {
        target.model.name: target
        for deployment in deployments(tree, LOCAL_GPU)
        for target in deployment.targets
    }


def test_a_tree_serves_the_same_model_files_on_the_gpu_that_is_there(tmp_path):
    targets = tree_for(tmp_path, "ml.p5.4xlarge")
    assert set(targets) == {path.stem for path in (ROOT / "models").glob("*.yaml")}
    for target in targets.values():
        assert (target.instance_type.gpu, target.plan_gpu) == ("H100", "H100")


def test_a_gpu_of_no_instance_type_gets_plans_of_its_generation(tmp_path):
    targets = tree_for(tmp_path, "ml.g6.xlarge", is_exact=False)
    assert {target.plan_gpu for target in targets.values()} == {None}


def test_refuses_what_the_build_refuses_in_its_words(tmp_path):
    def run(command, on_line=None):
        answer = {"status": "failed", "reason": "trtexec is not there", "log": "build.log"}
        return Outcome(code=1, output=f"check: …\n{json.dumps(answer)}\n")

    with pytest.raises(BuildFailedError, match=r"^m: trtexec is not there \(log: build.log\)$"):
        Builds(
            tree=tmp_path,
            store=tmp_path,
            work=tmp_path,
            python=sys.executable,
            code=ROOT,
            variables={},
            run=run,
        ).build("m")


def test_refuses_an_archive_that_the_server_refuses_in_its_words(tmp_path):
    python, variables = f"{ROOT}/.venvs/server/bin/python", {"PYTHONPATH": f"{ROOT}"}
    with (
        pytest.raises(NotReadyError, match=r"ended with 3: Refused: manifest.json is missing"),
        serving(tmp_path, "m", python=python, variables=variables),
    ):
        pass
