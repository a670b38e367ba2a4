"""A shared library for 64-bit Linux, read without loading it: its machine, and what it needs.

The formats are those of the System V ABI (ELF header, program headers, dynamic section); numbers of
machines and tags as in elf.h.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

HOST_MACHINE = "x86-64"
"""Of every instance type in onboarding/data, and of NVIDIA's Triton image for SageMaker."""
MACHINES = {3: "x86 (32 bits)", 40: "Arm (32 bits)", 62: HOST_MACHINE, 183: "AArch64"}
TENSORRT_LIBRARY = re.compile(r"libnv(?:infer|infer_plugin|onnxparser)\.so\.(\d+)(?:\.\d+)*")
"""TensorRT's libraries, by the names under which others need them."""
HEADER, PROGRAM, ENTRY = struct.Struct("<16sHHIQQQIHHHHHH"), "<IIQQQQQQ", "<qQ"
SHARED_OBJECT, LOAD, DYNAMIC = 3, 1, 2
END, NEEDED, STRINGS, FLAGS_1 = 0, 1, 5, 0x6FFFFFFB
PIE = 0x08000000
"""In FLAGS_1: a program, which `dlopen` refuses."""
LONGEST_NAME = 4096


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
    try:
        machine, needed = _facts(data)
        return SharedLibrary(sha256=digest, machine=machine, needed=needed)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError("is an ELF file that is damaged or cut short") from error


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
    _, kind, machine, _, _, offset, _, _, _, size, count, *_ = HEADER.unpack_from(data)
    if data[4:6] != b"\x02\x01" or kind != SHARED_OBJECT:
        raise ValueError("is an ELF file, and no shared library (.so)")
    rows = [struct.unpack_from(PROGRAM, data, offset + index * size) for index in range(count)]
    segments = [(row[3], row[2], row[5]) for row in rows if row[0] == LOAD]
    tables = [data[row[2] : row[2] + row[5]] for row in rows if row[0] == DYNAMIC]
    if not tables:
        raise ValueError("is an ELF file, and no shared library (.so)")
    entries = _entries(tables[0])
    if any(tag == FLAGS_1 and value & PIE for tag, value in entries):
        raise ValueError("is a program, and no shared library (.so)")
    strings = next((_place(segments, value) for tag, value in entries if tag == STRINGS), 0)
    names = (_string(data, strings + value) for tag, value in entries if tag == NEEDED)
    return _machine(machine), tuple(names)


def _entries(table: bytes) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for tag, value in struct.iter_unpack(ENTRY, table[: len(table) // 16 * 16]):
        if tag == END:
            break
        entries.append((tag, value))
    return entries


def _place(segments: list[tuple[int, int, int]], address: int) -> int:
    """Return where in the file an address lies. Raises IndexError."""
    for begin, offset, size in segments:
        if begin <= address < begin + size:
            return offset + address - begin
    raise IndexError(address)


def _string(data: bytes, begin: int) -> str:
    end = data.find(b"\0", begin, begin + LONGEST_NAME)
    if end < 0:
        raise IndexError(begin)
    return data[begin:end].decode("ascii", "replace")


def _machine(number: int) -> str:
    return MACHINES.get(number, f"machine {number} of elf.h")
