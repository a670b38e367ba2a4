"""Pictures in every mode and orientation, and tiny checkpoints that classify them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

CLASSES = ("cat", "dog", "eel")
SIDE = 32
ORIENTATION = 0x0112
MODES = ("RGB", "L", "P", "RGBA", "LA", "1", "I;16", "CMYK")
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": SIDE, "width": SIDE},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def picture(seed: int, *, size: tuple[int, int] | None = None) -> Image.Image:
    """Return an RGB picture of coarse blocks, so that resizing it leaves differences."""
    numbers = np.random.default_rng(seed)
    width, height = map(int, numbers.integers(20, 90, 2)) if size is None else size
    blocks = numbers.integers(0, 256, (5, 7, 3), np.uint8)
    return Image.fromarray(blocks).resize((width, height), resample=3)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return a picture's file."""
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def picture_file(seed: int) -> bytes:
    """Return one JPEG or PNG; modes and orientations take turns."""
    mode, image = MODES[seed % len(MODES)], picture(seed)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 200)
    elif mode != "RGB":
        image = image.convert(mode)
    is_jpeg = mode in ("RGB", "L", "CMYK") and (mode == "CMYK" or seed % 3 > 0)
    exif = Image.Exif()
    exif[ORIENTATION] = 1 + seed // 3 % 8
    if is_jpeg:
        return encoded(image, "JPEG", exif=exif, progressive=seed % 2 == 1)
    return encoded(image, "PNG", exif=exif)


def picture_files(count: int, *, seed: int = 0) -> list[bytes]:
    """Return as many different files."""
    return [picture_file(1000 * seed + index) for index in range(count)]


def write_pictures(folder: Path, files: Sequence[bytes]) -> Path:
    """Write a dataset of pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, file in enumerate(files):
        ending = "png" if file.startswith(b"\x89") else "jpg"
        (folder / f"{index:04}.{ending}").write_bytes(file)
    return folder


def _configuration(architecture: str, **changes: Any) -> Any:
    sizes: dict[str, dict[str, Any]] = {
        "ViT": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "image_size": SIDE,
            "patch_size": 8,
        },
        "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    }
    labels = dict(enumerate(CLASSES))
    names = {"id2label": labels, "label2id": {name: index for index, name in labels.items()}}
    return getattr(transformers, f"{architecture}Config")(**(sizes[architecture] | names | changes))


def write_image_checkpoint(
    folder: Path,
    architecture: str = "ViT",
    *,
    processor: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write a classifier with random weights whose answers differ by picture."""
    torch.manual_seed(0)
    name = f"{architecture}ForImageClassification"
    model = getattr(transformers, name)(_configuration(architecture, **changes)).eval()
    _spread_classes(model)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(str(folder))
    settings = PROCESSOR if processor is None else processor
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def _spread_classes(model: Any) -> None:
    """Make each class as likely as another: random weights would choose one for all pictures."""
    sizes = {"size": (SIDE, SIDE)}
    pixels = np.stack([np.asarray(picture(seed, **sizes)) for seed in range(24)])
    feed = torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32) / 64 - 2)
    heads = [
        layer
        for name, layer in model.named_modules()
        if "classifier" in name and isinstance(layer, torch.nn.Linear)
    ]
    with torch.no_grad():
        logits = model(pixel_values=feed).logits
        for head in heads:
            scale = 2 / logits.std(dim=0)
            head.weight.mul_(scale[:, None])
            head.bias.copy_((head.bias - logits.mean(dim=0)) * scale)
