"""Command lines of trtexec, as pure functions, for dialect 10 and dialect 11.

A flag that a dialect lacks is refused by name. Flags follow the public option parser,
samples/common/sampleOptions.cpp, at v10.16 and v11.1; a test compares every flag with the names
that parser reads. Never executed where this repository was made.

Every network is strongly typed in dialect 11. In dialect 10 it is so by choice; only a calibration
cache, and bf16, are left to trtexec's own precision flags, which dialect 11 has lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_build.errors import InputRefused
from engine_build.runner import Command
from onboarding.manifest import TensorRecord
from onboarding.model_spec import OptimizationProfileSpec
from onboarding.values import HardwareCompatibility, Precision

PROGRAM = "trtexec"
Dialect = Literal[10, 11]
Verbosity = Literal["layer_names_only", "detailed", "none"]
Sizes = tuple[int, ...]
COMPILE_TIMEOUT_SECONDS = 4 * 3600.0
MEASURE_TIMEOUT_SECONDS = 1800.0
ONLY_IN_10 = {
    **dict.fromkeys(
        ("--fp16", "--int8", "--best"), "ask for fp16 or int8, whose networks carry their own types"
    ),
    **dict.fromkeys(("--bf16", "--fp8", "--int4"), "allowed precisions: fp32, fp16, int8"),
    **dict.fromkeys(
        ("--calib", "--calibProfile"),
        "use quantization: explicit, or turn the calibration cache into a Q/DQ network",
    ),
}
"""Flags that dialect 11 has lost, and the way out."""
FLAGS: dict[HardwareCompatibility, str] = {
    "ampere+": "ampere+",
    "same_compute_capability": "sameComputeCapability",
}


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
    strongly_typed: bool = True
    """True: the network carries its types; False.

    Trtexec chooses within `precision`, in dialect 10 only.
    """
    calibration_cache: Path | None = None
    """Ranges of INT8, for a network that is not strongly typed."""
    timing_cache: Path | None = None
    optimization_level: int | None = None
    workspace_mib: int | None = None
    tactic_shared_memory_kib: int | None = None
    hardware_compatibility: HardwareCompatibility = "none"
    version_compatible: bool = False
    exclude_lean_runtime: bool = False
    """For version-compatible plans: a lean runtime must then lie where the plan is loaded."""
    verbosity: Verbosity = "detailed"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """One run of a finished plan: what trtexec measures and what it writes down."""

    plan: Path
    shapes: tuple[tuple[str, Sizes], ...]
    profile: int = 0
    version_compatible: bool = False
    """Lets a version-compatible plan run the code inside it, without which it does not load."""
    cuda_graph: bool = True
    """False: kernel by kernel.

    Before it records a graph, trtexec 10 runs once, and only then sends the inputs: a network that
    looks up its inputs may read beyond its tables (sampleInference.cpp at v10.16; at v11.1 the
    inputs come first).
    """
    inputs: tuple[tuple[str, Path], ...] = ()
    """Raw bytes of an input by its name; trtexec makes up the others, integers from -128 to 127."""
    warm_up_ms: int = 200
    seconds: int = 3
    times: Path | None = None
    layers: Path | None = None
    layer_times: Path | None = None


def profile_ranges(inputs: Sequence[TensorRecord], spec: OptimizationProfileSpec) -> Profile:
    """The ranges of every input that has a dynamic axis: the batch is axis 0, the sequence axis 1.

    Raises InputRefused.
    """
    return tuple(
        InputRange(
            name=_name(item),
            smallest=_sizes(item, spec, 0),
            opt=_sizes(item, spec, 1),
            largest=_sizes(item, spec, 2),
        )
        for item in inputs
        if -1 in item.shape
    )


def compile_command(options: CompileOptions, dialect: Dialect) -> Command:
    """The command that compiles a network.

    Raises InputRefused for what the dialect has no flag for.
    """
    argv = (
        PROGRAM,
        f"--onnx={options.network}",
        f"--saveEngine={options.plan}",
        *_typing(options, dialect),
        *_profiles(options.profiles),
        *_optional("--timingCacheFile", options.timing_cache),
        *_optional("--builderOptimizationLevel", options.optimization_level),
        *_memory_pools(options),
        *_portability(options),
        f"--profilingVerbosity={options.verbosity}",
        "--skipInference",
    )
    return _check_flags(Command(argv=argv, timeout_seconds=COMPILE_TIMEOUT_SECONDS), dialect)


def run_command(options: RunOptions, dialect: Dialect) -> Command:
    """Return the command that runs a plan: no copies, no sleeping wait, a CUDA graph if wanted.

    The flags of those three stand in both dialects. Dialect 10 needs them; dialect 11 does so by
    default and reads them with a warning, so that numbers of both compare.
    """
    shapes = ",".join(f"{name}:{_times(sizes)}" for name, sizes in options.shapes)
    inputs = ",".join(f"{name}:{_readable(path)}" for name, path in options.inputs)
    argv = (
        PROGRAM,
        f"--loadEngine={options.plan}",
        *([f"--shapes={shapes}"] if shapes else []),
        *([f"--loadInputs={inputs}"] if inputs else []),
        f"--useProfile={options.profile}",
        *(["--versionCompatible"] if options.version_compatible else []),
        *_graph(options, dialect),
        *("--noDataTransfers", "--useSpinWait"),
        f"--warmUp={options.warm_up_ms}",
        f"--duration={options.seconds}",
        *_optional("--exportTimes", options.times),
        *_optional("--exportLayerInfo", options.layers),
        *_optional("--exportProfile", options.layer_times),
        *([] if options.layer_times is None else ["--separateProfileRun"]),
    )
    return _check_flags(Command(argv=argv, timeout_seconds=MEASURE_TIMEOUT_SECONDS), dialect)


def plan_version_command(plan: Path) -> Command:
    """The command that prints which TensorRT wrote a plan, without loading it."""
    return Command(
        argv=(PROGRAM, f"--loadEngine={plan}", "--getPlanVersionOnly"), timeout_seconds=300
    )


def version_command() -> Command:
    """The command whose first line names trtexec's own TensorRT."""
    return Command(argv=(PROGRAM, "--help"), timeout_seconds=300)


