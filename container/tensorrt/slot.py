"""One place where batches run one after the other.

A queue, page-locked memory, and an execution context for every declared shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from container.tensorrt.context import ContextRunner, Loaded
from container.tensorrt.device import Array, Device
from container.tensorrt.plan import Shapes
from container.tensorrt.surface import CudaRuntime

DECLARED, OTHER = "declared", "other"
UNRECORDABLE = (
    "The plan cannot be recorded as CUDA graphs; it runs kernel by kernel, which is "
    "slower for small batches."
)


class Slot:
    """Runs one batch at a time; only one thread at a time may call it."""

    def __init__(
        self,
        loaded: Loaded,
        cuda: CudaRuntime,
        declared: Sequence[Shapes],
        *,
        warn: Callable[[str], None],
        records: bool = True,
    ) -> None:
        """`declared` shapes are recorded as graphs when they first run; their memory is taken here.

        Raises DeviceFault.
        """
        self._loaded, self._warn, self._records = loaded, warn, records
        self._device = Device(cuda)
        self._contexts: dict[tuple[tuple[int, ...], ...], ContextRunner | None] = {
            _key(shapes): None for shapes in declared
        }
        try:
            self._other = ContextRunner(loaded, self._device, name=OTHER, records=False)
            self._reserve(declared)
        except BaseException:
            self._device.close()
            raise

    def run(self, feed: Mapping[str, Array | None], shapes: Shapes, rows: int) -> dict[str, Array]:
        """The first `rows` rows of every output. Raises DeviceFault."""
        key = _key(shapes)
        if key not in self._contexts:
            return self._other.run(feed, shapes, rows)
        context = self._contexts[key]
        if context is None:
            context = self._contexts[key] = ContextRunner(
                self._loaded, self._device, name=DECLARED, records=self._records
            )
        found = context.run(feed, shapes, rows)
        if context.failed_to_record and self._records:
            self._records = False
            self._warn(UNRECORDABLE)
        return found

    def close(self) -> None:
        """Gives graphs, contexts and memory back."""
        try:
            for context in (self._other, *self._contexts.values()):
                if context is not None:
                    context.close()
        finally:
            self._contexts.clear()
            self._device.close()

    def _reserve(self, declared: Sequence[Shapes]) -> None:
        """Takes the memory of the largest batch at once.

        Growing later would move what graphs have recorded.
        """
        blocks = [self._other.blocks(shapes) for shapes in declared]
        for place, side in enumerate(("inputs", "outputs")):
            size = max((pair[place].size for pair in blocks), default=1)
            self._device.buffer(f"{DECLARED} {side}", size)
            self._device.pinned(f"{DECLARED} {side}", size)


def _key(shapes: Shapes) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, shapes.values()))
