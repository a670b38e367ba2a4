"""The entropy calibrator: hands TensorRT 10 its batches in device memory, and keeps the cache it
gives.

Never executed where this repository was made: no TensorRT there. Every name it touches is in
surface.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault
from engine_build.calibration_cache.surface import TensorRT
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
