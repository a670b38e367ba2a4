"""Requests of image files: binary, base64, plain JSON, and a file as the whole body."""

from __future__ import annotations

import json

import numpy as np
import pytest

from container.server.codecs.images import decode_request
from container.server.types import RequestFault, Signature, UnsupportedEncoding
from container.wire import array_request
from tests.unit.container.signatures import record

FILES = (b"\x89PNG\r\n\x1a\n one", b"\xff\xd8\xff two")
SIGNATURE = Signature(
    form="images",
    model="pictures",
    task="image-classification",
    inputs=(record("image", "BYTES", 1),),
    outputs=tuple(
        record(name, datatype, 2)
        for name, datatype in (("logits", "FP32"), ("labels", "BYTES"), ("scores", "FP32"))
    ),
    labels=("cat", "dog"),
    activation="softmax",
)
JSON = "application/json"


def plain(**document):
    return json.dumps(document).encode(), JSON


@pytest.mark.parametrize("content_type", ["image/jpeg", "image/png; q=1", "IMAGE/PNG"])
def test_body_may_be_one_file(content_type):
    request = decode_request(FILES[0], content_type, SIGNATURE)
    assert (tuple(request.rows), request.dialect) == (FILES[:1], "plain")


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (*plain(inputs=[1]), "list of base64 of images or a list of one tensor named 'image'"),
        (*plain(inputs=[{"name": "pixels"}]), "the model takes 'image'"),
        (*array_request({"image": np.zeros(1)}, binary=False), "it must be 'BYTES'"),
        (
            *plain(inputs=[{"name": "image", "datatype": "BYTES", "shape": [2, 2], "data": []}]),
            r"it must be \[images, 1\]",
        ),
        (
            *plain(inputs=[{"name": "image", "datatype": "BYTES", "shape": [2], "data": ["a"]}]),
            "but 1 images",
        ),
        (
            *plain(inputs=[{"name": "image", "datatype": "BYTES", "shape": [1], "data": [7]}]),
            "a number where base64 text belongs",
        ),
    ],
)
def test_refuses_what_holds_no_images(body, content_type, words):
    with pytest.raises(RequestFault, match=words):
        decode_request(body, content_type, SIGNATURE)


def test_refuses_files_of_another_content_type():
    with pytest.raises(UnsupportedEncoding, match="image/gif"):
        decode_request(b"GIF89a", "image/gif", SIGNATURE)
