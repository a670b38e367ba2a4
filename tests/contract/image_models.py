"""Tiny image classifiers, their exports, and what transformers' pipeline answers.

`python -m tests.contract.image_models FOLDER`, in the builder's environment: for each model a
folder with `model.onnx` and `facts.json`, and beside them `images/` with the files, in the order
of their names.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image

from engine_build.sources.export import export_image_network
from engine_build.sources.image_model import ImageModel
from tests.unit.engine_build.pictures import (
    CLASSES,
    PROCESSOR,
    encoded,
    picture,
    picture_files,
    write_image_checkpoint,
    write_pictures,
)

COUNT = 200
CROPPED = {
    "image_processor_type": "ConvNextImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 32},
    "crop_pct": 0.875,
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vit": ("ViT", PROCESSOR, {}),
    "resnet": ("ResNet", CROPPED, {"problem_type": "multi_label_classification"}),
}
"""Architecture, processor, changes of the configuration."""


def pipeline_answers(folder: Path, files: list[bytes]) -> list[Any]:
    """Return the pipeline's labels and scores, the highest first."""
    pipe = transformers.pipeline("image-classification", str(folder), device="cpu")
    rows = [pipe(Image.open(io.BytesIO(file)), top_k=len(CLASSES)) for file in files]
    return [[[item["label"], item["score"]] for item in row] for row in rows]


def write_model(folder: Path, name: str, files: list[bytes]) -> None:
    """Write the export of one model and its facts."""
    architecture, processor, changes = MODELS[name]
    checkpoint = write_image_checkpoint(
        folder / "checkpoint", architecture, processor=processor, **changes
    )
    network = export_image_network(ImageModel(checkpoint), files[:20], folder)
    assert network.image_processor is not None
    facts = {
        "task": "image-classification",
        "labels": network.labels,
        "activation": network.facts["activation"],
        "inputs": [record.model_dump(mode="json") for record in network.inputs],
        "outputs": [record.model_dump(mode="json") for record in network.outputs],
        "image_processor": network.image_processor.model_dump(mode="json"),
        "expected": pipeline_answers(checkpoint, files),
    }
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    root = Path(sys.argv[1])
    pictures = [
        *picture_files(COUNT - 2),
        encoded(picture(7, size=(1600, 1200)), "JPEG", quality=90),
        encoded(picture(8, size=(1, 40))),
    ]
    write_pictures(root / "images", pictures)
    for model in MODELS:
        (root / model).mkdir(parents=True)
        write_model(root / model, model, pictures)
