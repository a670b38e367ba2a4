"""JPEG and PNG files as a network's input: task `image-classification`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from container.triton.images import ImageProcessor as Processor
from container.triton.images import ImageRefused
from engine_build.datasets.dataset import Encoder, Feed, Sample, Shape
from engine_build.errors import InputRefused
from onboarding.manifest import ImageProcessor


class ImageEncoder(Encoder):
    """A checkpoint's processor, as servers run it."""

    def __init__(self, description: ImageProcessor) -> None:
        self._processor = Processor(description.model_dump(mode="json"))

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """Return float32 [images, 3, height, width]. Raises InputRefused."""
        rows = []
        for sample in samples:
            assert isinstance(sample, bytes)
            try:
                rows.append(self._processor.row(sample))
            except ImageRefused as fault:
                raise InputRefused(f"an image of the dataset {fault}; correct the dataset.") from (
                    fault
                )
        return {self._processor.name: np.stack(rows)}

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Repeat samples until there are enough rows."""
        return self.feed([samples[index % len(samples)] for index in range(shape.batch)])
