"""What a machine with a GPU has of what builds, judges and serves plans, and what it lacks.

`python -m roundhouse.dev.gpu.machine` prints the part that an interpreter alone can tell, as JSON.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from container.tensorrt.bindings import cuda_runtime, tensorrt
from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.tensorrt.trtexec import PROGRAM, GpuHost, gpu_host, trtexec_version
from onboarding.platform import (
    InstanceType,
    ServingPlatform,
    instance_types,
    is_gpu_model,
    serving_platforms,
)
from onboarding.values import is_same_build
from roundhouse.paths import Paths
from roundhouse.processes import Command, Run

MODULES = (
    *("numpy", "onnx", "onnxruntime", "tokenizers", "pydantic", "yaml"),
    *("orjson", "uvloop", "httptools", "prometheus_client"),
)
"""What builds from known networks and the Python server import."""
INDEX = "--extra-index-url https://pypi.nvidia.com"
TRITON, TRITON_VARIABLE = "tritonserver", "TRITON"
DEFAULT_PLATFORM = "triton-24.11"
"""Where no trtexec names its TensorRT."""


@dataclass(frozen=True, kw_only=True)
class InterpreterFacts:
    """What one Python has; a reason stands where a module is not there or does not work."""

    tensorrt: str = ""
    """Version of TensorRT's bindings; empty where they do not load."""
    tensorrt_reason: str = ""
    cuda_reason: str = ""
    """Empty where CUDA's bindings reach the GPU."""
    missing: tuple[str, ...] = ()
    """Of MODULES, and of those that the caller names."""


@dataclass(frozen=True, kw_only=True)
class GpuMachine:
    """Facts of a machine with, or without, an NVIDIA GPU."""

    python: str
    """The interpreter that builds and serves."""
    host: GpuHost | None
    host_reason: str = ""
    trtexec: str = ""
    """The TensorRT of trtexec; empty where it is not on the path."""
    trtexec_reason: str = ""
    interpreter: InterpreterFacts
    triton: Path | None = None
    """The program tritonserver; Triton is not needed."""

    @property
    def platform(self) -> ServingPlatform | None:
        """The serving platform of this TensorRT; None where no row has it."""
        rows = serving_platforms()
        if not self.trtexec:
            return rows[DEFAULT_PLATFORM]
        known = (row for row in rows.values() if row.tensorrt is not None)
        return next((row for row in known if is_same_build(f"{row.tensorrt}", self.trtexec)), None)

    @property
    def instance_type(self) -> InstanceType | None:
        """The smallest instance type that has this GPU, or else one of its compute capability."""
        if self.host is None:
            return None
        rows = (row for row in instance_types().values() if row.gpu is not None and row.regions)
        same = [row for row in rows if row.compute_capability == self.host.compute_capability]
        same.sort(key=lambda row: (not self._has_gpu_of(row), row.gpu_count))
        return next(iter(same), None)

    @property
    def is_exact(self) -> bool:
        """True where an instance type has this very GPU model."""
        return self.instance_type is not None and self._has_gpu_of(self.instance_type)

    def _has_gpu_of(self, row: InstanceType) -> bool:
        assert self.host is not None
        return is_gpu_model(self.host.gpu, f"{row.gpu}")


def find_machine(
    python: str, folder: Path, variables: Mapping[str, str], run: Run, modules: tuple[str, ...] = ()
) -> GpuMachine:
    """Return this machine's facts; `python` runs in `folder` to tell its own."""
    runner = Runner(Log(io.StringIO()))
    host, host_reason = _host(runner)
    version, reason = _trtexec(runner)
    argv = (python, "-m", "roundhouse.dev.gpu.machine", *modules)
    ended = run(Command(argv=argv, folder=folder, environment=variables))
    return GpuMachine(
        python=python,
        host=host,
        host_reason=host_reason,
        trtexec=version,
        trtexec_reason=reason,
        interpreter=_read_facts(ended.output),
        triton=find_triton(variables, runner.find),
    )


def find_triton(variables: Mapping[str, str], find: Callable[[str], str | None]) -> Path | None:
    """Return tritonserver on the path, or anywhere below the folder that $TRITON names."""
    found = find(TRITON)
    if found is not None:
        return Path(found)
    folder = variables.get(TRITON_VARIABLE)
    return next(iter(sorted(Path(folder).rglob(f"bin/{TRITON}"))), None) if folder else None


