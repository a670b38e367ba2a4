"""Several tensors in one block of memory, so that one copy moves them all: pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from container.tensorrt.ranges import Shapes

Array = np.ndarray[Any, Any]
ALIGNMENT = 256
"""Of every tensor's address, as TensorRT asks for."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one tensor lies in the block."""

    offset: int
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)

    def view(self, block: Array) -> Array:
        """The tensor in a block of bytes."""
        values: Array = (
            block[self.offset : self.offset + self.size].view(self.dtype).reshape(self.shape)
        )
        return values


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tensors one behind the other, by name."""

    places: Mapping[str, Place]

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return max((place.offset + place.size for place in self.places.values()), default=0)


def layout(shapes: Shapes, types: Mapping[str, Any]) -> Layout:
    """The tensors in the given order, each aligned."""
    places: dict[str, Place] = {}
    offset = 0
    for name, shape in shapes.items():
        places[name] = Place(offset=offset, shape=tuple(shape), dtype=types[name])
        offset = -(-(offset + places[name].size) // ALIGNMENT) * ALIGNMENT
    return Layout(places=places)
