"""The health request of a model: the smallest that its archive says it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from container.server.codecs.envelope import DATATYPES
from container.server.codecs.tensors import shortest_sequence, zeros
from container.server.types import BINARY_TYPE
from onboarding.example_row import row_bytes, row_shape
from onboarding.manifest import MANIFEST_NAME, Manifest, TensorRecord
from onboarding.values import NOT_MEASURED

PROBE = b"health"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360606000"
    "0000040001f61738550000000049454e44ae426082"
)
"""A PNG file of one black pixel."""


HealthRequest = tuple[bytes, str]
"""Body and content type of one row."""


def input_tables(archive: Path) -> dict[str, int]:
    """Return the rows of the table of each input that the network looks up, by its name."""
    manifest = _manifest(archive)
    inputs = () if manifest is None else manifest.inputs
    return {record.name: record.table_rows for record in inputs if record.table_rows is not None}


def health_request(archive: Path) -> HealthRequest | None:
    """Return a request of one row; None where nobody said what the model takes.

    A text model gets one word, an image model one black pixel, another zeros. A user's
    preprocessing and an ensemble get their example; without one, and without a manifest of ours or
    measured accuracy, there is none.
    """
    manifest = _manifest(archive)
    if manifest is None or manifest.accuracy == NOT_MEASURED:
        return None
    users = manifest.preprocessing if manifest.ensemble is None else manifest.ensemble
    if users is not None:
        return None if users.example is None else _example_request(manifest.inputs, users.example)
    if manifest.tokenizer_file is not None or manifest.image_processor is not None:
        # A ranker has two inputs of texts.
        count, value = len(manifest.inputs), PROBE if manifest.image_processor is None else PIXEL
        tails = [len(value).to_bytes(4, "little") + value] * count
        return _binary_request(manifest.inputs, [[1, 1]] * count, tails)
    if any(record.datatype not in DATATYPES for record in manifest.inputs):
        return None
    arrays = zeros(manifest.inputs, 1, shortest_sequence(manifest.optimization_profiles))
    shapes, tails = [list(array.shape) for array in arrays], [array.tobytes() for array in arrays]
    return _binary_request(manifest.inputs, shapes, tails)


def _manifest(archive: Path) -> Manifest | None:
    try:
        return Manifest.from_bytes((archive / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError, KeyError):
        return None


def _example_request(records: Sequence[TensorRecord], example: Mapping[str, Any]) -> HealthRequest:
    values = [example[record.name] for record in records]
    shapes = [[1, *row_shape(value)] for value in values]
    pairs = zip(values, records, strict=True)
    return _binary_request(
        records, shapes, [row_bytes(value, record.datatype) for value, record in pairs]
    )


def _binary_request(
    records: Sequence[TensorRecord], shapes: Sequence[list[int]], tails: Sequence[bytes]
) -> HealthRequest:
    inputs = [
        {
            "name": record.name,
            "shape": shape,
            "datatype": record.datatype,
            "parameters": {"binary_data_size": len(tail)},
        }
        for record, shape, tail in zip(records, shapes, tails, strict=True)
    ]
    header = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
    content_type = f"{BINARY_TYPE};json-header-size={len(header)}"
    return b"".join((header, *tails)), content_type