def _typing(options: CompileOptions, dialect: Dialect) -> Sequence[str]:
    # TF32 keeps 10 bits of the mantissa, as FP16 does: fp32 is asked for where those are too few.
    exact = ["--noTF32"] if options.precision == "fp32" else []
    if options.strongly_typed:
        return [*(["--stronglyTyped"] if dialect == 10 else []), *exact]
    if options.precision == "int8":
        if options.calibration_cache is None:
            raise InputRefused(
                "int8 without Q/DQ nodes needs a calibration cache; without one trtexec makes up "
                "the ranges."
            )
        return ["--int8", "--fp16", f"--calib={options.calibration_cache}"]
    return exact if options.precision == "fp32" else [f"--{options.precision}"]


def _graph(options: RunOptions, dialect: Dialect) -> Sequence[str]:
    if options.cuda_graph:
        return ["--useCudaGraph"]
    return [] if dialect == 10 else ["--noCudaGraph"]


def _memory_pools(options: CompileOptions) -> Sequence[str]:
    pools = {
        "workspace": (options.workspace_mib, "M"),
        "tacticSharedMem": (options.tactic_shared_memory_kib, "K"),
    }
    sizes = [f"{name}:{size}{unit}" for name, (size, unit) in pools.items() if size is not None]
    return [f"--memPoolSize={','.join(sizes)}"] if sizes else []


def _portability(options: CompileOptions) -> Sequence[str]:
    level = FLAGS.get(options.hardware_compatibility)
    if options.exclude_lean_runtime and not options.version_compatible:
        raise InputRefused(
            "--excludeLeanRuntime is for version-compatible plans only; set version_compatible: "
            "true as well."
        )
    return [
        *_optional("--hardwareCompatibilityLevel", level),
        *(["--versionCompatible"] if options.version_compatible else []),
        *(["--excludeLeanRuntime"] if options.exclude_lean_runtime else []),
    ]


def _profiles(profiles: Sequence[Profile]) -> Sequence[str]:
    several = len(profiles) > 1
    return [
        flag
        for index, ranges in enumerate(profiles)
        for flag in _profile(index, ranges, several=several)
    ]


def _profile(index: int, ranges: Profile, *, several: bool) -> Sequence[str]:
    if not ranges:
        return []
    parts = {
        "min": ",".join(f"{item.name}:{_times(item.smallest)}" for item in ranges),
        "opt": ",".join(f"{entry.name}:{_times(entry.opt)}" for entry in ranges),
        "max": ",".join(f"{element.name}:{_times(element.largest)}" for element in ranges),
    }
    return [
        *([f"--profile={index}"] if several else []),
        *(f"--{kind}Shapes={shapes}" for kind, shapes in parts.items()),
    ]


def _sizes(record: TensorRecord, spec: OptimizationProfileSpec, place: int) -> Sizes:
    limits = {0: spec.batch[place], 1: None if spec.sequence is None else spec.sequence[place]}
    sizes = tuple(
        limits.get(axis) if size == -1 else size for axis, size in enumerate(record.shape)
    )
    if None in sizes:
        axis = sizes.index(None)
        allowed = (
            "axis 0, the batch"
            if spec.sequence is None
            else "axis 0, the batch, and axis 1, the sequence"
        )
        raise InputRefused(
            f"input {record.name} has a dynamic axis {axis}, for which the optimization profile "
            "gives no sizes; allowed: "
            f"{allowed}; export the network with that axis fixed."
        )
    return tuple(size for size in sizes if size is not None)


def _name(record: TensorRecord) -> str:
    unreadable = sorted(set(record.name) & set(",'*"))
    if unreadable:
        raise InputRefused(
            f"input {record.name} has {unreadable[0]} in its name, which trtexec's shape flags "
            "cannot tell from their own; "
            "rename the input in the ONNX file."
        )
    return record.name


def _readable(path: Path) -> Path:
    unreadable = sorted(set(str(path)) & set(",:'"))
    if unreadable:
        raise InputRefused(
            f"{path} has {unreadable[0]} in its name, which trtexec takes for the end of a name; "
            "name another folder with --out."
        )
    return path


def _times(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


def _optional(flag: str, value: object) -> Sequence[str]:
    return [] if value is None else [f"{flag}={value}"]


def _check_flags(command: Command, dialect: Dialect) -> Command:
    flags = [argument.split("=", 1)[0] for argument in command.argv]
    lost = [flag for flag in flags if dialect == 11 and flag in ONLY_IN_10]
    if lost:
        raise InputRefused(f"trtexec of TensorRT 11 has no {lost[0]}; {ONLY_IN_10[lost[0]]}.")
    return command
