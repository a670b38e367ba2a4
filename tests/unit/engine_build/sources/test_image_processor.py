"""Descriptions of image processors against transformers' own, and the keys that are refused."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import transformers
from PIL import Image

from container.triton.images import ImageProcessor as Processor
from engine_build.errors import SourceFault
from engine_build.sources.image_processor import load_image_processor, read_image_processor
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.pictures import PROCESSOR, picture_files

LOGITS = TensorRecord(name="logits", datatype="FP32", shape=(-1, 3))
CROP = {"height": 30, "width": 26}
CLASSES = {
    "ViT": {},
    "DeiT": {"do_center_crop": True, "crop_size": CROP, "resample": 3},
    "Bit": {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": CROP},
    "CLIP": {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": CROP},
    "ConvNext": {"size": {"shortest_edge": 36}, "crop_pct": 0.875, "resample": 3},
    "EfficientNet": {"rescale_offset": True, "rescale_factor": 1 / 127.5, "include_top": True},
    "MobileNetV1": {"size": {"shortest_edge": 31}, "do_center_crop": True, "crop_size": CROP},
    "MobileNetV2": {"size": {"shortest_edge": 31}, "do_center_crop": True, "crop_size": CROP},
    "MobileViT": {"size": {"shortest_edge": 31}, "do_center_crop": True, "crop_size": CROP},
    "Beit": {"resample": 0},
    "Segformer": {"resample": 1},
    "Siglip": {"do_normalize": False},
    "Pvt": {"image_mean": 0.5, "image_std": 0.25},
}


def processor_folder(tmp_path, name, **changes):
    processor = getattr(transformers, f"{name}ImageProcessorPil")(**(PROCESSOR | changes))
    processor.save_pretrained(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", CLASSES)
def test_pixels_are_those_of_the_processor(name, tmp_path):
    folder = processor_folder(tmp_path, name, **CLASSES[name])
    description = read_image_processor(folder, LOGITS)
    ported, own = Processor(description.model_dump(mode="json")), load_image_processor(folder)
    for file in picture_files(16, seed=3):
        image = transformers.image_utils.load_image(Image.open(io.BytesIO(file)))
        expected = own(images=image, return_tensors="np")["pixel_values"][0]
        assert np.array_equal(ported.row(file), expected)
    assert ported.row(file).shape == tuple(description.input.shape[1:])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"do_pad": True, "pad_size": {"height": 64, "width": 64}}, "do_pad True"),
        ({"do_resize": False}, "do_center_crop False"),
        ({"size": {"shortest_edge": 32}}, "do_center_crop False"),
        ({"size": {"shortest_edge": 32, "longest_edge": 64}}, "size longest_edge 64, shortest"),
        ({"do_rescale": False, "do_normalize": False}, "do_rescale False"),
        ({"image_mean": [0.5, 0.5]}, "image_mean"),
        ({"resample": 9}, "resample 9"),
    ],
)
def test_refuses_a_key_that_servers_cannot_follow(changes, key, tmp_path):
    folder = processor_folder(tmp_path, "ViT", **changes)
    with pytest.raises(SourceFault, match=f"preprocessor_config.json of the source has {key}"):
        read_image_processor(folder, LOGITS)


@pytest.mark.parametrize(
    ("key", "value", "changes"),
    [
        ("size", None, {}),
        ("size", {"height": 100_000, "width": 100_000}, {}),
        ("size", {"height": 32.5, "width": 32}, {}),
        ("size", {"height": -32, "width": 32}, {}),
        ("rescale_factor", None, {}),
        ("rescale_factor", "1/255", {}),
        ("rescale_factor", float("inf"), {}),
        ("image_mean", ["a", "b", "c"], {}),
        ("image_std", [0, 0, 0], {}),
        ("image_std", [float("nan")] * 3, {}),
        ("resample", "bilinear", {}),
        ("crop_pct", 0, {"image_processor_type": "ConvNextImageProcessor"}),
    ],
)
def test_refuses_a_value_that_is_none(key, value, changes, tmp_path):
    folder = processor_folder(tmp_path, "ViT")
    path = folder / "preprocessor_config.json"
    config = json.loads(path.read_text()) | changes | {key: value}
    if changes:
        config["size"] = {"shortest_edge": 32}
    path.write_text(json.dumps(config))
    with pytest.raises(SourceFault, match=f"preprocessor_config.json of the source has {key} "):
        read_image_processor(folder, LOGITS)


def test_refuses_a_processor_of_another_class(tmp_path):
    folder = processor_folder(tmp_path, "Perceiver")
    with pytest.raises(SourceFault, match="image_processor_type PerceiverImageProcessor"):
        read_image_processor(folder, LOGITS)


def test_refuses_a_source_without_a_processor_and_a_broken_one(tmp_path):
    with pytest.raises(SourceFault, match=r"has no preprocessor_config\.json"):
        read_image_processor(tmp_path, LOGITS)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(SourceFault, match="cannot be loaded"):
        read_image_processor(tmp_path, LOGITS)
