"""A slot: a queue, page-locked memory, and an execution context for every declared shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from container.tensorrt.context import ContextRunner, block_size
from container.tensorrt.device import Array, Device
from container.tensorrt.plan import Plan, Shapes
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
        plan: Plan,
        cuda: CudaRuntime,
        declared: Sequence[Shapes],
        *,
        warn: Callable[[str], None],
    ) -> None:
        """`declared` shapes are recorded as graphs when they first run; their memory is taken here.

        Raises DeviceFault.
        """
        self._plan, self._warn, self._records = plan, warn, True
        self._device = Device(cuda)
        self._contexts: dict[tuple[tuple[int, ...], ...], ContextRunner | None] = {
            _key(shapes): None for shapes in declared
        }
        try:
            self._other = ContextRunner(plan, self._device, name=OTHER, records=False)
            # The largest batch's memory at once: growing later would move what graphs recorded.
            layouts = [self._other.layouts(shapes) for shapes in declared]
            for index, side in enumerate(("inputs", "outputs")):
                size = max((block_size(pair[index]) for pair in layouts), default=1)
                self._device.reserve(f"{DECLARED} {side}", size)
        except BaseException:
            self._device.close()
            raise

    def run(self, feed: Mapping[str, Array | None], shapes: Shapes, rows: int) -> dict[str, Array]:
        """Return the first `rows` rows of every output. Raises DeviceFault."""
        key = _key(shapes)
        if key not in self._contexts:
            return self._other.run(feed, shapes, rows)
        context = self._contexts[key]
        if context is None:
            context = self._contexts[key] = ContextRunner(
                self._plan, self._device, name=DECLARED, records=self._records
            )
        outputs = context.run(feed, shapes, rows)
        if context.failed_to_record and self._records:
            self._records = False
            self._warn(UNRECORDABLE)
        return outputs

    def close(self) -> None:
        """Free graphs, contexts and memory."""
        try:
            for context in (self._other, *self._contexts.values()):
                if context is not None:
                    context.close()
        finally:
            self._contexts.clear()
            self._device.close()


def _key(shapes: Shapes) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, shapes.values()))
