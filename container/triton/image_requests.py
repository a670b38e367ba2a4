"""Requests of images inside Triton's python backend, with and without the network behind them.

Archives of image classifiers carry this file beside `images.py` and each `model.py` that reads
images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import heads  # type: ignore[import-not-found]
import images  # type: ignore[import-not-found]
import numpy as np
import triton_python_backend_utils as pb_utils

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]


class Images:
    """Requests of image files: decoded one after the other, and answered by a head."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        """Take `image_processor`, `inputs` and what the head reads.

        What a preprocessing gives is the model's input; the manifest's are then its own.
        """
        before = manifest.get("preprocessing")
        inputs = manifest["inputs"] if before is None else before["outputs"]
        self._processor = images.ImageProcessor(manifest["image_processor"])
        self._input = inputs[0]["name"]
        self._head = heads.Head(manifest)
        self.outputs: tuple[str, ...] = self._head.outputs

    def read(self, requests: Sequence[Any]) -> list[Array | ValueError]:
        """Return each request's rows, or the fault that its client gets."""
        return [self._rows(request) for request in requests]

    def rows(self, pixels: Array) -> int:
        """Return the rows of a request."""
        return len(pixels)

    def feed(self, requests: Sequence[Array]) -> Feed:
        """Return the network's input for the images of all requests."""
        return {self._processor.name: np.concatenate(requests)}

    def blank(self, batch: int, sequence: int | None) -> Feed:
        """Return a batch of zeros for warm-up."""
        return {self._processor.name: np.zeros((batch, *self._processor.shape), np.float32)}

    def answers(self, outputs: Sequence[Array]) -> list[Array]:
        """Return the first output as float32."""
        return [np.asarray(outputs[0], dtype=np.float32)]

    def response(self, pixels: Array, rows: Sequence[Array]) -> Sequence[Array]:
        """Return labels and scores of one request's rows of the network's answer."""
        answers: list[Array] = self._head.answers(rows[0])
        return answers

    def _rows(self, request: Any) -> Array | ValueError:
        tensor = pb_utils.get_input_tensor_by_name(request, self._input)
        if tensor is None:
            return ValueError(f"Input {self._input!r} is missing.")
        try:
            rows = self._processor.rows([bytes(file) for file in tensor.as_numpy().reshape(-1)])
        except ValueError as fault:
            return fault
        except MemoryError:
            return ValueError("The images do not fit the memory that is left; send fewer.")
        whole: Array = np.stack(rows) if rows else np.zeros((0, *self._processor.shape), np.float32)
        return whole
