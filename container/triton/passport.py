"""The passport of an engine archive, as a model inside Triton reads it: verified before anything of
the archive is loaded.

Self-contained: this file is copied into the engine archive beside each `model.py`, and Triton's
stub runs it with no other
code of this repository. `manifest.json` lies beside the model folders: both of Triton's SageMaker
modes leave it alone there.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

MANIFEST_NAME = "manifest.json"
PIN = "ROUNDHOUSE_MANIFEST_SHA256"
FIELDS = (
    *(
        "task",
        "files",
        "runtime",
        "compute_capability",
        "engine_file",
        "tokenizer_file",
        "inputs",
        "outputs",
    ),
    *("optimization_profiles", "max_batch_size", "warm_up"),
)
CUDA = "libcuda.so.1"
MAJOR, MINOR = 75, 76
"""CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, cuda.h."""


class Refused(Exception):
    """The archive is not this server's to run; the message is the whole sentence."""


def verified_manifest(archive: Path) -> dict[str, Any]:
    """The manifest of an archive whose every byte is the one it names. Raises Refused."""
    manifest = read_manifest(archive, os.environ.get(PIN) or None)
    refuse_changed_files(archive, manifest["files"])
    return manifest


def read_manifest(archive: Path, expected: str | None) -> dict[str, Any]:
    """The passport of the archive; `expected` is the sha256 that the deployment pinned, `None` when
    it pinned none.
    """
    path = archive / MANIFEST_NAME
    if not path.is_file():
        raise Refused(
            f"Refused: {MANIFEST_NAME} is missing beside the model; only archives that roundhouse built are served."
        )
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        pinned = f"the deployment pins {expected}"
        raise Refused(
            f"Refused: {MANIFEST_NAME} has sha256 {found}, but {pinned}; deploy the archive the lock names."
        )
    try:
        manifest = json.loads(data)
        return {field: manifest[field] for field in FIELDS}
    except (ValueError, KeyError, TypeError) as fault:
        raise Refused(
            f"Refused: {MANIFEST_NAME} cannot be read ({fault!r}); build the engine again."
        ) from fault


def refuse_foreign_runtime(
    manifest: Mapping[str, Any], name: str, version: str, capability: str | None
) -> None:
    """An engine runs in exactly the runtime and on the kind of device it was made and measured for;
    `None` is not known.
    """
    made = (manifest["runtime"].get("name"), manifest["runtime"].get("version"))
    if made != (name, version):
        here = f"this server runs {name} {version}"
        raise Refused(
            f"Refused: the engine was made for {made[0]} {made[1]}, {here}; build it for this platform."
        )
    wanted = manifest["compute_capability"]
    if capability is not None and wanted != capability:
        here = f"this server runs {capability}"
        raise Refused(
            f"Refused: the engine was made for compute capability {wanted}, {here}; build it for this target."
        )


def refuse_changed_files(archive: Path, files: Mapping[str, str]) -> None:
    """Every file of the archive is in the manifest with its digest, and every file of the manifest
    is there.
    """
    found_files = (
        path for path in archive.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    present = {path.relative_to(archive).as_posix() for path in found_files} - {MANIFEST_NAME}
    missing, unknown = sorted(set(files) - present), sorted(present - set(files))
    if missing:
        raise Refused(
            f"Refused: {missing[0]} is named in {MANIFEST_NAME} but is not in the archive; publish the archive again."
        )
    if unknown:
        raise Refused(
            f"Refused: {unknown[0]} is in the archive but not named in {MANIFEST_NAME}; publish the archive again."
        )
    for name, digest in sorted(files.items()):
        found = _sha256(archive / name)
        if found != digest:
            raise Refused(
                f"Refused: {name} has sha256 {found}, but {MANIFEST_NAME} says {digest}; publish the archive again."
            )


def running_tensorrt(wanted: str, load: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """The version of the TensorRT library that Triton's backend loads, as precise as `wanted`; None
    where it cannot be asked.

    `getInferLibVersion` has no build number, so the last part of a four-part version is taken as it
    is wanted: TensorRT itself
    refuses a plan of another version.
    """
    parts = wanted.split(".")
    try:
        number = int(load(f"libnvinfer.so.{parts[0]}").getInferLibVersion())
    except (OSError, AttributeError):
        return None
    found = (number // 10000, number // 100 % 100, number % 100)
    return ".".join([*map(str, found[: len(parts)]), *parts[3:]])


def running_compute_capability(load: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """Of the first GPU, from the driver; None where there is none to ask."""
    try:
        driver = load(CUDA)
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for place, attribute in ((major, MAJOR), (minor, MINOR)):
        if driver.cuDeviceGetAttribute(ctypes.byref(place), attribute, device):
            return None
    return f"{major.value}.{minor.value}"


def longest_sequence(manifest: Mapping[str, Any]) -> int | None:
    """Most tokens a row may have, from the optimization profiles; `None` when none has a sequence
    axis.
    """
    return max((sizes[2] for sizes in _sequences(manifest)), default=None)


def sequence_buckets(manifest: Mapping[str, Any]) -> tuple[int, ...]:
    """The lengths that rows are padded to before a plan: each profile's sizes, and the powers of
    two between them.

    A server's batcher puts only rows of one length together, and a CUDA graph fits only one, so
    there must be few.
    """
    ends = {size for sizes in _sequences(manifest) for size in sizes}
    if not ends:
        return ()
    return tuple(
        sorted(ends | {1 << power for power in range(31) if min(ends) < 1 << power < max(ends)})
    )


def warm_up_sizes(manifest: Mapping[str, Any]) -> tuple[tuple[int, int | None], ...]:
    """(batch, sequence) of every profile's smallest, likeliest and largest sizes, each once; none
    when the spec wants none.
    """
    if not manifest["warm_up"]:
        return ()
    sizes: dict[tuple[int, int | None], None] = {}
    for profile in manifest["optimization_profiles"]:
        for place in range(3):
            batch = min(profile["batch"][place], manifest["max_batch_size"])
            sizes[(batch, profile["sequence"][place] if profile["sequence"] else None)] = None
    return tuple(sizes)


def _sequences(manifest: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    return (
        profile["sequence"]
        for profile in manifest["optimization_profiles"]
        if profile.get("sequence")
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
