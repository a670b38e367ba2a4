"""The entropy calibrator: hands TensorRT 10 its batches in device memory, and keeps the cache it
gives.

Never executed where this repository was made: no TensorRT there. Every name it touches is in
surface.py.

The calibration's own process: `python -m engine_build.quantization.calibrate NETWORK FEEDS
CACHE` prints one JSON line.

FEEDS is a folder of batches, one .npz each, all of one shape. TensorRT 10 calibrates as part of a
build, so a plan is built,
with as little tuning as there is, and thrown away. Never executed where this repository was made.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from container.tensorrt.bindings import cuda_runtime, error_logger, tensorrt
from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault
from container.tensorrt.surface import CudaRuntime
from engine_build.quantization.surface import (
    Builder,
    INetworkDefinition,
    IOptimizationProfile,
    ParserError,
    TensorRT,
)
from engine_build.samples.feed import Array, Feed


class DeviceBatches:
    """Batches in device memory, one buffer an input, used again for every batch: all feeds have one
    shape.
    """

    def __init__(self, device: Device, feeds: Iterable[Feed]) -> None:
        self._device = device
        self._feeds = iter(feeds)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.served = 0
        """Batches handed over."""
        self.fault: str | None = None
        """Why no further batch comes, when it is not for lack of feeds."""

    def pointers(self, names: Sequence[str]) -> list[int]:
        """Where the next batch of each input lies; nothing once there are no more, or after a
        fault.
        """
        feed = None if self.fault is not None else next(self._feeds, None)
        if feed is None:
            return []
        self.fault = self._unfit(feed, names)
        if self.fault is None:
            try:
                return self._sent(feed, names)
            except DeviceFault as error:
                # Nothing may be raised here: TensorRT's own code stands between us and our caller.
                self.fault = str(error)
        return []

    def _unfit(self, feed: Feed, names: Sequence[str]) -> str | None:
        for name in names:
            if name not in feed:
                return f"the feeds have no input {name!r} of the network"
            shape, first = feed[name].shape, self._shapes.setdefault(name, feed[name].shape)
            if shape != first:
                return f"a batch of input {name!r} has shape {list(shape)}, but the first had {list(first)}"
        return None

    def _sent(self, feed: Feed, names: Sequence[str]) -> list[int]:
        blocks: list[Array] = [np.ascontiguousarray(feed[name]) for name in names]
        pointers = [
            self._device.send(name, block) for name, block in zip(names, blocks, strict=True)
        ]
        self._device.wait()
        self.served += 1
        return pointers


def calibrator(trt: TensorRT, batches: DeviceBatches, cache: Path) -> Any:
    """An `IInt8EntropyCalibrator2`: the algorithm that `trtexec --calib` has too, so that it takes
    the cache.
    """

    class EntropyCalibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[name-defined, misc]
        """TensorRT calls these."""

        def __init__(self) -> None:
            # Not super(): without the base's own constructor the binding crashes.
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            """1, as trtexec's own: the batch is an axis like others since networks have explicit
            batches.
            """
            return 1

        def get_batch(self, names: Sequence[str]) -> list[int]:
            """Device pointers in the order of `names`; empty at the end."""
            return batches.pointers(names)

        def read_calibration_cache(self) -> bytes | None:
            """What was written already."""
            return cache.read_bytes() if cache.is_file() else None

        def write_calibration_cache(self, data: Any) -> None:
            """Called once all batches are seen."""
            cache.write_bytes(bytes(data))

    return EntropyCalibrator()


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
