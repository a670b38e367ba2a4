"""The health request of a model: the smallest that its archive says it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from container.server.triton.kserve_request import SIZES
from container.server.types import BINARY_TYPE
from onboarding.example_row import row_bytes, row_shape
from onboarding.manifest import MANIFEST_NAME, EnsembleRecord, Manifest, TensorRecord
from onboarding.values import NOT_MEASURED

PROBE = "health"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360606000"
    "0000040001f61738550000000049454e44ae426082"
)
"""A PNG file of one black pixel."""


class HealthRequest(NamedTuple):
    """Body and content type of one row."""

    body: bytes
    content_type: str
    is_guess: bool = False
    """Whether a user's own code or model reads it, of which nobody said what it takes."""


def input_tables(archive: Path) -> dict[str, int]:
    """Return the rows of the table of each input that the network looks up, by its name."""
    manifest = _manifest(archive)
    inputs = () if manifest is None else manifest.inputs
    return {record.name: record.table_rows for record in inputs if record.table_rows is not None}


def health_request(archive: Path) -> HealthRequest | None:
    """Return a request of one row; None without a manifest of ours.

    A text model gets one word, an image model one black pixel, another zeros; a user's
    preprocessing its example. Its own inputs without one, and other inputs of bytes, can be
    anything, so there is none.
    """
    manifest = _manifest(archive)
    if manifest is None:
        return None
    if manifest.ensemble is not None:
        return _ensemble_request(manifest, manifest.ensemble)
    before = manifest.preprocessing
    if before is not None and before.example is not None:
        return _example_request(before.inputs, before.example)
    if before is not None and before.inputs != before.outputs:
        return None
    if manifest.tokenizer_file is not None:
        # A ranker has two inputs of texts.
        count, text = len(manifest.inputs), PROBE.encode()
        shapes, tails = [[1, 1]] * count, [len(text).to_bytes(4, "little") + text] * count
    elif manifest.image_processor is not None:
        shapes, tails = [[1, 1]], [len(PIXEL).to_bytes(4, "little") + PIXEL]
    elif any(record.datatype not in SIZES for record in manifest.inputs):
        return None
    else:
        shortest = _shortest(manifest)
        shapes = [_row_shape(record, shortest) for record in manifest.inputs]
        tails = [
            bytes(math.prod(shape) * SIZES[record.datatype])
            for record, shape in zip(manifest.inputs, shapes, strict=True)
        ]
    request = _binary_request(manifest.inputs, shapes, tails)
    return request._replace(is_guess=before is not None or manifest.accuracy == NOT_MEASURED)


def _manifest(archive: Path) -> Manifest | None:
    try:
        return Manifest.from_bytes((archive / MANIFEST_NAME).read_bytes())
    except (OSError, ValueError, KeyError):
        return None


def _ensemble_request(manifest: Manifest, ensemble: EnsembleRecord) -> HealthRequest:
    """Return its example, or a word, a black pixel or zeros; a guess, since the steps read it."""
    if ensemble.example is not None:
        return _example_request(manifest.inputs, ensemble.example)
    shapes = [_row_shape(record, None) for record in manifest.inputs]
    tails = []
    for record, shape in zip(manifest.inputs, shapes, strict=True):
        text = PIXEL if record.name in ensemble.images else PROBE.encode()
        value = len(text).to_bytes(4, "little") + text
        size = SIZES.get(record.datatype)
        tails.append(math.prod(shape) * (value if size is None else bytes(size)))
    return _binary_request(manifest.inputs, shapes, tails)._replace(is_guess=True)


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
    return HealthRequest(b"".join((header, *tails)), content_type)


def _row_shape(record: TensorRecord, shortest: int | None) -> list[int]:
    """Return the shape of one row; a dynamic second axis is the sequence's, another has size 1."""
    unknown = (1, 1 if shortest is None else shortest, *(1 for _ in record.shape[2:]))
    return [
        1 if axis == 0 else default if size == -1 else size
        for axis, (size, default) in enumerate(zip(record.shape, unknown, strict=False))
    ]


def _shortest(manifest: Manifest) -> int | None:
    """Return the fewest elements of the sequence axis; None where no profile has one."""
    profiles = manifest.optimization_profiles
    return min((profile.sequence[0] for profile in profiles if profile.sequence), default=None)
