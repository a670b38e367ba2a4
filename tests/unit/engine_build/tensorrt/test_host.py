"""The machine that builds: its GPU, driver and trtexec against the order's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_build.errors import InputRefused
from engine_build.runner import Ended
from engine_build.tensorrt.host import GpuHost, check_host, gpu_host, same_tensorrt, trtexec_version

A10G = "NVIDIA A10G, 580.95.05, 8.6, 23028"
L4 = "NVIDIA L4, 580.95.05, 8.9, 23034"
BANNER = (
    "&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec --help\n=== Model Options "
    "===\n"
)


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


def order(**changes):
    wanted = {
        "compute_capability": "8.6",
        "gpu": "A10G",
        "tensorrt": "10.16.1.11",
        "minimum_driver": 580,
        **changes,
    }
    return SimpleNamespace(
        compute_capability=wanted["compute_capability"],
        gpu=wanted["gpu"],
        engine_key="c0ffee",
        runtime=SimpleNamespace(version=wanted["tensorrt"]),
        platform=SimpleNamespace(name="triton-26.05", minimum_driver=wanted["minimum_driver"]),
    )


def test_host_is_read_as_nvidia_smi_prints_it():
    assert gpu_host(Machine(A10G, A10G)) == GpuHost(
        gpu="NVIDIA A10G", driver="580.95.05", compute_capability="8.6", memory_mib=23028
    )


def test_memory_may_be_unknown():
    assert gpu_host(Machine("NVIDIA GB10, 580.1, 12.1, [N/A]")).memory_mib is None


def test_version_of_trtexec_is_in_its_banner():
    assert trtexec_version(Machine(A10G)) == "10.16.1.11"
    assert (
        trtexec_version(Machine(banner=BANNER.replace("v101601] [b11", "v110100] [b106")))
        == "11.1.0.106"
    )


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ("10.16.1.11", "10.16.1.11", True),
        ("11.0.0", "11.0.0.114", True),
        ("10.16.1.11", "10.16.1.12", False),
        ("10.16.1", "10.16.11.1", False),
    ],
)
def test_every_part_of_the_platforms_version_counts(wanted, found, same):
    assert same_tensorrt(wanted, found) is same


def test_machine_of_the_order_is_taken():
    assert check_host(order(), Machine(A10G)).gpu == "NVIDIA A10G"
    assert (
        check_host(
            order(minimum_driver=None, tensorrt="10.16.1"), Machine(A10G.replace("580", "470"))
        ).driver
        == "470.95.05"
    )


def test_machine_of_another_gpu_model_builds_plans_of_a_compatible_level():
    assert check_host(order(compute_capability="8.9", gpu=None), Machine(L4)).gpu == "NVIDIA L4"


def test_an_older_driver_will_do_where_the_images_own_libraries_run_on_it():
    assert (
        check_host(
            order(), Machine(A10G.replace("580.95", "535.10")), forward_compatible=True
        ).driver
        == "535.10.05"
    )


@pytest.mark.parametrize(
    ("changes", "machine", "reason"),
    [
        (
            {"compute_capability": "8.9"},
            Machine(A10G),
            r"A10G has compute capability 8\.6, but engine c0ffee is for 8\.9",
        ),
        (
            {"compute_capability": "8.9", "gpu": "L40S"},
            Machine(L4),
            r"GPU is NVIDIA L4, but engine c0ffee is for L40S.*hardware_compatibility",
        ),
        (
            {},
            Machine(A10G.replace("580.95", "575.10")),
            r"driver is 575\.10\.05, but platform triton-26\.05 needs 580 or "
            r"newer.*codebuild_gpu: false",
        ),
        (
            {"tensorrt": "10.14.1.48"},
            Machine(A10G),
            r"trtexec is of TensorRT 10\.16\.1\.11, but .* serves 10\.14\.1\.48",
        ),
        ({}, Machine(A10G, banner="trtexec: error\n"), "trtexec does not name its TensorRT"),
        ({}, Machine(A10G, programs=()), "nvidia-smi is not on this machine"),
        ({}, Machine(), r"finds no GPU on this machine \(it says: nothing\)"),
        (
            {},
            Machine("Failed to initialize NVML", smi_code=9),
            r"finds no GPU .*Failed to initialize NVML",
        ),
        (
            {},
            Machine(A10G, L4),
            r"several models \(NVIDIA A10G, NVIDIA L4\)",
        ),
        (
            {},
            Machine("NVIDIA A10G, 580"),
            "where name, driver, compute capability and memory are expected",
        ),
    ],
)
def test_refuses_a_machine_that_cannot_make_the_engine(changes, machine, reason):
    with pytest.raises(InputRefused, match=reason):
        check_host(order(**changes), machine)
