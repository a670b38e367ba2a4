"""The calibrate step of TensorRT before 11: the calibration cache of an `int8` network.

    TRT-101601-EntropyCalibration2
    input_1:0: 3c010a14
    (Unnamed Layer* 8) [Constant]_output: 39137939

One line a tensor, in the network's order: its name, which may hold colons and blanks, then the
bytes of its float32 scale from the highest on, in lower-case hexadecimal. The scale is the range /
127. Every line ends in LF, the last one too. Sources: the caches of NVIDIA's MLPerf submissions
(inference_results_v1.0), Model Optimizer's `import_scales_from_calib_cache`.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx

from engine_build.datasets.dataset import Encoder, Feed, save_arrays
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.calibrator import MISSING
from engine_build.quantization.layers import implicit_int8_fault
from engine_build.request import CACHE_NAME, BuildContext
from engine_build.runner import Command, Ended
from engine_build.steps.step import BuildState
from engine_build.tensorrt.half_precision import write_weakly_typed
from onboarding.fault import comma_list

HEADER = re.compile(r"TRT-([0-9A-Za-z]+)-([0-9A-Za-z]+)")
ENTRY = re.compile("([^\ufffd]+): ([0-9a-f]{8}|0)")
INFINITE = "7f800000"
ENTROPY = "EntropyCalibration2"
HEADER_FORM = "TRT-<version>-<algorithm>, such as TRT-101601-EntropyCalibration2"
ENTRY_FORM = (
    "<tensor>: <8 lower-case hexadecimal digits of a scale that is not negative, or 0>, such as "
    "input: 3c010a14, each tensor once"
)


@dataclass(frozen=True, kw_only=True)
class CalibrationCache:
    """The result of a calibration."""

    version: str
    """Digits of the TensorRT that wrote it, as `version_digits` gives them."""
    algorithm: str
    scales: dict[str, float]
    """By tensor, in the file's order; a scale is at least 0 and finite."""
    infinite: tuple[str, ...] = ()
    """Tensors whose scale is infinite: they held infinities, or numbers near FP32's end."""


def version_digits(tensorrt: str) -> str:
    """Return a version as a header has it: 101601 for 10.16.1.11, and 8501 for 8.5.1."""
    major, minor, patch = (int(part) for part in tensorrt.split(".")[:3])
    return str(major * (10000 if major >= 10 else 1000) + minor * 100 + patch)


def parse_cache(data: bytes, source: str) -> CalibrationCache:
    """Return the cache in some bytes; `source` is how messages call them.

    Raises InputRefused, with the line's number.
    """
    header, *lines = data.decode(errors="replace").removesuffix("\n").split("\n")
    title = HEADER.fullmatch(header)
    if title is None:
        raise _line_fault(source, 1, header, HEADER_FORM)
    scales: dict[str, float] = {}
    for number, line in enumerate(lines, 2):
        entry = ENTRY.fullmatch(line)
        if entry is None:
            raise _line_fault(source, number, line, ENTRY_FORM)
        # TensorRT 10.6 writes a scale of 0 as one digit.
        (scale,) = struct.unpack("!f", bytes.fromhex(entry[2].zfill(8)))
        if not scale >= 0 or entry[1] in scales:
            raise _line_fault(source, number, line, ENTRY_FORM)
        scales[entry[1]] = scale
    return CalibrationCache(
        version=title[1],
        algorithm=title[2],
        scales={name: scale for name, scale in scales.items() if scale < math.inf},
        infinite=tuple(name for name, scale in scales.items() if scale == math.inf),
    )


def without_infinite_scales(data: bytes, products: Collection[str]) -> bytes:
    """Return a new cache without tensors whose scale is infinite.

    A layer that reads one of them computes in FP16. `products` are the tensors that convolutions
    and matrix products read, which are what INT8 is for. Raises NetworkRefused for one of those.
    """
    infinite = parse_cache(data, CACHE_NAME).infinite
    if read := [name for name in infinite if name in products]:
        raise NetworkRefused(
            f"tensor {read[0]} has an infinite scale, and a product reads it in INT8: its values "
            "leave FP32's range on the calibration samples; mend the network there, or set "
            "`quantization: explicit`."
        )
    lines = data.split(b"\n")
    return b"\n".join(line for line in lines if not line.endswith(f": {INFINITE}".encode()))


def _line_fault(source: str, number: int, line: str, allowed: str) -> InputRefused:
    return InputRefused(
        f"calibration cache {source}, line {number}: {line[:120]!r}; allowed: {allowed}; "
        "make the cache anew."
    )


TIMEOUT_SECONDS = 3600


