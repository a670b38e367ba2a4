"""The calibrate step of TensorRT before 11: the calibration cache of an `int8` network."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import onnx

from engine_build.context import BuildContext
from engine_build.datasets.dataset import Encoder, Feed, save_arrays
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.calibration_cache import (
    CACHE_NAME,
    ENTROPY,
    CalibrationCache,
    cache_path,
    parse_cache,
    version_digits,
    without_infinite_scales,
)
from engine_build.quantization.calibrator import MISSING
from engine_build.quantization.layers import implicit_int8_fault
from engine_build.runner import Command, Ended
from engine_build.steps.step import BuildState, Step
from engine_build.tensorrt.half_precision import write_weakly_typed
from onboarding.nearest import comma_list

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
    name = cache_path(request)
    context.work_store.upload(path, name)
    return context.work_store.path(name)


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
    name = cache_path(context.request)
    for store in context.stores:
        data = store.read(name)
        if data is None:
            continue
        fault = _fault(data, f"{store.place}/{name}", str(context.request.platform.tensorrt))
        if fault is not None:
            context.log.line(f"  {fault}")
            continue
        if store is not context.work_store:
            copy = context.work.scratch("calibration-cache") / CACHE_NAME
            store.download(name, copy)
            context.work_store.upload(copy, name)
        context.log.line(f"  calibration cache {name} is reused from {store.place}")
        return context.work_store.path(name)
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


CALIBRATE = Step(
    name="calibrate",
    run=run,
    applies=lambda context: context.request.int8_mode == "calibration-cache",
)
