"""Datasets that a first model file starts with, until samples of real requests replace them."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onboarding.dataset import SIGNATURES
from onboarding.onnx_header import NetworkTensor
from onboarding.starter_texts import Kind, starter_texts
from onboarding.values import IMAGES
from roundhouse.inspection.facts import SourceFacts
from roundhouse.inspection.model_file import Datasets

FOLDER = "models/data"
CALIBRATION = f"{FOLDER}/calibration-sentences.txt"
VALIDATION = f"{FOLDER}/validation-sentences.txt"
ROWS = 128
FEWEST_ROWS = 8
LARGEST_BYTES = 4 << 20
"""Of an array file, which lies in git."""
BLOCKS, BLOCK = 8, 32
"""Of a starter's picture: blocks a side, and pixels of each."""
SEQUENCE = 16
"""Size of a dynamic axis 1 in a starter's arrays."""
KINDS = {
    "FP32": "float32",
    "FP16": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "UINT8": "uint8",
    "BOOL": "bool",
}


def starter_datasets(
    name: str, facts: SourceFacts, tree: Path
) -> tuple[Datasets, Mapping[str, bytes]]:
    """Return the datasets of a first file, and the content of those that the tree lacks."""
    if facts.task == "tensors":
        file = f"{FOLDER}/{name}-validation.npz"
        missing = {} if (tree / file).is_file() else {file: starter_arrays(facts.inputs)}
        return Datasets(validation=file), missing
    if facts.task == IMAGES:
        folder = f"{FOLDER}/{name}-validation"
        return Datasets(validation=folder), (
            {} if (tree / folder).is_dir() else dict(starter_images(folder))
        )
    if facts.task == "text-ranking":
        return _pair_datasets(name, facts, tree)
    kinds: dict[str, Kind] = {VALIDATION: "validation"}
    if not facts.is_quantized:
        kinds[CALIBRATION] = "calibration"
    missing = {
        file: starter_texts(kind).encode()
        for file, kind in kinds.items()
        if not (tree / file).is_file()
    }
    calibration = None if facts.is_quantized else CALIBRATION
    return Datasets(validation=VALIDATION, calibration=calibration), missing


def _pair_datasets(
    name: str, facts: SourceFacts, tree: Path
) -> tuple[Datasets, Mapping[str, bytes]]:
    """Return datasets of queries and texts: each starter text before the next one."""
    validation, calibration = (
        f"{FOLDER}/{name}-{kind}.tsv" for kind in ("validation", "calibration")
    )
    files: dict[str, Kind] = {validation: "validation"}
    if not facts.is_quantized:
        files[calibration] = "calibration"
    missing = {}
    for file, kind in files.items():
        texts = starter_texts(kind).splitlines()
        pairs = zip(texts, [*texts[1:], texts[0]], strict=True)
        if not (tree / file).is_file():
            missing[file] = "".join(f"{query}\t{text}\n" for query, text in pairs).encode()
    return Datasets(
        validation=validation, calibration=None if facts.is_quantized else calibration
    ), missing


def starter_images(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of PNG files of coloured blocks, which judge no engine."""
    numbers = random.Random(0)
    for index in range(ROWS):
        rows = [numbers.randbytes(3 * BLOCKS) for _ in range(BLOCKS)]
        wide = [b"".join(row[3 * x : 3 * x + 3] * BLOCK for x in range(BLOCKS)) for row in rows]
        lines = b"".join((b"\0" + line) * BLOCK for line in wide)
        size = struct.pack(">IIBBBBB", BLOCKS * BLOCK, BLOCKS * BLOCK, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", size), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
        chunks = b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in parts
        )
        yield f"{folder}/{index:03}.png", SIGNATURES[1] + chunks


def starter_arrays(inputs: Sequence[NetworkTensor]) -> bytes:
    """Return an .npz with rows for every input: noise, and 0 or 1 where numbers may be indices.

    The same inputs give the same bytes.
    """
    import numpy as np

    from engine_build.datasets.dataset import save_arrays

    shapes = {
        tensor.name: tuple(SEQUENCE if size < 0 else size for size in (tensor.shape or ())[1:])
        for tensor in inputs
    }
    row = sum(4 * int(np.prod(shape)) for shape in shapes.values())
    rows = max(FEWEST_ROWS, min(ROWS, LARGEST_BYTES // max(row, 1)))
    random, arrays = np.random.default_rng(0), {}
    for tensor in inputs:
        size, kind = (rows, *shapes[tensor.name]), KINDS[tensor.datatype]
        if kind.startswith("float"):
            arrays[tensor.name] = random.standard_normal(size, dtype="float32").astype(kind)
        else:
            most = 256 if kind == "uint8" else 2
            arrays[tensor.name] = random.integers(0, most, size).astype(kind)
    content = io.BytesIO()
    save_arrays(content, arrays)
    return content.getvalue()
