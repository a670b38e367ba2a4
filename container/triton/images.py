"""JPEG and PNG files of requests, and what a checkpoint's processor makes of their pixels.

Self-contained, on numpy and Pillow alone: archives of image classifiers carry this file beside each
`model.py` that reads images, and the Python server and the builder import it, so all compute alike.
The steps are those of transformers' image processors on Pillow (`backend="pil"`), and pixels are
read as its `load_image` reads them: turned as EXIF says, then converted to RGB.
Sources: transformers' image_transforms.py and image_utils.py.
"""

from __future__ import annotations

import binascii
import io
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from math import ceil
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_PIXELS = 32_000_000
"""Of one image, by its header, and once it is resized.

Pillow's RGB images take four bytes for each, and a progressive JPEG six more while it is decoded.
"""
MOST_REQUEST_BYTES = 256 << 20
"""Of the pixels of one request, as the network takes them."""
FORMATS = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n"}
"""What a file of each format begins with."""
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's resampling filters, in the order of their numbers."""


class ImageRefused(ValueError):
    """An image that gets no answer; the message stands after the image's name."""


class ImageProcessor:
    """Makes a network's input of images, as the manifest's `image_processor` describes it."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.name: str = description["input"]["name"]
        self.shape: tuple[int, ...] = tuple(description["input"]["shape"][1:])
        """Channels, height and width of a row."""
        self._resize, self._edge = description["resize"], description["shortest_edge"]
        self._filter = FILTERS.index(description["resample"])
        self._crop = description["crop"]
        self._is_bgr = description["channels"] == "bgr"
        self._factor, self._offset = description["rescale_factor"], description["rescale_offset"]
        self._normalizations = [
            tuple(np.array(step[key], np.float32) for key in ("mean", "std"))
            for step in description["normalizations"]
        ]

    @property
    def most_rows(self) -> int:
        """Rows whose pixels fit the memory of one request."""
        return max(1, MOST_REQUEST_BYTES // (4 * int(np.prod(self.shape))))

    def rows(self, files: Sequence[bytes]) -> list[Array]:
        """Return float32 [3, height, width] of each file, decoded one after the other.

        Raises ValueError with the sentence for the client, which names the image.
        """
        if len(files) > self.most_rows:
            raise ValueError(
                f"The request holds {len(files)} images; at most {self.most_rows} of this model's "
                "size are taken at once."
            )
        rows = []
        for index, file in enumerate(files):
            try:
                rows.append(self.row(file))
            except ImageRefused as fault:
                raise ValueError(f"image[{index}] {fault}.") from fault
        return rows

    def row(self, file: bytes) -> Array:
        """Return one file's row. Raises ImageRefused."""
        return self.pixels(decoded_image(file))

    def pixels(self, image: Any) -> Array:
        """Return float32 [3, height, width] of an RGB image of Pillow."""
        size = self._resized(image)
        if size is not None:
            image = image.resize((size[1], size[0]), resample=self._filter)
        pixels: Array = np.asarray(image)
        if self._crop is not None:
            pixels = center_crop(pixels, *self._crop)
        pixels = np.moveaxis(pixels, -1, 0)
        if self._factor is not None:
            pixels = (pixels.astype(np.float64) * self._factor).astype(np.float32)
            if self._offset:
                pixels = pixels + np.float32(self._offset)
        pixels = pixels.astype(np.float32, copy=False)
        for mean, std in self._normalizations:
            pixels = (pixels - mean[:, None, None]) / std[:, None, None]
        if self._is_bgr:
            pixels = pixels[::-1]
        whole: Array = np.ascontiguousarray(pixels, np.float32)
        return whole

    def _resized(self, image: Any) -> tuple[int, int] | None:
        """Return height and width after the resizing; None where there is none."""
        if self._edge is None:
            return None if self._resize is None else (self._resize[0], self._resize[1])
        width, height = image.size
        short, long = sorted((width, height))
        longer = int(self._edge * long / short)
        if longer * self._edge > MOST_PIXELS:
            raise ImageRefused(
                f"has {width} x {height} pixels, and {longer * self._edge} once its shorter side "
                f"has {self._edge}; at most {MOST_PIXELS} are taken: cut it first"
            )
        return (longer, self._edge) if width <= height else (self._edge, longer)


def decoded_image(value: bytes) -> Any:
    """Return a JPEG or PNG file, or base64 of one, as an RGB image of Pillow, the right way up.

    Raises ImageRefused.
    """
    file = file_bytes(value)
    kind = next((name for name, begin in FORMATS.items() if file.startswith(begin)), None)
    if kind is None:
        begins = f"it begins with {value[:12]!r}" if value else "it is empty"
        raise ImageRefused(f"is no JPEG or PNG file, and no base64 of one: {begins}")
    image_module, operations = _pillow()
    try:
        opened = image_module.open(io.BytesIO(file), formats=[kind])
        with opened:
            _refuse_size(*opened.size)
            if kind == "PNG" and getattr(opened, "n_frames", 1) > 1:
                raise ImageRefused("is an animation; send one picture")
            opened.load()
            operations.exif_transpose(opened, in_place=True)
            return opened if opened.mode == "RGB" else opened.convert("RGB")
    except (ImageRefused, MemoryError):
        raise
    except Exception as fault:
        reason = next(iter(str(fault).splitlines()), type(fault).__name__)[:200]
        raise ImageRefused(f"is a {kind} file that cannot be read ({reason})") from fault


@cache
def _pillow() -> tuple[Any, Any]:
    """Import Pillow, with the bounds of this file in place of its own, which only warn at first."""
    from PIL import Image, ImageOps, PngImagePlugin

    Image.MAX_IMAGE_PIXELS = None
    PngImagePlugin.MAX_TEXT_MEMORY = 4 * PngImagePlugin.MAX_TEXT_CHUNK
    # What it warns of, such as damaged metadata, is no fault of a picture.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return Image, ImageOps


def file_bytes(value: bytes) -> bytes:
    """Return what base64, or a data URL of it, stands for; anything else as it is."""
    if value.startswith(tuple(FORMATS.values())):
        return value
    text = value.partition(b",")[2] if value.startswith(b"data:") else value
    try:
        return binascii.a2b_base64(text.translate(None, b" \r\n\t"), strict_mode=True)
    except binascii.Error:
        return value


def center_crop(pixels: Array, height: int, width: int) -> Array:
    """Return the centre of pixels [height, width, channels]; what they lack is 0."""
    rows, columns, channels = pixels.shape
    above, left = (rows - height) // 2, (columns - width) // 2
    if above >= 0 and left >= 0:
        return pixels[above : above + height, left : left + width]
    tall, wide = max(height, rows), max(width, columns)
    top, side = ceil((tall - rows) / 2), ceil((wide - columns) / 2)
    whole: Array = np.zeros((tall, wide, channels), pixels.dtype)
    whole[top : top + rows, side : side + columns] = pixels
    above, left = above + top, left + side
    return whole[max(0, above) : above + height, max(0, left) : left + width]


def _refuse_size(width: int, height: int) -> None:
    if not width or not height:
        raise ImageRefused(f"has {width} x {height} pixels; send a picture that has some")
    if width * height > MOST_PIXELS:
        raise ImageRefused(
            f"has {width} x {height} pixels; at most {MOST_PIXELS} are taken: send it smaller"
        )
