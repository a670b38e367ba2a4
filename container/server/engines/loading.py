"""Loads the engine of an archive: the manifest names the runtime, and this process has some."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import onnxruntime

from container.archive import CPU, EngineArchive, SupportedRuntimes
from container.server.engines.bucket_engine import BucketEngine
from container.server.engines.buckets import Buckets, ladder
from container.server.engines.engine import Engine, longest_sequence, warm_up_sizes
from container.server.engines.onnxruntime_cpu import TensorEngine, TokenEngine
from container.server.engines.onnxruntime_cuda import CUDA, DeviceName, OnnxRunner
from container.server.engines.shaping import Shapes, Shaping, Tensor, TensorShaping, TokenShaping
from container.server.engines.tensorrt_plan import PlanRunner
from container.server.engines.token_classes import TokenClassEngine
from container.tensorrt.bindings import bindings
from container.tensorrt.faults import NoBindings
from onboarding.manifest import Manifest, RuntimeIdentity, TensorRecord

DRIVER = "libcuda.so.1"
MAJOR, MINOR = 75, 76
"""CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, cuda.h."""
PLAN_SLOTS = 2
"""One batch is copied while the other computes."""
Report = Callable[[str], None]
Bindings = Callable[[], tuple[Any, Any]]


def gpu_compute_capability(load: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """Return the first GPU's; None without a driver, or without a GPU that it can use.

    It creates no CUDA context, so it takes no memory.
    """
    try:
        driver = load(DRIVER)
    except OSError:
        return None
    device, numbers = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for number, attribute in zip(numbers, (MAJOR, MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return ".".join(str(number.value) for number in numbers)


def running(
    capability: Callable[[], str | None] = gpu_compute_capability,
    *,
    providers: Callable[[], Sequence[str]] = onnxruntime.get_available_providers,
    installed: Bindings = bindings,
) -> SupportedRuntimes:
    """Return the runtimes of this process; TensorRT is imported only on a machine with a GPU."""
    onnx = RuntimeIdentity(name="onnxruntime", version=onnxruntime.__version__)
    pairs, gpu = [(onnx, CPU)], capability()
    if gpu is None:
        absences = dict.fromkeys(("tensorrt", "onnxruntime"), "there is no NVIDIA GPU")
        return SupportedRuntimes(pairs=tuple(pairs), absences=absences)
    absences = {}
    if CUDA in providers():
        pairs.append((onnx, gpu))
    else:
        absences["onnxruntime"] = f"this build has no {CUDA}"
    try:
        trt, _ = installed()
        pairs.append((RuntimeIdentity(name="tensorrt", version=str(trt.__version__)), gpu))
    except NoBindings as fault:
        absences["tensorrt"] = str(fault)
    return SupportedRuntimes(pairs=tuple(pairs), absences=absences)


def print_warning(sentence: str) -> None:
    """Print one line on standard error."""
    print(sentence, file=sys.stderr, flush=True)


def load_engine(
    archive: EngineArchive,
    *,
    slots: int | None,
    threads: int | None,
    cores: int,
    warn: Report = print_warning,
    installed: Bindings = bindings,
) -> Engine:
    """Return the engine of a verified archive, not yet warm.

    Raises EngineOutOfMemory, and whatever the runtime raises. `slots` None: `cores` on a CPU, 2 for
    TensorRT; ONNX Runtime has one on a GPU. `threads` None: one, of each CPU slot.
    """
    manifest = archive.manifest
    if manifest.runtime.name == "tensorrt":
        count = PLAN_SLOTS if slots is None else slots
        engine: Engine = tensorrt_engine(archive, slots=count, warn=warn, installed=installed)
    elif manifest.compute_capability == CPU:
        count = cores if slots is None else slots
        engine = cpu_engine(archive, slots=count, threads=1 if threads is None else threads)
    else:
        engine = cuda_engine(archive, warn=warn)
    longest = longest_sequence(manifest.optimization_profiles)
    if manifest.task == "token-classification" and longest is not None:
        return TokenClassEngine(engine, longest=longest)
    return engine


def cpu_engine(archive: EngineArchive, *, slots: int, threads: int) -> Engine:
    """Load a network in ONNX Runtime on the CPU."""
    manifest = archive.manifest
    options = {
        "slots": slots,
        "threads": threads,
        "max_rows": manifest.max_batch_size,
        "sizes": warm_up_sizes(manifest),
    }
    if archive.tokenizer is not None:
        return TokenEngine(archive.engine, **options)
    inputs, outputs = network_records(manifest)
    return TensorEngine(archive.engine, inputs=inputs, outputs=outputs, **options)


def network_records(
    manifest: Manifest,
) -> tuple[tuple[TensorRecord, ...], tuple[TensorRecord, ...]]:
    """Return the network's inputs and outputs, where no tokenizer stands before it."""
    processor = manifest.image_processor
    if processor is None:
        return manifest.inputs, manifest.outputs
    return (processor.input,), (processor.output,)


def cuda_engine(
    archive: EngineArchive, *, device: DeviceName = "cuda", warn: Report = print_warning
) -> Engine:
    """Load a network in ONNX Runtime on the GPU."""
    manifest = archive.manifest
    runner = OnnxRunner(archive.engine, device=device, warn=warn)
    shaping = _shaping(manifest, runner.inputs, runner.outputs, lambda shapes: True)
    # A text task answers with the first output.
    outputs = (
        tuple(record.name for record in network_records(manifest)[1])
        if manifest.tokenizer_file is None
        else runner.outputs[:1]
    )
    runner.declare(_declared(shaping), outputs=outputs)
    return BucketEngine(runner, shaping, warm=manifest.warm_up)


def tensorrt_engine(
    archive: EngineArchive,
    *,
    slots: int,
    warn: Report = print_warning,
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

    def shaping(buckets: Buckets) -> Shaping:
        if manifest.tokenizer_file is not None:
            return TokenShaping(buckets, inputs=inputs, outputs=outputs)
        records, answers = network_records(manifest)
        return TensorShaping(buckets, inputs=inputs, records=records, outputs=answers)

    buckets = ladder(manifest.optimization_profiles, max_rows=manifest.max_batch_size)
    whole = shaping(buckets)
    return shaping(buckets.only(lambda bucket: takes(whole.blank(bucket).shapes)))


def _declared(shaping: Shaping) -> tuple[Shapes, ...]:
    return tuple(shaping.blank(bucket).shapes for bucket in shaping.buckets.sizes)