def python_variables(paths: Paths, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return variables of the interpreter that builds and serves.

    torch is the builder's; what else the server imports is in the server's environment.
    """
    server = paths.environments / "server"
    packages = sorted(server.glob("lib/python3*/site-packages"))
    known = (f"{paths.code}", *map(str, packages), inherited.get("PYTHONPATH", ""))
    own = ("ROUNDHOUSE_", "SAGEMAKER_", "SM_")
    kept = {name: value for name, value in inherited.items() if not name.startswith(own)}
    return {**kept, "PYTHONPATH": ":".join(filter(None, known)), "PYTHONUNBUFFERED": "1"}


def interpreter_facts(modules: tuple[str, ...]) -> InterpreterFacts:
    """Return the facts of the interpreter that runs this."""
    version = tensorrt_reason = cuda_reason = ""
    try:
        version = str(tensorrt().__version__)
    except (ImportError, OSError) as error:
        tensorrt_reason = " ".join(str(error).split())
    try:
        error_code, count = cuda_runtime().cudaGetDeviceCount()
        if error_code != 0 or not count:
            cuda_reason = f"cudaGetDeviceCount answers {error_code.name} and {count or 0} GPUs"
    except (ImportError, OSError, RuntimeError) as error:
        cuda_reason = " ".join(str(error).split())
    missing = tuple(name for name in (*MODULES, *modules) if importlib.util.find_spec(name) is None)
    return InterpreterFacts(
        tensorrt=version, tensorrt_reason=tensorrt_reason, cuda_reason=cuda_reason, missing=missing
    )


def missing(machine: GpuMachine) -> Iterator[tuple[str, str]]:
    """Yield each thing that a machine lacks with the line that provides it."""
    host, platform = machine.host, machine.platform
    image = serving_platforms()[DEFAULT_PLATFORM] if platform is None else platform
    least = image.minimum_driver
    driver = f"sudo apt-get install nvidia-driver-580-server   # CUDA {image.cuda} needs {least}"
    if host is None:
        in_container = "; in a container, start that with `docker run --gpus all`"
        yield f"an NVIDIA GPU and its driver ({machine.host_reason})", f"{driver}{in_container}"
    else:
        if least is not None and int(host.driver.split(".")[0]) < least:
            yield f"an NVIDIA driver of {least} or newer (this is {host.driver})", driver
        if machine.instance_type is None:
            rows = instance_types().values()
            known = sorted({row.compute_capability for row in rows if row.is_gpu}, key=float)
            yield (
                f"a GPU that SageMaker has ({host.gpu} has compute capability "
                f"{host.compute_capability}; allowed: {', '.join(known)})",
                "use a machine with one of these; or add the instance type with its source to "
                "onboarding/data/instance_types.yaml",
            )
    container = (
        f'docker run --gpus all --rm -it -v "$PWD":/work -w /work '
        f"nvcr.io/nvidia/tensorrt:{image.triton}-py3   # has it in /opt/tensorrt/bin"
    )
    if not machine.trtexec:
        yield f"{PROGRAM} on the path ({machine.trtexec_reason})", container
    elif platform is None:
        known = sorted(f"{row.tensorrt}" for row in serving_platforms().values() if row.tensorrt)
        thing = f"a TensorRT that a platform serves ({PROGRAM} is of {machine.trtexec}; allowed: "
        yield f"{thing}{', '.join(known)})", container
    yield from _missing_of_python(machine, image)


def _missing_of_python(machine: GpuMachine, platform: ServingPlatform) -> Iterator[tuple[str, str]]:
    facts, pip = machine.interpreter, f"{machine.python} -m pip install"
    cuda = str(platform.cuda).split(".")[0]
    version = ".".join((machine.trtexec or str(platform.tensorrt)).split(".")[:3])
    wheel = f'{pip} "tensorrt-cu{cuda}=={version}.*" {INDEX}'
    if facts.missing:
        way_out = "source env.sh of the unpacked bundle, or run `make environments`"
        yield f"modules of {machine.python}: {', '.join(facts.missing)}", way_out
    if facts.tensorrt_reason:
        yield f"TensorRT's libraries and Python bindings ({facts.tensorrt_reason})", wheel
    elif machine.trtexec and not is_same_build(facts.tensorrt, machine.trtexec):
        thing = f"TensorRT's Python bindings of {machine.trtexec}, as {PROGRAM} is"
        yield f"{thing} (these are of {facts.tensorrt})", wheel
    if facts.cuda_reason and machine.host is not None:
        yield f"CUDA's Python bindings ({facts.cuda_reason})", f'{pip} "cuda-bindings=={cuda}.*"'


def triton_line(machine: GpuMachine) -> str:
    """Return how Triton is had, for a machine without it."""
    platform = machine.platform or serving_platforms()[DEFAULT_PLATFORM]
    return (
        f"Triton is not on the path, nor in ${TRITON_VARIABLE}: "
        f"nvcr.io/nvidia/tritonserver:{platform.triton}-py3 has it."
    )


def _host(runner: Runner) -> tuple[GpuHost | None, str]:
    try:
        return gpu_host(runner), ""
    except InputRefused as refusal:
        return None, str(refusal).split("; ")[0]


def _trtexec(runner: Runner) -> tuple[str, str]:
    if runner.find(PROGRAM) is None:
        return "", "there is none"
    try:
        return trtexec_version(runner), ""
    except InputRefused as refusal:
        return "", str(refusal).split("; ")[0]


def _read_facts(output: str) -> InterpreterFacts:
    """Return what the interpreter printed; one that cannot even do that lacks the first modules."""
    last = next((line for line in output.splitlines()[::-1] if line.startswith("{")), None)
    if last is None:
        reason = output.strip().splitlines()[-1:] or ["it prints nothing"]
        return InterpreterFacts(missing=(reason[0],))
    fields = json.loads(last)
    return InterpreterFacts(**fields | {"missing": tuple(fields["missing"])})


if __name__ == "__main__":
    print(json.dumps(vars(interpreter_facts(tuple(sys.argv[1:])))))
