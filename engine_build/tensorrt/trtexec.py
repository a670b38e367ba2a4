"""Command lines of trtexec for dialect 10 and dialect 11; its own TensorRT, and the GPU beside it.

A flag that a dialect lacks is refused by name. Flags follow the public option parser,
samples/common/sampleOptions.cpp, at v10.16 and v11.1; a test compares every flag with the names
that parser reads. Dialect 10 ran with trtexec 10.6, dialect 11 never did.

Every network is strongly typed in dialect 11. In dialect 10 it is so by choice; only a calibration
cache, and bf16, are left to trtexec's own precision flags, which dialect 11 has lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from container.tensorrt.plan import Sizes
from container.tensorrt.plan import times as format_sizes
from engine_build.errors import InputRefused, one_line
from engine_build.request import BuildRequest
from engine_build.runner import Command, Runner
from onboarding.manifest import TensorRecord
from onboarding.model_spec import OptimizationProfileSpec
from onboarding.platform import is_gpu_model
from onboarding.values import HardwareCompatibility, Precision, is_same_build

PROGRAM = "trtexec"
Dialect = Literal[10, 11]
COMPILE_TIMEOUT_SECONDS = 4 * 3600.0
RUN_TIMEOUT_SECONDS = 1800.0
ONLY_IN_10 = {
    "--int8": "ask for fp16 or int8, whose networks carry their own types",
    "--bf16": "allowed precisions: fp32, fp16, int8",
}
"""Flags that dialect 11 has lost, and the way out."""
LEVELS: dict[HardwareCompatibility, str] = {
    "ampere+": "ampere+",
    "same_compute_capability": "sameComputeCapability",
}
SHOWN_LINES = 400
"""Of trtexec's output, without its verbose log: whoever reads a build's output sees the reason."""
VERSION_COMMAND = Command(argv=(PROGRAM, "--help"), timeout_seconds=300, shown_lines=1)
"""Its first line names trtexec's own TensorRT."""


@dataclass(frozen=True, kw_only=True)
class InputRange:
    """The smallest, the tuned and the largest shape of one input in one optimization profile."""

    name: str
    smallest: Sizes
    opt: Sizes
    largest: Sizes


Profile = tuple[InputRange, ...]


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """One compilation. `profiles` may be empty for a network without dynamic axes."""

    network: Path
    plan: Path
    precision: Precision
    profiles: tuple[Profile, ...]
    calibration_cache: Path | None = None
    """Ranges of INT8, for a network that does not carry its types."""
    timing_cache: Path | None = None
    optimization_level: int | None = None
    workspace_mib: int | None = None
    hardware_compatibility: HardwareCompatibility = "none"
    version_compatible: bool = False
    is_sparse: bool = False
    """Kernels for weights of which two in four are zero may be chosen."""
    plugins: tuple[Path, ...] = ()
    """Libraries that register custom operators when they are loaded."""


def profile_ranges(inputs: Sequence[TensorRecord], spec: OptimizationProfileSpec) -> Profile:
    """The ranges of every input that has a dynamic axis: the batch is axis 0, the sequence axis 1.

    Raises InputRefused.
    """
    ranges = []
    for record in inputs:
        if -1 in record.shape:
            _refuse_characters(
                ",'*",
                f"input {record.name}",
                "cannot tell from its own shape flags; rename the input in the ONNX file",
            )
            low, opt, high = (_sizes(record, spec, kind) for kind in range(3))
            ranges.append(InputRange(name=record.name, smallest=low, opt=opt, largest=high))
    return tuple(ranges)


def compile_command(options: CompileOptions, dialect: Dialect) -> Command:
    """The command that compiles a network.

    Raises InputRefused for what the dialect has no flag for.
    """
    size, level = options.workspace_mib, LEVELS.get(options.hardware_compatibility)
    workspace = None if size is None else f"workspace:{size}M"
    argv = (
        PROGRAM,
        f"--onnx={options.network}",
        f"--saveEngine={options.plan}",
        *_typing(options, dialect),
        *_profiles(options.profiles),
        *_optional("--timingCacheFile", options.timing_cache),
        *_optional("--builderOptimizationLevel", options.optimization_level),
        *_optional("--memPoolSize", workspace),
        *_optional("--hardwareCompatibilityLevel", level),
        *(["--versionCompatible"] if options.version_compatible else []),
        *(["--sparsity=enable"] if options.is_sparse else []),
        *_plugins(options.plugins),
        "--profilingVerbosity=detailed",
        "--skipInference",
    )
    lost = [flag for flag in argv if dialect == 11 and flag in ONLY_IN_10]
    if lost:
        raise InputRefused(f"trtexec of TensorRT 11 has no {lost[0]}; {ONLY_IN_10[lost[0]]}.")
    return Command(argv=argv, timeout_seconds=COMPILE_TIMEOUT_SECONDS, shown_lines=SHOWN_LINES)


