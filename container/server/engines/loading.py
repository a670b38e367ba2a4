"""Loads the engine of an archive: the manifest names the runtime, and this process has some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnxruntime

from container.archive import CPU, EngineArchive, SupportedRuntimes
from container.pytorch.program import CPU_BUILD, torch_version
from container.server.engines.buckets import Buckets, ladder
from container.server.engines.engine import Engine, longest_sequence
from container.server.engines.heads import TokenClassShaping
from container.server.engines.onnxruntime_cpu import CpuEngine, CpuRunner, SessionRunner
from container.server.engines.onnxruntime_cuda import (
    CUDA,
    TENSORRT,
    DeviceName,
    OnnxRunner,
    tensorrt_options,
)
from container.server.engines.pytorch import ProgramRunner
from container.server.engines.shaping import (
    BucketEngine,
    Shapes,
    Shaping,
    Tensor,
    TensorShaping,
    TokenShaping,
)
from container.server.engines.tensorrt_plan import PlanRunner
from container.server.process import say
from container.tensorrt.bindings import bindings
from container.tensorrt.faults import NoBindings
from container.triton.manifest_check import running_compute_capability, warm_up_sizes
from onboarding.manifest import Manifest, RuntimeIdentity, TensorRecord
from onboarding.values import PYTORCH_RUNTIMES, Runtime

PLAN_SLOTS = 2
"""One batch is copied while the other computes."""
COMPILED: Runtime = "pytorch-compile"
PROVIDERS: Mapping[Runtime, str] = {"onnxruntime-cuda": CUDA, "onnxruntime-tensorrt": TENSORRT}
"""ONNX Runtime's execution providers of a GPU, by the runtimes that they are."""
Report = Callable[[str], None]
Bindings = Callable[[], tuple[Any, Any]]


def running(
    capability: Callable[[], str | None] = running_compute_capability,
    *,
    providers: Callable[[], Sequence[str]] = onnxruntime.get_available_providers,
    installed: Bindings = bindings,
    torch: Callable[[], str | None] = torch_version,
) -> SupportedRuntimes:
    """Return the runtimes of this process.

    TensorRT is imported only on a machine with a GPU, torch for an engine of it alone.
    """
    gpu, version = capability(), onnxruntime.__version__
    pairs = [(RuntimeIdentity(name="onnxruntime", version=version), CPU)]
    absences: dict[str, str] = {}
    _add_pytorch(pairs, absences, gpu, torch())
    if gpu is None:
        absences |= dict.fromkeys(("tensorrt", *PROVIDERS), "there is no NVIDIA GPU")
        return SupportedRuntimes(pairs=tuple(pairs), absences=absences)
    known = providers()
    for name, provider in PROVIDERS.items():
        if provider in known:
            pairs.append((RuntimeIdentity(name=name, version=version), gpu))
        else:
            absences[name] = f"this build of ONNX Runtime has no {provider}"
    try:
        trt, _ = installed()
        pairs.append((RuntimeIdentity(name="tensorrt", version=str(trt.__version__)), gpu))
    except NoBindings as fault:
        absences["tensorrt"] = str(fault)
    return SupportedRuntimes(pairs=tuple(pairs), absences=absences)


def _add_pytorch(
    pairs: list[tuple[RuntimeIdentity, str]],
    absences: dict[str, str],
    gpu: str | None,
    version: str | None,
) -> None:
    for name in PYTORCH_RUNTIMES:
        if version is None:
            absences[name] = "this Python has no torch"
            continue
        identity = RuntimeIdentity(name=name, version=version.partition("+")[0])
        pairs.append((identity, CPU))
        if gpu is not None and not version.endswith(CPU_BUILD):
            pairs.append((identity, gpu))
        else:
            absences[name] = (
                "there is no NVIDIA GPU" if gpu is None else f"torch {version} is a build for CPUs"
            )


def load_engine(
    archive: EngineArchive,
    *,
    slots: int | None,
    threads: int | None,
    cores: int,
    warn: Report = say,
    installed: Bindings = bindings,
) -> Engine:
    """Return the engine of a verified archive, not yet warm.

    Raises EngineOutOfMemory, and whatever the runtime raises. `slots` None: `cores` on a CPU, 2 for
    TensorRT, 1 for other runtimes of a GPU. `threads` None: one, of each CPU slot.
    """
    manifest = archive.manifest
    if manifest.runtime.name == "tensorrt":
        count = PLAN_SLOTS if slots is None else slots
        return tensorrt_engine(archive, slots=count, warn=warn, installed=installed)
    if manifest.compute_capability == CPU:
        count = cores if slots is None else slots
        return cpu_engine(archive, slots=count, threads=1 if threads is None else threads)
    if manifest.runtime.name in PYTORCH_RUNTIMES:
        return program_engine(archive, slots=1 if slots is None else slots)
    return cuda_engine(archive, slots=1 if slots is None else slots, warn=warn)


