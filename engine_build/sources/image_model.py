"""An image classifier in PyTorch: the reference that its networks and engines are compared with."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from engine_build.datasets.dataset import Array, Feed, Sample
from engine_build.datasets.images import ImageEncoder
from engine_build.errors import SourceFault
from engine_build.machine import cores, return_memory
from engine_build.sources.checkpoint import read_json
from engine_build.sources.head import head_of
from engine_build.sources.image_processor import (
    PIXELS,
    load_image_processor,
    read_image_processor,
)
from engine_build.sources.source_model import (
    Classifier,
    load_encoder,
    refuse_broken_weights,
)
from onboarding.manifest import TensorRecord
from onboarding.values import IMAGES

TOLERANCE = 1e-4


class ImageModel:
    """A checkpoint with an image classification head, loaded in float32.

    `release` gives the weights' memory back; the next call of `rows` loads them again.
    """

    inputs: tuple[str, ...] = (PIXELS,)
    output = Classifier.output

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(cores())
        self.folder = folder
        channels = read_json(folder / "config.json", {}).get("num_channels", 3)
        if channels != 3:
            raise SourceFault(
                f"config.json of the checkpoint has num_channels {channels}; images have 3: name a "
                "checkpoint that was trained on colour images."
            )
        encoder = load_encoder(folder, IMAGES)
        self.head = head_of(folder, IMAGES, scores=getattr(encoder.config, "num_labels", None))
        assert self.head is not None and self.head.labels is not None
        logits = TensorRecord(name=self.output, datatype="FP32", shape=(-1, len(self.head.labels)))
        self.processor = read_image_processor(folder, logits)
        self._module: Any = Classifier(encoder, self.inputs).eval()
        refuse_broken_weights(self._module)
        # Most models take one size of images alone.
        self.rows({PIXELS: np.zeros((1, *self.processor.input.shape[1:]), np.float32)})

    @property
    def module(self) -> Any:
        """The model as `torch.nn.Module`, in evaluation mode."""
        if self._module is None:
            self._module = Classifier(load_encoder(self.folder, IMAGES), self.inputs).eval()
        return self._module

    @property
    def encoder(self) -> ImageEncoder:
        """What makes feeds of images, as servers do."""
        return ImageEncoder(self.processor)

    def release(self) -> None:
        """Forget the weights."""
        self._module = None
        return_memory()

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, labels]. Raises SourceFault for another size of images."""
        with torch.inference_mode():
            try:
                rows: Array = self.module(torch.from_numpy(feed[PIXELS])).numpy()
            except (RuntimeError, ValueError) as error:
                height, width = feed[PIXELS].shape[2:]
                raise SourceFault(
                    f"the model fails on images of {height} x {width} pixels, as its processor "
                    f"makes them ({str(error).splitlines()[0][:200]}); they are not a pair: "
                    "correct preprocessor_config.json."
                ) from error
        return rows

    def pipeline_rows(self) -> Callable[[Sequence[Sample]], Array]:
        """Return what gives the logits of transformers' own pipeline, [files, labels]."""
        processor = load_image_processor(self.folder)

        def answer(files: Sequence[Sample]) -> Array:
            from PIL import Image

            images = []
            for file in files:
                assert isinstance(file, bytes)
                images.append(transformers.image_utils.load_image(Image.open(io.BytesIO(file))))
            pixels = [processor(images=image, return_tensors="np")[PIXELS] for image in images]
            return self.rows({PIXELS: np.concatenate(pixels)})

        return answer


def refuse_other_logits(built: Array, reference: Array) -> None:
    """Refuse a network whose logits are not those of the pipeline. Raises SourceFault."""
    if built.shape == reference.shape and np.allclose(
        built, reference, rtol=TOLERANCE, atol=TOLERANCE
    ):
        return
    difference = np.abs(built - reference).max() if built.shape == reference.shape else np.inf
    raise SourceFault(
        f"the network's logits differ from those of transformers' pipeline by {difference:.2g}; "
        "export the checkpoint to ONNX yourself, and name the file as `source.onnx`."
    )