def run_command(
    plan: Path,
    dialect: Dialect,
    *,
    shapes: Sequence[tuple[str, Sizes]],
    inputs: Sequence[tuple[str, Path]],
    times: Path,
    layers: Path,
    version_compatible: bool,
    plugins: Sequence[Path] = (),
) -> Command:
    """The command that runs a plan for a second, without a CUDA graph, copies or a sleeping wait.

    `inputs` name files of raw bytes; trtexec makes up the others, integers from -128 to 127.
    `version_compatible` lets such a plan run the code inside it, without which it does not load.
    Before it records a graph, trtexec 10 runs once, and only then sends the inputs: a network that
    looks up its inputs may read beyond its tables (sampleInference.cpp at v10.16; at v11.1 the
    inputs come first). Raises InputRefused for a path that trtexec cannot read.
    """
    for _, path in inputs:
        _refuse_characters(
            ",:'", str(path), "takes for the end of a name; name another folder with --out"
        )
    shape_list = ",".join(f"{name}:{format_sizes(sizes)}" for name, sizes in shapes)
    input_list = ",".join(f"{name}:{path}" for name, path in inputs)
    argv = (
        PROGRAM,
        f"--loadEngine={plan}",
        *([f"--shapes={shape_list}"] if shapes else []),
        *([f"--loadInputs={input_list}"] if inputs else []),
        "--useProfile=0",
        *(["--versionCompatible"] if version_compatible else []),
        *_plugins(plugins),
        *(["--noCudaGraph"] if dialect == 11 else []),
        *("--noDataTransfers", "--useSpinWait", "--warmUp=100", "--duration=1"),
        f"--exportTimes={times}",
        f"--exportLayerInfo={layers}",
    )
    return Command(argv=argv, timeout_seconds=RUN_TIMEOUT_SECONDS, shown_lines=SHOWN_LINES)


def plan_version_command(plan: Path) -> Command:
    """The command that prints which TensorRT wrote a plan, without loading it."""
    return Command(
        argv=(PROGRAM, f"--loadEngine={plan}", "--getPlanVersionOnly"),
        timeout_seconds=300,
        shown_lines=SHOWN_LINES,
    )


def _typing(options: CompileOptions, dialect: Dialect) -> list[str]:
    if options.calibration_cache is not None:
        return ["--int8", "--fp16", f"--calib={options.calibration_cache}"]
    if options.precision == "bf16":
        return ["--bf16"]
    # TF32 keeps 10 bits of the mantissa, as FP16 does: fp32 is asked for where those are too few.
    exact = ["--noTF32"] if options.precision == "fp32" else []
    return [*(["--stronglyTyped"] if dialect == 10 else []), *exact]


def _plugins(plugins: Sequence[Path]) -> list[str]:
    """Load libraries with `dlopen`, as Triton's TensorRT backend and the Python server do."""
    return [f"--staticPlugins={path}" for path in plugins]


def _profiles(profiles: Sequence[Profile]) -> list[str]:
    flags = []
    for index, ranges in enumerate(profiles):
        if ranges and len(profiles) > 1:
            flags.append(f"--profile={index}")
        for flag, sizes in (("min", "smallest"), ("opt", "opt"), ("max", "largest")):
            shapes = [f"{limits.name}:{format_sizes(getattr(limits, sizes))}" for limits in ranges]
            flags += [f"--{flag}Shapes={','.join(shapes)}"] if shapes else []
    return flags


def _sizes(record: TensorRecord, spec: OptimizationProfileSpec, kind: int) -> Sizes:
    """Return the sizes of an input at min (0), opt (1) or max (2)."""
    limits = {0: spec.batch[kind]}
    if spec.sequence is not None:
        limits[1] = spec.sequence[kind]
    for axis, size in enumerate(record.shape):
        if size == -1 and axis not in limits:
            allowed = "axis 0, the batch" + (", and axis 1, the sequence" if 1 in limits else "")
            raise InputRefused(
                f"input {record.name} has a dynamic axis {axis}, for which the optimization "
                f"profile gives no sizes; allowed: {allowed}; export the network with that axis "
                "fixed."
            )
    return tuple(limits[axis] if size == -1 else size for axis, size in enumerate(record.shape))


def _refuse_characters(characters: str, name: str, reason: str) -> None:
    unreadable = sorted(set(name) & set(characters))
    if unreadable:
        raise InputRefused(f"{name} has {unreadable[0]} in its name, which trtexec {reason}.")


def _optional(flag: str, value: object) -> list[str]:
    return [] if value is None else [f"{flag}={value}"]


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
