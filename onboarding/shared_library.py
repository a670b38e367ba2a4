"""A shared library for 64-bit Linux, read without loading it: its machine, and what it needs.

Numbers of machines are those of elf.h.
"""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

HOST_MACHINE = "x86-64"
"""Of every instance type in onboarding/data, and of NVIDIA's Triton image for SageMaker."""
MACHINES = {3: "x86 (32 bits)", 40: "Arm (32 bits)", 62: HOST_MACHINE, 183: "AArch64"}
TENSORRT_LIBRARY = re.compile(r"libnv(?:infer|infer_plugin|onnxparser)\.so\.(\d+)(?:\.\d+)*")
"""TensorRT's libraries, by the names under which others need them."""
PIE = 0x08000000
"""In FLAGS_1: a program, which `dlopen` refuses."""


@dataclass(frozen=True, kw_only=True)
class SharedLibrary:
    """What a library says of itself."""

    sha256: str
    machine: str
    needed: tuple[str, ...]
    """Names of the libraries that are loaded with it (DT_NEEDED)."""

    @property
    def tensorrt_majors(self) -> frozenset[int]:
        """The major versions of TensorRT that it is linked with."""
        known = map(TENSORRT_LIBRARY.fullmatch, self.needed)
        return frozenset(int(match[1]) for match in known if match is not None)


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Why a library cannot be loaded where an engine runs."""

    what: str
    value: str
    allowed: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.what} ({self.value}); allowed: {self.allowed}; {self.way_out}"


def read_shared_library(path: Path) -> SharedLibrary:
    """Return what a library says of itself. Raises ValueError, in words, and OSError."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if data[:4] != b"\x7fELF":
        raise ValueError("is no ELF file")
    if data[4:6] == b"\x01\x01" and len(data) > 20:  # 32 bits
        number = int.from_bytes(data[18:20], "little")
        return SharedLibrary(sha256=digest, machine=_machine(number), needed=())
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError

    try:
        machine, needed = _facts(data)
    except (ELFError, ConstructError, LookupError, TypeError, OverflowError) as error:
        raise ValueError("is an ELF file that is damaged or cut short") from error
    return SharedLibrary(sha256=digest, machine=machine, needed=needed)


def tensorrt_misfit(library: SharedLibrary, tensorrt: str) -> Misfit | None:
    """Return why a library is none for this TensorRT, such as 10.16.1.11; None where it fits."""
    if library.machine != HOST_MACHINE:
        return Misfit(
            what="is for another processor than the GPU instances have",
            value=library.machine,
            allowed=HOST_MACHINE,
            way_out=f"compile it for {HOST_MACHINE}",
        )
    major = int(tensorrt.split(".")[0])
    if library.tensorrt_majors == {major}:
        return None
    linked = sorted(filter(TENSORRT_LIBRARY.fullmatch, library.needed))
    return Misfit(
        what="is linked with another TensorRT than the platform's"
        if linked
        else "is linked with no library of TensorRT, so nothing says which one it is for",
        value=", ".join(linked or library.needed) or "no library",
        allowed=f"libnvinfer.so.{major}, of TensorRT {tensorrt}",
        way_out=f"compile it with the headers of TensorRT {major} and link it with -lnvinfer",
    )


def _facts(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the machine, and the libraries needed."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    file = ELFFile(io.BytesIO(data))
    if file.elfclass != 64 or not file.little_endian or file.header.e_type != "ET_DYN":
        raise ValueError("is an ELF file, and no shared library (.so)")
    segments = (item for item in file.iter_segments() if isinstance(item, DynamicSegment))
    dynamic = next(segments, None)
    if dynamic is None:
        raise ValueError("is an ELF file, and no shared library (.so)")
    tags = list(dynamic.iter_tags())
    if any(tag.entry.d_tag == "DT_FLAGS_1" and tag.entry.d_val & PIE for tag in tags):
        raise ValueError("is a program, and no shared library (.so)")
    names = tuple(str(vars(tag)["needed"]) for tag in tags if tag.entry.d_tag == "DT_NEEDED")
    return _machine(int.from_bytes(data[18:20], "little")), names


def _machine(number: int) -> str:
    return MACHINES.get(number, f"machine {number} of elf.h")
