"""INT8 calibration by TensorRT 10, in a process of its own.

`python -m engine_build.quantization.calibrator NETWORK FEEDS CACHE` prints one JSON line, in which
`products` are the tensors that a convolution or a matrix product reads. FEEDS is a folder of
batches, one .npz each, all of one shape. TensorRT 10 calibrates as part of a build, so a plan is
built, with as little tuning as there is, and thrown away.

TensorRT 11 has no calibrators, so this is for TensorRT 10 alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from container.tensorrt.bindings import CudaRuntime, bindings, error_logger
from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault, NoBindings
from engine_build.datasets.dataset import Array, Feed

MISSING = 3
"""Exit code where TensorRT's or CUDA's Python bindings are not installed."""
LEAST_TUNING = 0


class DeviceBatches:
    """Batches in device memory, one buffer an input: all feeds have one shape."""

    def __init__(self, device: Device, feeds: Iterable[Feed]) -> None:
        self._device = device
        self._feeds = iter(feeds)
        self.served = 0
        """Batches given to TensorRT."""
        self.fault: str | None = None
        """Why no further batch comes, unless the feeds are at their end."""

    def pointers(self, names: Sequence[str]) -> list[int]:
        """Return where the next batch of each input lies; nothing at the end or after a fault."""
        feed = None if self.fault is not None else next(self._feeds, None)
        if feed is None:
            return []
        try:
            return self._send(feed, names)
        except DeviceFault as error:
            # Nothing may be raised here: TensorRT's own code calls this.
            self.fault = str(error)
            return []

    def _send(self, feed: Feed, names: Sequence[str]) -> list[int]:
        blocks: list[Array] = [np.ascontiguousarray(feed[name]) for name in names]
        pointers = [
            self._device.send(name, block) for name, block in zip(names, blocks, strict=True)
        ]
        self._device.wait()
        self.served += 1
        return pointers


def entropy_calibrator(trt: Any, batches: DeviceBatches, cache: Path) -> Any:
    """Return an `IInt8EntropyCalibrator2`, whose caches `trtexec --calib` takes."""

    class EntropyCalibrator(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        """TensorRT calls these methods."""

        def __init__(self) -> None:
            # Not super(): without the base's own constructor the binding crashes.
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            """Return 1, as trtexec does: explicit batches are an axis like others."""
            return 1

        def get_batch(self, names: Sequence[str]) -> list[int]:
            """Return device pointers in the order of `names`; empty at the end."""
            return batches.pointers(names)

        def read_calibration_cache(self) -> bytes | None:
            """Return the cache of an earlier call."""
            return cache.read_bytes() if cache.is_file() else None

        def write_calibration_cache(self, data: Any) -> None:
            """Write the cache once all batches are seen."""
            cache.write_bytes(bytes(data))

    return EntropyCalibrator()


def main(arguments: list[str], modules: Callable[[], tuple[Any, CudaRuntime]] = bindings) -> int:
    """Return 0 after one JSON line, 3 where bindings are missing."""
    try:
        trt, cuda = modules()
    except NoBindings as error:
        print(error, file=sys.stderr)
        return MISSING
    network, feeds, cache = map(Path, arguments)
    begin = time.monotonic()
    products: list[str] = []
    try:
        device = Device(cuda)
        batches = DeviceBatches(device, read_feeds(feeds))
        shapes = {name: array.shape for name, array in next(read_feeds(feeds), {}).items()}
        reason = build_with_calibrator(trt, network, shapes, batches, cache, products)
        served = batches.served
        device.close()
    except DeviceFault as error:
        served, reason = 0, str(error)
    seconds = round(time.monotonic() - begin, 2)
    result = {"version": str(trt.__version__), "batches": served, "seconds": seconds}
    print(json.dumps(result | {"products": products, "reason": reason}))
    return 0


def build_with_calibrator(
    trt: Any,
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    batches: DeviceBatches,
    cache: Path,
    products: list[str],
) -> str | None:
    """Write the cache; return why there is none in TensorRT's words, or None.

    `products` gets the tensors that convolutions and matrix products read.
    """
    logger = error_logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        faults = map(parser.get_error, range(parser.num_errors))
        return "; ".join(map(_parser_error, faults)) or "it does not parse"
    products += product_inputs(trt, network)
    names = [network.get_input(index).name for index in range(network.num_inputs)]
    if missing := sorted(set(names) - set(shapes)):
        return f"the feeds have no input {', '.join(missing)} of the network"
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.INT8)
    config.builder_optimization_level = LEAST_TUNING
    # The local name keeps the calibrator alive: TensorRT holds no reference of its own.
    calibrator = entropy_calibrator(trt, batches, cache)
    config.int8_calibrator = calibrator
    profile = builder.create_optimization_profile()
    for name in names:
        profile.set_shape(name, shapes[name], shapes[name], shapes[name])
    config.add_optimization_profile(profile)
    config.set_calibration_profile(profile)
    # The plan is not used, and its absence does not matter once the cache is there.
    builder.build_serialized_network(network, config)
    if cache.is_file():
        return None
    errors = [error for error in (batches.fault, *logger.errors) if error]
    return "; ".join(errors) or "TensorRT wrote no cache and gives no reason"


def product_inputs(trt: Any, network: Any) -> list[str]:
    """Return the tensors that convolutions and matrix products read, by TensorRT's own names."""
    kinds = trt.LayerType
    products = (kinds.CONVOLUTION, kinds.DECONVOLUTION, kinds.MATRIX_MULTIPLY)
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    tensors = [
        layer.get_input(index)
        for layer in layers
        if layer.type in products
        for index in range(layer.num_inputs)
    ]
    return sorted({tensor.name for tensor in tensors if tensor is not None})


def read_feeds(folder: Path) -> Iterator[Feed]:
    """Yield the batches of a folder, in order."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            yield {name: file[name] for name in file.files}


def _parser_error(error: Any) -> str:
    reason = " ".join(error.desc().split())
    return f"node {error.node_name()} (operator {error.node_operator()}): {reason}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
