"""What a machine has, and why it lacks the rest."""

from __future__ import annotations

from engine_build.runtimes.availability import Probes, absences, has, machine_probes, runtimes


def probes(*, modules=("torch", "onnxruntime"), gpu=False, providers=(), cuda=False):
    return Probes(
        has_module=lambda name: name in modules,
        has_gpu=lambda: gpu,
        providers=lambda: providers,
        torch_has_cuda=lambda: cuda,
    )


def test_machine_without_a_gpu_lacks_what_needs_one():
    found = runtimes(probes())
    assert [each.name for each in found if each.lacks is None] == ["onnxruntime", "pytorch"]
    assert absences(found) == (
        "not on this machine: onnxruntime CUDA (no NVIDIA GPU), pytorch CUDA (no NVIDIA GPU), tensorrt (no NVIDIA GPU)"
    )


def test_machine_with_everything_lacks_nothing():
    modules = ("torch", "onnxruntime", "tensorrt")
    found = runtimes(
        probes(modules=modules, gpu=True, providers=("CUDAExecutionProvider",), cuda=True)
    )
    assert absences(found) is None and has(found, "tensorrt")


def test_gpu_machine_says_what_its_software_lacks():
    found = {each.name: each.lacks for each in runtimes(probes(gpu=True))}
    assert found["onnxruntime CUDA"] == "its build has no CUDAExecutionProvider"
    assert (found["pytorch CUDA"], found["tensorrt"]) == (
        "torch sees no GPU",
        "no package tensorrt",
    )


def test_missing_packages_are_named_and_never_imported():
    found = {each.name: each.lacks for each in runtimes(probes(modules=(), gpu=True))}
    assert found["onnxruntime"] == found["onnxruntime CUDA"] == "no package onnxruntime"
    assert found["pytorch"] == found["pytorch CUDA"] == "no package torch"


def test_this_machine_has_onnxruntime():
    assert has(runtimes(machine_probes()), "onnxruntime")
