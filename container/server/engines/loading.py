"""Loads the engine of an archive: the manifest names the runtime, and this process has some."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime

from container.archive import CPU, EngineArchive, SupportedRuntimes
from container.server.engines.bucket_engine import BucketEngine
from container.server.engines.buckets import Bucket, ladder
from container.server.engines.engine import Engine, warm_up_sizes
from container.server.engines.onnxruntime_cpu import TensorEngine, TokenEngine
from container.server.engines.onnxruntime_cuda import CUDA, DeviceName, OnnxRunner
from container.server.engines.shaping import Shapes, Shaping, Tensor, TensorShaping, TokenShaping
from container.server.engines.tensorrt_plan import PlanRunner
from container.tensorrt.bindings import bindings
from container.tensorrt.faults import NoBindings
from onboarding.manifest import Manifest, RuntimeIdentity

DRIVER = "libcuda.so.1"
MAJOR, MINOR = 75, 76
"""CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, cuda.h."""
NAME_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU's name and compute capability."""

    name: str
    compute_capability: str


def first_gpu(load: Callable[[str], Any] = ctypes.CDLL) -> Gpu | None:
    """Return the first GPU; None without a driver, or without a GPU that it can use.

    It creates no CUDA context, so it takes no memory.
    """
    try:
        driver = load(DRIVER)
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES)
    if (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, NAME_BYTES, device)
    ):
        return None
    numbers = ctypes.c_int(), ctypes.c_int()
    for number, attribute in zip(numbers, (MAJOR, MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return Gpu(
        name=name.value.decode("utf-8", "replace"),
        compute_capability=".".join(str(number.value) for number in numbers),
    )


PLAN_SLOTS = 2
"""One batch is copied while the other computes."""
Report = Callable[[str], None]
Bindings = Callable[[], tuple[Any, Any]]


def running(
    gpu: Callable[[], Gpu | None] = first_gpu,
    *,
    providers: Callable[[], Sequence[str]] = onnxruntime.get_available_providers,
    installed: Bindings = bindings,
) -> SupportedRuntimes:
    """Return the runtimes of this process; TensorRT is imported only on a machine with a GPU."""
    onnx = RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__)
    found = gpu()
    if found is None:
        missing = "there is no NVIDIA GPU"
        return SupportedRuntimes(
            pairs=((onnx, CPU),), absences={"tensorrt": missing, "onnxruntime": missing}
        )
    pairs, absences = [(onnx, CPU)], {}
    if CUDA in providers():
        pairs.append((onnx, found.compute_capability))
    else:
        absences["onnxruntime"] = f"this build has no {CUDA}"
    try:
        trt, _ = installed()
        pairs.append(
            (
                RuntimeIdentity(name="tensorrt", version=str(trt.__version__)),
                found.compute_capability,
            )
        )
    except NoBindings as fault:
        absences["tensorrt"] = str(fault)
    return SupportedRuntimes(pairs=tuple(pairs), absences=absences)


def format_fault(sentence: str) -> None:
    """One line on standard error."""
    print(sentence, file=sys.stderr, flush=True)


def load_engine(
    archive: EngineArchive,
    *,
    slots: int | None,
    threads: int | None,
    cores: int,
    warn: Report = format_fault,
    installed: Bindings = bindings,
) -> Engine:
    """The engine of a verified archive, not yet warm.

    Raises EngineOutOfMemory, and whatever the runtime raises. `slots` None: `cores` on a CPU, 2 for
    TensorRT; ONNX Runtime has one on a GPU. `threads` None: one, of each CPU slot.
    """
    manifest = archive.manifest
    if manifest.runtime.name == "tensorrt":
        return tensorrt_engine(
            archive, slots=PLAN_SLOTS if slots is None else slots, warn=warn, installed=installed
        )
    if manifest.compute_capability == CPU:
        return cpu_engine(
            archive,
            slots=cores if slots is None else slots,
            threads=1 if threads is None else threads,
        )
    return cuda_engine(archive, warn=warn)


def cpu_engine(archive: EngineArchive, *, slots: int, threads: int) -> Engine:
    """A network in ONNX Runtime on the CPU."""
    manifest = archive.manifest
    sizes = warm_up_sizes(manifest)
    if archive.tokenizer is not None:
        return TokenEngine(
            archive.engine,
            slots=slots,
            threads=threads,
            max_rows=manifest.max_batch_size,
            sizes=sizes,
        )
    return TensorEngine(
        archive.engine,
        slots=slots,
        threads=threads,
        max_rows=manifest.max_batch_size,
        inputs=manifest.inputs,
        outputs=manifest.outputs,
        sizes=sizes,
    )


def cuda_engine(
    archive: EngineArchive, *, device: DeviceName = "cuda", warn: Report = format_fault
) -> Engine:
    """A network in ONNX Runtime on the GPU."""
    manifest = archive.manifest
    runner = OnnxRunner(archive.engine, device=device, warn=warn)
    shaping = _shaping(manifest, runner.inputs, runner.outputs, lambda shapes: True)
    runner.declare(_declared(shaping), outputs=_wanted(manifest, runner.outputs))
    return BucketEngine(runner, shaping, warm=manifest.warm_up)


def tensorrt_engine(
    archive: EngineArchive,
    *,
    slots: int,
    warn: Report = format_fault,
    installed: Bindings = bindings,
) -> Engine:
    """A plan in TensorRT."""
    trt, cuda = installed()
    runner = PlanRunner(
        archive.engine, trt=trt, cuda=cuda, slots=slots, host_code=archive.runs_host_code, warn=warn
    )
    try:
        shaping = _shaping(archive.manifest, runner.inputs, runner.outputs, runner.takes)
        runner.open(_declared(shaping))
    except BaseException:
        runner.close()
        raise
    return BucketEngine(runner, shaping, warm=archive.manifest.warm_up)


def _shaping(
    manifest: Manifest,
    inputs: dict[str, Tensor],
    outputs: Sequence[str],
    takes: Callable[[Shapes], bool],
) -> Shaping:
    """Return how rows are shaped, for those of the manifest's sizes that the engine takes.

    Raises ValueError when it takes none.
    """
    buckets = ladder(manifest.optimization_profiles, max_rows=manifest.max_batch_size)

    def shaped(sizes: Any) -> Shaping:
        if manifest.tokenizer_file is not None:
            return TokenShaping(sizes, inputs=inputs, outputs=outputs)
        return TensorShaping(
            sizes, inputs=inputs, records=manifest.inputs, outputs=manifest.outputs
        )

    whole = shaped(buckets)

    def runs(bucket: Bucket) -> bool:
        return takes(whole.warming(bucket).shapes)

    return shaped(buckets.only(runs))


def _declared(shaping: Shaping) -> tuple[Shapes, ...]:
    return tuple(shaping.warming(bucket).shapes for bucket in shaping.buckets.sizes)


def _wanted(manifest: Manifest, outputs: Sequence[str]) -> tuple[str, ...]:
    """The outputs that are computed: a text task answers with the first."""
    return (
        (outputs[0],)
        if manifest.tokenizer_file is not None
        else tuple(record.name for record in manifest.outputs)
    )
