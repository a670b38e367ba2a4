"""The GPU, driver and trtexec of the machine that builds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine_build.errors import InputRefused, one_line
from engine_build.request import BuildRequest
from engine_build.runner import Command, Runner
from engine_build.tensorrt.trtexec import PROGRAM, VERSION_COMMAND
from onboarding.platform import is_gpu_model
from onboarding.values import is_same_build

SMI = "nvidia-smi"
FIELDS = "name,driver_version,compute_cap"
QUERY = Command(
    argv=(SMI, f"--query-gpu={FIELDS}", "--format=csv,noheader"), timeout_seconds=60, shown_lines=8
)
BANNER = re.compile(r"^&&&& RUNNING TensorRT\.trtexec \[TensorRT v(\d+)\] \[b(\d+)\]", re.MULTILINE)
"""As logging.h of TensorRT's samples prints it: v is major * 10000 + minor * 100 + patch, b the
build.
"""


@dataclass(frozen=True, kw_only=True)
class GpuHost:
    """What nvidia-smi says of the first GPU; every GPU of the machine is of the same model."""

    gpu: str
    driver: str
    compute_capability: str


def check_host(
    request: BuildRequest, runner: Runner, *, forward_compatible: bool = False
) -> GpuHost:
    """Refuse a machine whose GPU, driver or TensorRT is not the request's. Raises InputRefused.

    `forward_compatible`: the image's own CUDA driver libraries stand in for the host's, which may
    then be older.
    """
    host = gpu_host(runner)
    capability, platform = request.compute_capability, request.platform
    if host.compute_capability != capability:
        raise InputRefused(
            f"this machine's {host.gpu} has compute capability {host.compute_capability}, but "
            f"engine {request.engine_key} is for {capability}, and plans run on the GPU they were "
            f"built for; build it on a machine with {capability}, as `roundhouse build` does."
        )
    if request.gpu is not None and not is_gpu_model(host.gpu, request.gpu):
        raise InputRefused(
            f"this machine's GPU is {host.gpu}, but engine {request.engine_key} is for "
            f"{request.gpu}, and a plan built without hardware compatibility runs on its own GPU "
            f"model only; build it on a machine with {request.gpu}, or set "
            "`hardware_compatibility: same_compute_capability` in the model's engine."
        )
    least = platform.minimum_driver
    if least is not None and int(host.driver.split(".")[0]) < least and not forward_compatible:
        raise InputRefused(
            f"this machine's driver is {host.driver}, but platform {platform.name} needs {least} "
            "or newer, and NVIDIA's image does not say that its forward compatibility makes up for "
            "it; update it, or, in CodeBuild, set `builds: {codebuild_gpu: false}` in the "
            "environment's file: a training job builds it then."
        )
    tensorrt = trtexec_version(runner)
    if not is_same_build(request.runtime.version, tensorrt):
        raise InputRefused(
            f"{PROGRAM} is of TensorRT {tensorrt}, but platform {platform.name} serves "
            f"{request.runtime.version}, and plans load in the very build that made them; use the "
            "GPU builder image of that platform."
        )
    return host


def gpu_host(runner: Runner) -> GpuHost:
    """The GPU of this machine. Raises InputRefused where there is none, or several models."""
    if runner.find(SMI) is None:
        raise InputRefused(
            f"{SMI} is not on this machine, so it has no NVIDIA GPU; build the engine in the GPU "
            "builder image."
        )
    ended = runner.run(QUERY)
    lines = [line for line in ended.output.splitlines() if line.strip()]
    if ended.code != 0 or not lines:
        reply = one_line(ended.errors.strip() or ended.output.strip() or "nothing", 200)
        raise InputRefused(
            f"{SMI} finds no GPU on this machine (it says: {reply}); build the engine on a machine "
            "that has one."
        )
    hosts = tuple(dict.fromkeys(map(parse_host, lines)))
    if len(hosts) > 1:
        names = ", ".join(host.gpu for host in hosts)
        raise InputRefused(
            f"this machine has GPUs of several models ({names}); leave one model visible to the "
            "build."
        )
    return hosts[0]


def trtexec_version(runner: Runner) -> str:
    """The TensorRT of trtexec itself, such as 10.16.1.11. Raises InputRefused."""
    ended = runner.run(VERSION_COMMAND)
    banner = BANNER.search(ended.output)
    if banner is None:
        raise InputRefused(
            f"{PROGRAM} does not name its TensorRT (code {ended.code}); install the one of the "
            "GPU builder image."
        )
    version, build = int(banner[1]), int(banner[2])
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}.{build}"


def parse_host(line: str) -> GpuHost:
    """The GPU in a line of `nvidia-smi --format=csv,noheader`. Raises InputRefused."""
    try:
        gpu, driver, capability = (part.strip() for part in line.split(","))
        int(driver.split(".")[0])
    except ValueError as error:
        raise InputRefused(
            f"{SMI} says {line!r}, where name, driver and compute capability are expected."
        ) from error
    return GpuHost(gpu=gpu, driver=driver, compute_capability=capability)
