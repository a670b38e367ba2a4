"""TensorRT's calibration cache.

    TRT-101601-EntropyCalibration2
    input_1:0: 3c010a14
    (Unnamed Layer* 8) [Constant]_output: 39137939

One line a tensor, in the network's order: its name, which may hold colons and blanks, then the
bytes of its float32 scale from the highest on, in lower-case hexadecimal. The scale is the range /
127. Every line ends in LF, the last one too. Sources: the caches of NVIDIA's MLPerf submissions
(inference_results_v1.0), Model Optimizer's `import_scales_from_calib_cache`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass

from engine_build.errors import InputRefused, NetworkRefused
from engine_build.request import BuildRequest
from onboarding.names import network_path

CACHE_NAME = "calibration.cache"
HEADER = re.compile(r"TRT-([0-9A-Za-z]+)-([0-9A-Za-z]+)")
ENTRY = re.compile("([^\ufffd]+): ([0-9a-f]{8}|0)")
INFINITE = "7f800000"
ENTROPY = "EntropyCalibration2"
HEADER_FORM = "TRT-<version>-<algorithm>, such as TRT-101601-EntropyCalibration2"
ENTRY_FORM = (
    "<tensor>: <8 lower-case hexadecimal digits of a scale that is not negative, or 0>, such as "
    "input: 3c010a14, each tensor once"
)


@dataclass(frozen=True, kw_only=True)
class CalibrationCache:
    """The result of a calibration."""

    version: str
    """Digits of the TensorRT that wrote it, as `version_digits` gives them."""
    algorithm: str
    scales: dict[str, float]
    """By tensor, in the file's order; a scale is at least 0 and finite."""
    infinite: tuple[str, ...] = ()
    """Tensors whose scale is infinite: they held infinities, or numbers near FP32's end."""


def version_digits(tensorrt: str) -> str:
    """Return a version as a header has it: 101601 for 10.16.1.11, and 8501 for 8.5.1."""
    major, minor, patch = (int(part) for part in tensorrt.split(".")[:3])
    return str(major * (10000 if major >= 10 else 1000) + minor * 100 + patch)


def cache_path(request: BuildRequest) -> str:
    """Return a cache's object key: beside its `int8` network, so that every GPU shares it."""
    return network_path(request.network_keys["int8"], CACHE_NAME)


def parse_cache(data: bytes, source: str) -> CalibrationCache:
    """Return the cache in some bytes; `source` is how messages call them.

    Raises InputRefused, with the line's number.
    """
    header, *lines = data.decode(errors="replace").removesuffix("\n").split("\n")
    title = HEADER.fullmatch(header)
    if title is None:
        raise _fault(source, 1, header, HEADER_FORM)
    scales: dict[str, float] = {}
    for number, line in enumerate(lines, 2):
        entry = ENTRY.fullmatch(line)
        # TensorRT 10.6 writes a scale of 0 as one digit.
        scale = math.nan if entry is None else _scale(entry[2].zfill(8))
        if entry is None or not scale >= 0 or entry[1] in scales:
            raise _fault(source, number, line, ENTRY_FORM)
        scales[entry[1]] = scale
    return CalibrationCache(
        version=title[1],
        algorithm=title[2],
        scales={name: scale for name, scale in scales.items() if scale < math.inf},
        infinite=tuple(name for name, scale in scales.items() if scale == math.inf),
    )


def _scale(digits: str) -> float:
    return float(struct.unpack("!f", bytes.fromhex(digits))[0])


def without_infinite_scales(data: bytes, products: Collection[str]) -> bytes:
    """Return a new cache without tensors whose scale is infinite.

    A layer that reads one of them computes in FP16. `products` are the tensors that convolutions
    and matrix products read, which are what INT8 is for. Raises NetworkRefused for one of those.
    """
    infinite = parse_cache(data, CACHE_NAME).infinite
    if read := [name for name in infinite if name in products]:
        raise NetworkRefused(
            f"tensor {read[0]} has an infinite scale, and a product reads it in INT8: its values "
            "leave FP32's range on the calibration samples; mend the network there, or set "
            "`quantization: explicit`."
        )
    lines = data.split(b"\n")
    return b"\n".join(line for line in lines if not line.endswith(f": {INFINITE}".encode()))


def _fault(source: str, number: int, line: str, allowed: str) -> InputRefused:
    return InputRefused(
        f"calibration cache {source}, line {number}: {line[:120]!r}; allowed: {allowed}; "
        "make the cache anew."
    )
