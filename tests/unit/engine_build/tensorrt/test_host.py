"""The machine that builds: its GPU, driver and trtexec against the request's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_build.errors import InputRefused
from engine_build.runner import Ended
from engine_build.tensorrt.host import GpuHost, check_host, gpu_host, trtexec_version

A10G = "NVIDIA A10G, 580.95.05, 8.6"
L4 = "NVIDIA L4, 580.95.05, 8.9"
BANNER = "&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec --help\n=== Model ===\n"


class Machine:
    """Answers the two programs of a GPU machine."""

    def __init__(self, *gpus, banner=BANNER, smi_code=0, programs=("nvidia-smi", "trtexec")):
        self.gpus, self.banner, self.smi_code, self.programs = gpus, banner, smi_code, programs

    def find(self, program):
        return program if program in self.programs else None

    def run(self, command):
        if command.argv[0] == "trtexec":
            return Ended(code=0, output=self.banner, errors="")
        return Ended(code=self.smi_code, output="".join(f"{gpu}\n" for gpu in self.gpus), errors="")


def request(capability="8.6", gpu="A10G", tensorrt="10.16.1.11", minimum_driver=580):
    return SimpleNamespace(
        compute_capability=capability,
        gpu=gpu,
        engine_key="c0ffee",
        runtime=SimpleNamespace(version=tensorrt),
        platform=SimpleNamespace(name="triton-26.05", minimum_driver=minimum_driver),
    )


def test_host_is_read_as_nvidia_smi_prints_it():
    expected = GpuHost(gpu="NVIDIA A10G", driver="580.95.05", compute_capability="8.6")
    assert gpu_host(Machine(A10G, A10G)) == expected


def test_version_of_trtexec_is_in_its_banner():
    assert trtexec_version(Machine(A10G)) == "10.16.1.11"
    banner = BANNER.replace("v101601] [b11", "v110100] [b106")
    assert trtexec_version(Machine(banner=banner)) == "11.1.0.106"


OLD_DRIVER = A10G.replace("580.95", "535.10")


@pytest.mark.parametrize(
    ("changes", "gpu", "forward_compatible"),
    [
        ({}, A10G, False),
        ({"minimum_driver": None, "tensorrt": "10.16.1"}, OLD_DRIVER, False),
        ({"capability": "8.9", "gpu": None}, L4, False),
        ({}, OLD_DRIVER, True),
    ],
    ids=["same", "no least driver", "compatible level", "forward compatible"],
)
def test_machine_of_the_request_is_accepted(changes, gpu, forward_compatible):
    host = check_host(request(**changes), Machine(gpu), forward_compatible=forward_compatible)
    assert f"{host.gpu}, {host.driver}, {host.compute_capability}" == gpu


@pytest.mark.parametrize(
    ("changes", "machine", "reason"),
    [
        (
            {"capability": "8.9"},
            Machine(A10G),
            r"A10G has compute capability 8\.6, but engine c0ffee is for 8\.9",
        ),
        (
            {"capability": "8.9", "gpu": "L40S"},
            Machine(L4),
            r"GPU is NVIDIA L4, but engine c0ffee is for L40S.*hardware_compatibility",
        ),
        (
            {},
            Machine(A10G.replace("580.95", "575.10")),
            r"driver is 575\.10\.05, but platform triton-26\.05 needs 580 or newer.*"
            r"codebuild_gpu: false",
        ),
        (
            {"tensorrt": "10.14.1.48"},
            Machine(A10G),
            r"trtexec is of TensorRT 10\.16\.1\.11, but .* serves 10\.14\.1\.48",
        ),
        ({}, Machine(A10G, banner="trtexec: error\n"), "trtexec does not name its TensorRT"),
        ({}, Machine(A10G, programs=()), "nvidia-smi is not on this machine"),
        ({}, Machine(), r"finds no GPU on this machine \(it says: nothing\)"),
        ({}, Machine("Failed to initialize", smi_code=9), "finds no GPU .*Failed to initialize"),
        ({}, Machine(A10G, L4), r"several models \(NVIDIA A10G, NVIDIA L4\)"),
        ({}, Machine("NVIDIA A10G, 580"), "name, driver and compute capability are expected"),
    ],
)
def test_refuses_a_machine_that_cannot_build_the_engine(changes, machine, reason):
    with pytest.raises(InputRefused, match=reason):
        check_host(request(**changes), machine)
