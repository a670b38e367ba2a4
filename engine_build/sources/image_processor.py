"""A checkpoint's image processor as a description that servers can follow.

The reference is transformers' processor on Pillow (`backend="pil"`): servers decode with Pillow,
and transformers' other kind needs torchvision, whose resizing rounds pixels otherwise. The
description is held against it on images of several shapes, so a processor with a step of its own is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from container.triton.images import FILTERS, MOST_PIXELS
from container.triton.images import ImageProcessor as Processor
from engine_build.errors import SourceFault, one_line
from onboarding.manifest import ImageProcessor, Normalization, TensorRecord

FILES = ("preprocessor_config.json", "processor_config.json")
PIXELS = "pixel_values"
"""The network's input, as transformers names it."""
SHAPES = ((480, 640), (97, 300), (31, 17), (256, 256))
"""Heights and widths of the images that a description is tried on."""
RESIZED_FROM = 384
"""The size from which ConvNeXT's processor resizes without cropping."""
Steps = dict[str, Any]


def read_image_processor(folder: Path, output: TensorRecord) -> ImageProcessor:
    """Return the description of a folder's image processor; `output` is the network's logits.

    Raises SourceFault, which names the key that cannot be followed.
    """
    processor = load_image_processor(folder)
    name = type(processor).__name__.removesuffix("Pil")
    if name not in PORTED:
        raise _refusal("image_processor_type", name, f"{', '.join(PORTED)}")
    steps = _common_steps(processor) | PORTED[name](processor)
    height, width = _row_size(steps)
    _refuse_large(steps)
    record = TensorRecord(name=PIXELS, datatype="FP32", shape=(-1, 3, height, width))
    description = ImageProcessor(**steps, input=record, output=output)
    _refuse_other_pixels(processor, description, name)
    return description


def network_image_processor(
    source: Path, inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord]
) -> ImageProcessor:
    """Return the description for an ONNX file, by the processor beside it. Raises SourceFault."""
    listed = ", ".join(f"{record.name} {list(record.shape)}" for record in (*inputs, *outputs))
    is_one = len(inputs) == len(outputs) == 1 and inputs[0].datatype == "FP32"
    if not is_one or len(inputs[0].shape) != 4 or len(outputs[0].shape) != 2:
        raise SourceFault(
            f"{source.name} has {listed}; an image classifier takes one FP32 input, [batch, 3, "
            "height, width], and gives one output, [batch, labels]: export it so."
        )
    processor = read_image_processor(source.parent, outputs[0])
    if inputs[0].shape[1:] != processor.input.shape[1:]:
        raise SourceFault(
            f"{source.name} takes {list(inputs[0].shape[1:])} a row, but {FILES[0]} beside it "
            f"makes {list(processor.input.shape[1:])}; they are not a pair: put the network's own "
            "processor beside it."
        )
    return processor.model_copy(update={"input": inputs[0]})


