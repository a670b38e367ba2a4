"""Rows of image models: decoded off the event loop, and bounded by the memory of their pixels."""

from __future__ import annotations

import pytest

from container.server.data_plane.plane import INLINE_CHARACTERS
from container.server.engines.heads import ImageEncoder
from container.server.types import RequestFault
from container.triton.images import MOST_REQUEST_BYTES
from container.triton_front.probe import PIXEL
from onboarding.manifest import ImageProcessor, TensorRecord

pytestmark = pytest.mark.unit


def encoder_of(side):
    pixels = TensorRecord(name="pixel_values", datatype="FP32", shape=(-1, 3, side, side))
    logits = TensorRecord(name="logits", datatype="FP32", shape=(-1, 2))
    return ImageEncoder(
        ImageProcessor(resize=(side, side), rescale_factor=1.0, input=pixels, output=logits)
    )


def test_files_become_rows_of_one_array():
    encoder = encoder_of(8)
    ((row,),) = encoder.encode([PIXEL]).rows
    assert row.shape == (3, 8, 8) and row.shape == encoder.probe()[0][0].shape


def test_no_file_is_decoded_on_the_event_loop():
    assert encoder_of(1).cost([b""]) > INLINE_CHARACTERS


def test_rows_are_bounded_by_the_memory_of_their_pixels():
    assert encoder_of(224).most_rows == MOST_REQUEST_BYTES // (4 * 3 * 224 * 224) == 445


def test_refuses_a_file_by_its_place():
    with pytest.raises(RequestFault, match=r"image\[1\] is no JPEG or PNG file"):
        encoder_of(8).encode([PIXEL, b"GIF89a"])
