"""TensorRT's calibration cache, read and written byte for byte.

    TRT-101601-EntropyCalibration2
    input_1:0: 3c010a14
    (Unnamed Layer* 8) [Constant]_output: 39137939

One line a tensor, in the network's order: its name, which may hold colons and blanks, then the
bytes of its float32 scale from
the highest on, in lower-case hexadecimal. The scale is the range / 127. Every line ends in LF, the
last one too. Sources: the
caches of NVIDIA's MLPerf submissions (inference_results_v1.0), Model Optimizer's
`import_scales_from_calib_cache`.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import InputRefused

HEADER = re.compile(r"TRT-([0-9A-Za-z]+)-([0-9A-Za-z]+)")
ENTRY = re.compile(r"(.+): ([0-9a-f]{8})")
ENTROPY = "EntropyCalibration2"
FIRST_FORM = "TRT-<version>-<algorithm>, such as TRT-101601-EntropyCalibration2"
ENTRY_FORM = "<tensor>: <8 lower-case hexadecimal digits>, such as input: 3c010a14"


@dataclass(frozen=True, kw_only=True)
class CalibrationCache:
    """What calibration found."""

    version: str
    """Digits of the TensorRT that wrote it, as `version_digits` gives them."""
    algorithm: str
    entries: tuple[tuple[str, float], ...]
    """(tensor, scale) in the file's order; a scale is at least 0 and finite."""
    ends_in_newline: bool = True
    """False only for files that something else than TensorRT wrote."""

    @property
    def scales(self) -> dict[str, float]:
        """The scale of each tensor."""
        return dict(self.entries)


def version_digits(tensorrt: str) -> str:
    """The version as a header has it: 10.16.1.11 gives 101601, and 8.5.1 gave 8501
    (NV_TENSORRT_VERSION).
    """
    major, minor, patch = (int(part) for part in tensorrt.split(".")[:3])
    return str(
        major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch
    )


def read_cache(path: Path) -> CalibrationCache:
    """The cache of a file. Raises InputRefused, with the line's number."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputRefused(
            f"calibration cache {path} cannot be read ({error.strerror}); name a file that TensorRT wrote."
        ) from error
    return cache_of(data, str(path))


def write_cache(cache: CalibrationCache, path: Path) -> None:
    """Writes a file that TensorRT reads."""
    path.write_bytes(cache_bytes(cache))


def cache_of(data: bytes, place: str) -> CalibrationCache:
    """The cache that some bytes hold; `place` is what the user calls them.

    Raises InputRefused, with the line's number.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputRefused(
            f"calibration cache {place}, line {line}: it is no UTF-8 text; make the cache anew."
        ) from error
    lines = text.removesuffix("\n").split("\n")
    header = HEADER.fullmatch(lines[0])
    if header is None:
        raise _refused(place, 1, lines[0], FIRST_FORM)
    entries = [_entry(place, number, line) for number, line in enumerate(lines[1:], 2)]
    _refuse_repeated(place, [name for name, _ in entries])
    return CalibrationCache(
        version=header[1],
        algorithm=header[2],
        entries=tuple(entries),
        ends_in_newline=text.endswith("\n"),
    )


def cache_bytes(cache: CalibrationCache) -> bytes:
    """A file's bytes; those that `cache_of` read come out the same."""
    lines = [
        f"TRT-{cache.version}-{cache.algorithm}",
        *(f"{name}: {struct.pack('!f', scale).hex()}" for name, scale in cache.entries),
    ]
    return ("\n".join(lines) + ("\n" if cache.ends_in_newline else "")).encode()


def _entry(place: str, number: int, line: str) -> tuple[str, float]:
    entry = ENTRY.fullmatch(line)
    if entry is None:
        raise _refused(place, number, line, ENTRY_FORM)
    scale: float = struct.unpack("!f", bytes.fromhex(entry[2]))[0]
    if not math.isfinite(scale) or math.copysign(1, scale) < 0:
        raise _refused(
            place, number, line, f"a scale that is finite and not negative, and this one is {scale}"
        )
    return entry[1], scale


def _refuse_repeated(place: str, names: list[str]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(names, 2):
        if name in seen:
            raise InputRefused(
                f"calibration cache {place}, line {number}: tensor {name!r} has a line already; delete one."
            )
        seen.add(name)


def _refused(place: str, number: int, line: str, allowed: str) -> InputRefused:
    return InputRefused(
        f"calibration cache {place}, line {number}: {line[:120]!r}; allowed: {allowed}; make the cache anew."
    )