def load_image_processor(folder: Path) -> Any:
    """Return transformers' own processor of a folder, on Pillow. Raises SourceFault."""
    import transformers

    transformers.logging.set_verbosity_error()
    if not any((folder / name).is_file() for name in FILES):
        raise SourceFault(
            f"the source has no {FILES[0]}, which says how images become the network's input; save "
            "it with the checkpoint's image processor."
        )
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(
            str(folder), backend="pil", local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise SourceFault(
            f"{FILES[0]} of the source cannot be loaded ({one_line(error)}); save it with an image "
            "processor of transformers."
        ) from error
    if getattr(processor, "backend", None) != "pil":
        raise _refusal("image_processor_type", type(processor).__name__, ", ".join(PORTED))
    return processor


def _common_steps(processor: Any) -> Steps:
    """Return what all processors have alike; sizes are each class's own."""
    if getattr(processor, "do_pad", None):
        raise _refusal("do_pad", True, "false")
    is_cropped = bool(processor.do_center_crop)
    crop = processor.crop_size
    if is_cropped and not (crop is not None and crop.height and crop.width):
        raise _refusal("crop_size", _words(crop), "height and width")
    normalizations = []
    if processor.do_normalize:
        normalizations.append(_normalization(processor.image_mean, processor.image_std))
    if not processor.do_rescale and not normalizations:
        raise _refusal("do_rescale", False, "true, or do_normalize: true")
    return {
        "resample": _resample(processor.resample),
        "crop": (_pixels("crop_size", crop.height), _pixels("crop_size", crop.width))
        if is_cropped
        else None,
        "rescale_factor": _positive("rescale_factor", processor.rescale_factor)
        if processor.do_rescale
        else None,
        "normalizations": tuple(normalizations),
    }


def _plain(processor: Any) -> Steps:
    """Return the size of processors that resize as the common base class does."""
    size = processor.size
    if not processor.do_resize:
        return {}
    if size and size.height and size.width:
        return {"resize": (_pixels("size", size.height), _pixels("size", size.width))}
    if size and size.shortest_edge and not size.longest_edge:
        return {"shortest_edge": _pixels("size", size.shortest_edge)}
    raise _refusal("size", _words(size), "height and width, or shortest_edge alone")


def _convnext(processor: Any) -> Steps:
    """Below 384 pixels a larger image is cropped, from there on it is squeezed."""
    size = processor.size
    if not processor.do_resize or processor.do_center_crop or not (size and size.shortest_edge):
        raise _refusal("size", _words(size), "shortest_edge, and no do_center_crop")
    edge = _pixels("size", size.shortest_edge)
    if edge >= RESIZED_FROM:
        return {"resize": (edge, edge)}
    share = _positive("crop_pct", processor.crop_pct)
    return {"shortest_edge": int(edge / share), "crop": (edge, edge)}


def _efficientnet(processor: Any) -> Steps:
    """Images are divided by the standard deviation once more where `include_top` says so."""
    steps = _plain(processor)
    if processor.rescale_offset:
        steps["rescale_offset"] = -1.0
    normalizations = []
    if processor.do_normalize:
        normalizations.append(_normalization(processor.image_mean, processor.image_std))
    if processor.include_top:
        normalizations.append(_normalization(0.0, processor.image_std))
    return steps | {"normalizations": tuple(normalizations)}


def _mobilevit(processor: Any) -> Steps:
    channels = "bgr" if processor.do_flip_channel_order else "rgb"
    return _plain(processor) | {"channels": channels, "normalizations": ()}


PORTED: dict[str, Callable[[Any], Steps]] = {
    **dict.fromkeys(
        (
            *("BeitImageProcessor", "BitImageProcessor", "CLIPImageProcessor"),
            *("DeiTImageProcessor", "MobileNetV1ImageProcessor", "MobileNetV2ImageProcessor"),
            *("PvtImageProcessor", "SegformerImageProcessor", "SiglipImageProcessor"),
            "ViTImageProcessor",
        ),
        _plain,
    ),
    "ConvNextImageProcessor": _convnext,
    "EfficientNetImageProcessor": _efficientnet,
    "MobileViTImageProcessor": _mobilevit,
}
"""The steps of each class of transformers' image processors, beside those that all have alike."""


def _row_size(steps: Steps) -> tuple[int, int]:
    """Return the height and width that every image gets."""
    size: tuple[int, int] | None = steps["crop"] or steps.get("resize")
    if size is None:
        raise _refusal(
            "do_center_crop", False, "a size that every image gets: height and width, or a crop"
        )
    return size


def _refuse_large(steps: Steps) -> None:
    """Refuse sizes beyond those of images that servers take, before one is made."""
    edge = steps.get("shortest_edge") or 0
    for key, size in (
        ("crop_size", steps["crop"]),
        ("size", steps.get("resize")),
        ("size", (edge, edge)),
    ):
        if size is not None and size[0] * size[1] > MOST_PIXELS:
            raise _refusal(key, f"{size[0]} x {size[1]}", f"at most {MOST_PIXELS} pixels")


def _pixels(key: str, value: Any) -> int:
    """Return a side of an image."""
    if not isinstance(value, int) or value < 1:
        raise _refusal(key, value, "whole numbers of pixels from 1")
    return value


def _positive(key: str, value: Any) -> float:
    if not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise _refusal(key, value, "a number above 0")
    return float(value)


def _normalization(mean: Any, std: Any) -> Normalization:
    means, stds = _by_channel("image_mean", mean), _by_channel("image_std", std)
    if 0 in stds:
        raise _refusal("image_std", std, "numbers other than 0")
    return Normalization(mean=means, std=stds)


def _by_channel(key: str, value: Any) -> tuple[float, float, float]:
    numbers = [value] * 3 if isinstance(value, int | float) else list(value or ())
    if len(numbers) != 3 or not all(
        isinstance(number, int | float) and isfinite(number) for number in numbers
    ):
        raise _refusal(key, value, "one number, or one for each of three channels")
    red, green, blue = map(float, numbers)
    return red, green, blue


def _resample(value: Any) -> str:
    if value is None:
        return FILTERS[2]
    if value not in range(len(FILTERS)):
        raise _refusal("resample", value, f"0 to {len(FILTERS) - 1}")
    return FILTERS[int(value)]


def _refuse_other_pixels(processor: Any, description: ImageProcessor, name: str) -> None:
    """Refuse a description that does not give the processor's own pixels."""
    from PIL import Image

    ported = Processor(description.model_dump(mode="json"))
    numbers = np.random.default_rng(0)
    for height, width in SHAPES:
        image = Image.fromarray(numbers.integers(0, 256, (height, width, 3), np.uint8))
        try:
            own = np.asarray(processor(images=image, return_tensors="np")[PIXELS][0], np.float32)
        except Exception as error:
            raise SourceFault(
                f"the source's {name} fails on an image of {height} x {width} pixels "
                f"({one_line(error)}); correct {FILES[0]}."
            ) from error
        pixels = ported.pixels(image)
        if own.shape != pixels.shape or not np.array_equal(own, pixels):
            raise SourceFault(
                f"the source's {name} has a step that servers do not know: an image of {height} x "
                f"{width} pixels differs; save {FILES[0]} with one of {', '.join(PORTED)}."
            )


def _words(size: Any) -> str:
    known = {key: value for key, value in dict(size or {}).items() if value is not None}
    return ", ".join(f"{key} {value}" for key, value in known.items()) or "nothing"


def _refusal(key: str, value: object, allowed: str) -> SourceFault:
    return SourceFault(
        f"{FILES[0]} of the source has {key} {value}, which servers cannot follow; allowed: "
        f"{allowed}."
    )
