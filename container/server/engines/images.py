"""Rows of image models: files, and how pixels become the network's input."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from container.server.codecs.tensors import TensorRow
from container.server.types import Encoded, RequestFault
from container.triton.images import ImageProcessor as Processor
from container.triton.images import pixel_count
from onboarding.manifest import ImageProcessor

UNITS_OF_A_FILE = 5_000
"""Costs of a file beside its pixels: more than is ever decoded on the event loop."""


class ImageEncoder:
    """The packaged processor: decodes files one after the other, in the thread that calls."""

    def __init__(self, description: ImageProcessor) -> None:
        self._processor = Processor(description.model_dump(mode="json"))

    @property
    def most_rows(self) -> int:
        """Rows of one request, and of the queue."""
        return self._processor.most_rows

    def encode(self, files: Sequence[bytes]) -> Encoded:
        """Return one row of float32 pixels per file. Raises RequestFault."""
        try:
            rows = self._processor.rows(files)
        except ValueError as fault:
            raise RequestFault(str(fault)) from fault
        return Encoded([(row,) for row in rows], 0)

    def probe(self) -> list[TensorRow]:
        """Return a row of zeros."""
        return [(np.zeros(self._processor.shape, np.float32),)]

    def cost(self, files: Sequence[bytes]) -> int:
        """Return the pixels that are in memory at once: the largest file's, and all rows'."""
        rows = len(files) * (prod(self._processor.shape) + UNITS_OF_A_FILE)
        return rows + max(map(pixel_count, files), default=0)
