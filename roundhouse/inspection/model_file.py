"""The text of a first model file, every choice explained, and the datasets it starts with."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from yaml import YAMLError

from onboarding.dataset import SIGNATURES, Kind, starter_texts
from onboarding.onnx_header import NetworkTensor
from onboarding.rules.task_rules import METRICS
from onboarding.values import IMAGES
from onboarding.yaml_text import load_yaml
from roundhouse.inspection.facts import SourceFacts

LONGEST_TOKENS = 512
"""Of a first file: engines of more tokens cost memory that few requests need."""
COMMENT_COLUMN = 33
PIN_COMMENTS = {
    "python_package": "exact version: the same sources, always",
    "huggingface": "full commit: the same sources, always",
    "path": "folder of the checkpoint inside the source",
    "sha256": "of these bytes: a replaced file is refused",
}
PRECISION = "int8 if faster and within the budget, else fp16 (CPU: fp32)"
METRIC_COMMENTS = {
    "cosine": "each answer against the source model's own",
    "agreement": "the source model's label; or another metric of docs/engines.md",
}
BUDGETS = {"cosine": "{mean: 0.99, worst: 0.95}"}
CALIBRATION = """\
  calibration:                   # texts like those that will be asked; they set the INT8 ranges
    dataset: {dataset}
    samples: 256
    method: max                  # or percentile, entropy; transformers need the widest ranges
"""


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """The datasets of a first file; no calibration: INT8 is not tried."""

    validation: str
    calibration: str | None = None


def model_file_text(
    name: str,
    pins: Mapping[str, str],
    facts: SourceFacts,
    datasets: Datasets,
    *,
    endpoint: str,
    schema: str,
) -> str:
    """Return the YAML of a model; `endpoint` is its last section, whole."""
    task = next(task for task in METRICS if task == facts.task)
    metric = facts.metric or METRICS[task][0]
    calibration = (
        "" if datasets.calibration is None else CALIBRATION.format(dataset=datasets.calibration)
    )
    lines = [
        f"# yaml-language-server: $schema={schema}",
        f"name: {name}",
        commented(f"task: {facts.task}", facts.because),
        "source:",
        *_source_lines(pins, facts),
        "engine:",
        commented("  precision: auto", PRECISION),
        "  optimization_profiles:",
        *_profile_lines(facts),
    ]
    accuracy = [
        commented("accuracy:", "judged on samples that calibration never saw"),
        f"  dataset: {datasets.validation}",
        commented(f"  metric: {metric}", METRIC_COMMENTS.get(metric, "")),
        f"  budget: {BUDGETS.get(metric, '{mean: 0.99}')}",
    ]
    serving = [
        "serving:",
        commented(
            "  dynamic_batching: {max_queue_delay_us: 100}", "how long a request waits for a batch"
        ),
    ]
    head = "\n".join(lines)
    return f"{head}\n{calibration}" + "\n".join((*accuracy, *serving)) + f"\n{endpoint}"


def _source_lines(pins: Mapping[str, str], facts: SourceFacts) -> Iterator[str]:
    for key, value in pins.items():
        yield commented(f"  {key}: {as_yaml(value)}", PIN_COMMENTS.get(key, ""))
    if facts.pooling is not None:
        pooling = facts.pooling
        yield commented(
            f"  pooling: {{mode: {pooling.mode}, normalize: {str(pooling.normalize).lower()}}}",
            "how the vectors of tokens become one",
        )
    if facts.is_quantized:
        yield "  # holds Q/DQ nodes: it is quantized already, and kept as it is"


def _profile_lines(facts: SourceFacts) -> Iterator[str]:
    yield commented("    - batch: [1, 8, 32]", "min, opt, max rows of a request")
    if not facts.has_sequence:
        return
    longest = LONGEST_TOKENS if facts.longest is None else facts.longest
    most = min(longest, LONGEST_TOKENS)
    limit = (
        facts.longest_because
        if facts.longest is None
        else f"the source takes {facts.longest} ({facts.longest_because})"
    )
    sizes = f"[{min(16, most)}, {min(128, most)}, {most}]"
    yield commented(f"      sequence: {sizes}", f"min, opt, max of a row; {limit}")


def commented(text: str, comment: str) -> str:
    """Return a line of YAML with a comment behind it."""
    # A text of the source's own files must not end the comment.
    shown = "".join(character if character.isprintable() else " " for character in comment)
    return f"{text:<{COMMENT_COLUMN - 2}}  # {' '.join(shown.split())}" if comment else text


def as_yaml(text: str) -> str:
    """Return a value as YAML reads it back: plain where that will do, else in quotes."""
    try:
        plain = load_yaml(f"{text}  # a comment") == text
    except (YAMLError, ValueError):
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


FOLDER = "models/data"
CALIBRATION_TEXTS = f"{FOLDER}/calibration-sentences.txt"
VALIDATION_TEXTS = f"{FOLDER}/validation-sentences.txt"
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
    kinds: dict[str, Kind] = {VALIDATION_TEXTS: "validation"}
    if not facts.is_quantized:
        kinds[CALIBRATION_TEXTS] = "calibration"
    missing = {
        file: starter_texts(kind).encode()
        for file, kind in kinds.items()
        if not (tree / file).is_file()
    }
    calibration = None if facts.is_quantized else CALIBRATION_TEXTS
    return Datasets(validation=VALIDATION_TEXTS, calibration=calibration), missing


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
