"""The calibration's own process: `python -m engine_build.calibration_cache.calibrate NETWORK FEEDS
CACHE` prints one JSON line.

FEEDS is a folder of batches, one .npz each, all of one shape. TensorRT 10 calibrates as part of a
build, so a plan is built,
with as little tuning as there is, and thrown away. Never executed where this repository was made.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from container.tensorrt.bindings import cuda_runtime, error_logger, tensorrt
from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault
from container.tensorrt.surface import CudaRuntime
from engine_build.calibration_cache.calibrator import DeviceBatches, calibrator
from engine_build.calibration_cache.surface import (
    Builder,
    INetworkDefinition,
    IOptimizationProfile,
    ParserError,
    TensorRT,
)
from engine_build.samples.feed import Feed

MISSING = 3
"""Exit code where TensorRT's or CUDA's Python bindings are not installed."""
LEAST_TUNING = 0


def installed() -> tuple[TensorRT, CudaRuntime]:
    """The bindings of this machine. Raises ImportError."""
    return tensorrt(), cuda_runtime()


def main(
    arguments: list[str], bindings: Callable[[], tuple[TensorRT, CudaRuntime]] = installed
) -> int:
    """0: the line tells how it went; 3: bindings are missing."""
    try:
        trt, cuda = bindings()
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    network, feeds, cache = map(Path, arguments)
    begin = time.monotonic()
    served, reason = calibrated(trt, cuda, network, feeds, cache)
    seconds = round(time.monotonic() - begin, 2)
    print(
        json.dumps(
            {
                "version": str(trt.__version__),
                "batches": served,
                "seconds": seconds,
                "reason": reason,
            }
        )
    )
    return 0


def calibrated(
    trt: TensorRT, cuda: CudaRuntime, network: Path, feeds: Path, cache: Path
) -> tuple[int, str | None]:
    """Writes the cache; tells how many batches TensorRT took, and why there is no cache when there
    is none.
    """
    try:
        device = Device(cuda)
        batches = DeviceBatches(device, feeds_of(feeds))
        reason = refusal(trt, network, shapes_of(feeds), batches, cache)
        device.close()
        return batches.served, reason
    except DeviceFault as error:
        return 0, str(error)


def refusal(
    trt: TensorRT,
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    batches: DeviceBatches,
    cache: Path,
) -> str | None:
    """Writes the cache; or why not, in the bindings' own words."""
    logger = error_logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        return (
            "; ".join(_told(parser.get_error(index)) for index in range(parser.num_errors))
            or "it does not parse"
        )
    missing = sorted(
        {network.get_input(index).name for index in range(network.num_inputs)} - set(shapes)
    )
    if missing:
        return f"the feeds have no input {', '.join(missing)} of the network"
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.INT8)
    config.builder_optimization_level = LEAST_TUNING
    # Held here: TensorRT keeps no reference of its own.
    held = calibrator(trt, batches, cache)
    config.int8_calibrator = held
    profile = _profile(builder, network, shapes)
    config.add_optimization_profile(profile)
    config.set_calibration_profile(profile)
    # The plan is of no use, and neither is its absence once the cache is there.
    builder.build_serialized_network(network, config)
    if cache.is_file():
        return None
    return (
        "; ".join(filter(None, (batches.fault, *logger.errors)))
        or "TensorRT wrote no cache and says no more"
    )


def feeds_of(folder: Path) -> Iterator[Feed]:
    """The batches of a folder, in order."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            yield {name: file[name] for name in file.files}


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each input, by the first batch."""
    return {name: array.shape for name, array in next(feeds_of(folder), {}).items()}


def _told(error: ParserError) -> str:
    return f"node {error.node_name()} (operator {error.node_operator()}): {' '.join(error.desc().split())}"


def _profile(
    builder: Builder, network: INetworkDefinition, shapes: dict[str, tuple[int, ...]]
) -> IOptimizationProfile:
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        name = network.get_input(index).name
        profile.set_shape(name, shapes[name], shapes[name], shapes[name])
    return profile


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