def cpu_engine(archive: EngineArchive, *, slots: int, threads: int) -> Engine:
    """Load a network in ONNX Runtime on the CPU, or a program in PyTorch."""
    manifest, path = archive.manifest, archive.engine
    if manifest.runtime.name in PYTORCH_RUNTIMES:
        runner: CpuRunner = _program(archive, slots, device="cpu", threads=threads)
    else:
        computed = None if archive.tokenizer is not None else _output_names(manifest)
        runner = SessionRunner(path, slots=slots, threads=threads, outputs=computed)
    return CpuEngine(
        runner,
        _shaping(manifest, None, runner.inputs, runner.outputs),
        max_rows=manifest.max_batch_size,
        sizes=warm_up_sizes(manifest.model_dump(mode="json")),
    )


def network_records(
    manifest: Manifest,
) -> tuple[tuple[TensorRecord, ...], tuple[TensorRecord, ...]]:
    """Return the network's inputs and outputs, where no tokenizer stands before it."""
    processor = manifest.image_processor
    if processor is None:
        return manifest.inputs, manifest.outputs
    return (processor.input,), (processor.output,)


def _output_names(manifest: Manifest) -> tuple[str, ...]:
    return tuple(record.name for record in network_records(manifest)[1])


def cuda_engine(
    archive: EngineArchive,
    *,
    slots: int = 1,
    device: DeviceName = "cuda",
    warn: Report = say,
) -> Engine:
    """Load a network in ONNX Runtime on the GPU, in its CUDA or its TensorRT provider.

    Each slot has a session of its own, with weights of its own.
    """
    manifest = archive.manifest
    tensorrt = None
    if manifest.runtime.name == "onnxruntime-tensorrt":
        tensorrt = tensorrt_options(manifest, _network_shapes(archive))
    runner = OnnxRunner(archive.engine, slots=slots, device=device, warn=warn, tensorrt=tensorrt)
    shaping = _bucket_shaping(manifest, runner.inputs, runner.outputs)
    # A text task answers with the first output.
    is_text = manifest.tokenizer_file is not None
    outputs = runner.outputs[:1] if is_text else _output_names(manifest)
    runner.declare(_declared(shaping), outputs=outputs)
    return BucketEngine(runner, shaping, warm=manifest.warm_up)


def _network_shapes(archive: EngineArchive) -> tuple[Shapes, ...]:
    """Return what the network will run at, its inputs read on the CPU."""
    probe = OnnxRunner(archive.engine, device="cpu")
    try:
        return _declared(_bucket_shaping(archive.manifest, probe.inputs, probe.outputs))
    finally:
        probe.close()


def program_engine(archive: EngineArchive, *, slots: int) -> Engine:
    """Load a program in PyTorch on the GPU."""
    manifest = archive.manifest
    runner = _program(archive, slots, device="cuda")
    shaping = _bucket_shaping(manifest, runner.inputs, runner.outputs)
    return BucketEngine(runner, shaping, warm=manifest.warm_up)


def _program(archive: EngineArchive, slots: int, **options: Any) -> ProgramRunner:
    is_compiled = archive.manifest.runtime.name == COMPILED
    return ProgramRunner(archive.engine, slots=slots, is_compiled=is_compiled, **options)


def tensorrt_engine(
    archive: EngineArchive,
    *,
    slots: int,
    warn: Report = say,
    installed: Bindings = bindings,
) -> Engine:
    """Load a plan in TensorRT."""
    trt, cuda = installed()
    runner = PlanRunner(
        archive.engine,
        trt=trt,
        cuda=cuda,
        slots=slots,
        host_code=archive.runs_host_code,
        plugins=archive.plugins,
        warn=warn,
    )
    try:
        shaping = _bucket_shaping(archive.manifest, runner.inputs, runner.outputs, runner.takes)
        runner.open(_declared(shaping))
    except BaseException:
        runner.close()
        raise
    return BucketEngine(runner, shaping, warm=archive.manifest.warm_up)


def _shaping(
    manifest: Manifest,
    buckets: Buckets | None,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
) -> Shaping:
    """Return how rows are shaped. Raises ValueError where the engine has other inputs."""
    longest = longest_sequence(manifest.optimization_profiles)
    if manifest.task == "token-classification" and longest is not None:
        return TokenClassShaping(buckets, inputs=inputs, outputs=outputs, longest=longest)
    if manifest.tokenizer_file is not None:
        return TokenShaping(buckets, inputs=inputs, outputs=outputs)
    records, answers = network_records(manifest)
    return TensorShaping(buckets, inputs=inputs, records=records, outputs=answers)


def _bucket_shaping(
    manifest: Manifest,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
    takes: Callable[[Shapes], bool] = lambda shapes: True,
) -> Shaping:
    """Return the same, with those of the manifest's sizes that the engine takes.

    Raises ValueError when it takes none.
    """
    buckets = ladder(manifest.optimization_profiles, max_rows=manifest.max_batch_size)
    whole = _shaping(manifest, buckets, inputs, outputs)
    usable = buckets.only(lambda bucket: takes(whole.blank(bucket).shapes))
    return _shaping(manifest, usable, inputs, outputs)


def _declared(shaping: Shaping) -> tuple[Shapes, ...]:
    assert shaping.buckets is not None
    return tuple(shaping.blank(bucket).shapes for bucket in shaping.buckets.sizes)
