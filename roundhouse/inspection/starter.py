"""Datasets that a first model file starts with, until samples of real requests replace them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from onboarding.onnx_header import NetworkTensor
from onboarding.starter_texts import Kind, starter_texts
from roundhouse.inspection.facts import SourceFacts
from roundhouse.inspection.model_file import Datasets

FOLDER = "models/data"
CALIBRATION = f"{FOLDER}/calibration-sentences.txt"
VALIDATION = f"{FOLDER}/validation-sentences.txt"
ROWS = 128
FEWEST_ROWS = 8
LARGEST_BYTES = 4 << 20
"""Of an array file, which lies in git."""
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


def starter_arrays(inputs: Sequence[NetworkTensor]) -> bytes:
    """Return an .npz with rows for every input: noise, and 0 or 1 where numbers may be indices.

    The same inputs give the same bytes.
    """
    import numpy as np

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
    np.savez(content, **arrays)
    return content.getvalue()