def calibrate_cache(context: BuildContext, network: Network, encoder: Encoder) -> Path:
    """Find or make the cache's file; `network` is the float one.

    Batches have the shape that the first profile is tuned for, filled with real values by
    `Encoder.shaped`, because TensorRT counts padding like any other token: on MiniLM's 24 inputs of
    MatMuls at 16 x 64, padded sentences move the 99.99 % quantile by more than 15 % in 13 tensors,
    tokens set side by side in 5. What does not fit a batch is left out.

    Raises InputRefused and NetworkRefused.
    """
    known = _known_cache(context)
    if known is not None:
        return known
    request, samples = context.request, context.request.calibration.values
    path = context.work.scratch("calibration-cache") / CACHE_NAME
    folder = context.work.scratch("calibration-feeds")
    shape = request.opt_shape
    intent = (
        f"{len(samples)} samples in batches of {shape} through TensorRT {request.platform.tensorrt}"
    )
    with context.log.step("calibrate", intent):
        begins = range(0, len(samples), shape.batch)
        batches = (samples[begin : begin + shape.batch] for begin in begins)
        save_feeds((encoder.shaped(batch, shape) for batch in batches), folder)
        calibrated = context.work.scratch("calibration-network") / "model.onnx"
        write_weakly_typed(network.path, calibrated)
        module = "engine_build.quantization.calibrator"
        argv = (sys.executable, "-m", module, str(calibrated), str(folder), str(path))
        ended = context.runner.run(Command(argv=argv, timeout_seconds=TIMEOUT_SECONDS))
        cache = _written_cache(ended, path)
    context.log.line(f"  {len(cache.scales)} tensors have a scale")
    if cache.infinite:
        names = comma_list(cache.infinite, 3)
        context.log.line(f"  left out, infinite and read by no product: {names}")
    name = request.cache_path
    context.work.store.upload(path, name)
    return context.work.store.path(name)


def save_feeds(feeds: Iterable[Feed], folder: Path) -> None:
    """Write one .npz a batch, in order."""
    for number, feed in enumerate(feeds):
        save_arrays(folder / f"{number:06}.npz", feed)


def _written_cache(ended: Ended, path: Path) -> CalibrationCache:
    if ended.code == MISSING:
        raise InputRefused(
            "the Python bindings of TensorRT or CUDA are not on this machine, and a calibration "
            "cache needs both; build it in the GPU builder image, as `roundhouse build` does."
        )
    reason = ended.report.get("reason", f"the process {ended.how} ({ended.last_error})")
    if reason is not None or not path.is_file():
        raise NetworkRefused(
            f"TensorRT gives no calibration cache: {reason or 'it wrote none'}; "
            "the log has its output."
        )
    cache = parse_cache(path.read_bytes(), CACHE_NAME)
    if cache.infinite:
        path.write_bytes(without_infinite_scales(path.read_bytes(), ended.report["products"]))
    return cache


def _known_cache(context: BuildContext) -> Path | None:
    """Copy a cache that this TensorRT takes into the work folder's store."""
    name = context.request.cache_path
    for store in context.stores:
        data = store.read(name)
        if data is None:
            continue
        fault = _fault(data, f"{store.place}/{name}", str(context.request.platform.tensorrt))
        if fault is not None:
            context.log.line(f"  {fault}")
            continue
        if store is not context.work.store:
            copy = context.work.scratch("calibration-cache") / CACHE_NAME
            store.download(name, copy)
            context.work.store.upload(copy, name)
        context.log.line(f"  calibration cache {name} is reused from {store.place}")
        return context.work.store.path(name)
    return None


def _fault(data: bytes, name: str, tensorrt: str) -> str | None:
    """Return why a cache is made anew; None where this TensorRT takes it."""
    try:
        cache = parse_cache(data, name)
    except InputRefused as error:
        return str(error)
    if cache.infinite:
        return f"calibration cache {name} has infinite scales; it is made anew"
    version = version_digits(tensorrt)
    if (cache.version, cache.algorithm) == (version, ENTROPY):
        return None
    made_by = f"calibration cache {name} is of TensorRT {cache.version}, {cache.algorithm}"
    return f"{made_by}; it is made anew for {version}"


def run(context: BuildContext, state: BuildState) -> None:
    """Find or make the calibration cache, without which only `auto` goes on.

    Raises InputRefused and NetworkRefused.
    """
    network = state.networks["float"]
    fault = implicit_int8_fault(onnx.load(network.path, load_external_data=False))
    try:
        if fault is not None:
            raise NetworkRefused(fault)
        calibrate_cache(context, network, state.encoder)
    except NetworkRefused as error:
        if context.request.model.engine.precision != "auto":
            raise
        context.log.line(f"  int8 is not tried: {error}")
        state.refused["int8"] = str(error)
