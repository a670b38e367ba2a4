"""Image files to a network's input: what is read, and what is refused before it is decoded."""

from __future__ import annotations

import base64
import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from container.server.triton.health import PIXEL
from container.triton.images import ImageProcessor, ImageRefused, decoded_image

PLAIN = {
    "resize": None,
    "shortest_edge": None,
    "resample": "bilinear",
    "crop": None,
    "channels": "rgb",
    "rescale_factor": 1 / 255,
    "rescale_offset": 0.0,
    "normalizations": [],
    "input": {"name": "pixel_values", "shape": [-1, 3, 4, 4]},
}


def file_of(image, kind="PNG", **options):
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def noise(width=8, height=6, channels=3):
    numbers = np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(numbers)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *between):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 40))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(between) + pixels + chunk(b"IEND", b"")


def refusal(file):
    with pytest.raises(ImageRefused) as caught:
        decoded_image(file)
    return str(caught.value)


def test_files_base64_and_data_urls_are_one_image():
    file = file_of(noise())
    text = base64.b64encode(file)
    wrapped = b"\n".join(text[begin : begin + 76] for begin in range(0, len(text), 76))
    expected = np.asarray(noise())
    for value in (file, text, wrapped, b"data:image/png;base64," + text):
        assert np.array_equal(np.asarray(decoded_image(value)), expected)


def test_image_is_turned_as_its_orientation_says():
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = decoded_image(file_of(noise(), exif=exif))
    assert turned.size == (6, 8)
    assert np.array_equal(np.asarray(turned), np.rot90(np.asarray(noise()), -1))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (png(10_000, 10_000), "10000 x 10000 pixels; at most 32000000"),
        (png(2**31 - 1, 2**31 - 1), "at most 32000000"),
        (png(4, 4, chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * (4 << 20)))), "cannot be read"),
        (file_of(noise(), "JPEG")[:-30], "JPEG file that cannot be read"),
        (file_of(noise())[:-30], "PNG file that cannot be read"),
        (b"\xff\xd8\xff", "JPEG file that cannot be read"),
        (file_of(noise(), "GIF"), "no JPEG or PNG file"),
        (file_of(noise(), "TIFF"), "no JPEG or PNG file"),
        (b"PK\3\4", "no JPEG or PNG file, and no base64 of one"),
        (b"", "it is empty"),
        (file_of(noise(), save_all=True, append_images=[noise(8, 6).rotate(90)]), "an animation"),
    ],
)
def test_refuses_what_is_no_picture_or_too_large(file, words):
    assert words in refusal(file)


def test_refusal_names_the_image_and_decodes_nothing_large():
    decoded_image(PIXEL)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"image\[1\] has 30000 x 30000 pixels"):
        ImageProcessor(PLAIN).rows([file_of(noise(4, 4)), png(30_000, 30_000)])
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_refuses_images_that_resizing_makes_too_large():
    processor = ImageProcessor(PLAIN | {"shortest_edge": 4000, "crop": [4, 4]})
    with pytest.raises(ValueError, match=r"image\[0\] has 2 x 6000 pixels, and 48000000000 once"):
        processor.rows([file_of(noise(2, 6000))])


def test_refuses_more_images_than_fit_the_memory_of_a_request():
    shape = {"input": {"name": "pixel_values", "shape": [-1, 3, 4000, 4000]}}
    with pytest.raises(ValueError, match="holds 2 images; at most 1 of this model's size"):
        ImageProcessor(PLAIN | shape).rows([b"", b""])
