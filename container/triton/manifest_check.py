"""Checks an engine archive's manifest inside Triton, before anything of the archive is loaded.

Self-contained: archives carry this file beside each `model.py`, and Triton's python backend runs it
with no other code of this repository. `manifest.json` lies beside the model folders: both SageMaker
modes of Triton leave it alone there.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MANIFEST_NAME = "manifest.json"
ENVELOPE_NAME = "manifest.dsse.json"
"""The manifest's signature; the image checks it, since code of an archive cannot vouch for it."""
PIN = "ROUNDHOUSE_MANIFEST_SHA256"
SIGNERS, CHECKED = "ROUNDHOUSE_SIGNERS", "ROUNDHOUSE_SIGNATURES_CHECKED"
"""The endpoint's trusted keys, and what an image sets that has checked every archive for them."""
FIELDS = (
    *("task", "files", "runtime", "compute_capability", "engine_file", "tokenizer_file", "inputs"),
    *("outputs", "optimization_profiles", "max_batch_size", "warm_up"),
)
OPTIONAL = (
    *("auto_truncate", "prompts", "labels", "activation", "image_processor"),
    *("preprocessing", "postprocessing", "ensemble"),
)
TENSORRT = "tensorrt"
CUDA = "libcuda.so.1"
MAJOR, MINOR = 75, 76
"""CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, cuda.h."""
LISTED_TEXTS = 5
"""Texts that a refusal names one by one."""


class Refused(Exception):
    """This server must not run the archive; the message is the whole sentence."""


def refuse_misread_tensors(tensor: Any) -> None:
    """Refuse a Python backend that misreads tensors under this NumPy.

    `tensor` is its class Tensor. Before Triton 24.11 it reads the first element in place of each if
    NumPy is 2 or newer (python_backend, pull request 384). Raises Refused.
    """
    import numpy as np

    sent: Any = np.arange(3, dtype=np.uint8)
    read = tensor.from_dlpack("read", tensor("sent", sent)).as_numpy()
    if read.tolist() != sent.tolist():
        raise Refused(
            f"Refused: this Triton's python backend misreads tensors under NumPy {np.__version__}; "
            "serve with Triton 24.11 or newer, or install NumPy 1.26."
        )


def verified_manifest(archive: Path) -> dict[str, Any]:
    """Return the manifest of an archive in which every file has the digest that it names.

    Raises Refused.
    """
    manifest = read_manifest(archive, os.environ.get(PIN) or None)
    refuse_unchecked_files(archive, manifest["files"])
    return manifest


def read_manifest(archive: Path, expected: str | None) -> dict[str, Any]:
    """Return the manifest of an archive, its own files unchecked; in an ensemble that of the step.

    `expected` is the sha256 that the deployment pins, `None` when it pins none. Raises Refused.
    """
    path = archive / MANIFEST_NAME
    if not path.is_file():
        raise Refused(
            f"Refused: {MANIFEST_NAME} is missing beside the model; "
            "only archives that roundhouse built are served."
        )
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if expected is not None and digest != expected:
        raise Refused(
            f"Refused: {MANIFEST_NAME} has sha256 {digest}, but the deployment pins {expected}; "
            "deploy the archive the lock names."
        )
    manifest = _fields(MANIFEST_NAME, data)
    step = own_step()
    if step not in manifest.get("ensemble", {}).get("steps", {}):
        return manifest
    return step_manifest(archive, manifest, step)


def step_manifest(archive: Path, manifest: Mapping[str, Any], step: str) -> dict[str, Any]:
    """Return the manifest of a model of an ensemble, as published but for `files`. Raises Refused.

    `manifest` is the ensemble's own; its files are the archive's.
    """
    name = manifest["ensemble"]["steps"][step]["manifest"]
    published = (archive / name).read_bytes() if (archive / name).is_file() else b""
    digest, wanted = hashlib.sha256(published).hexdigest(), manifest["files"].get(name)
    if digest != wanted:
        raise Refused(
            f"Refused: {name} has sha256 {digest}, but {MANIFEST_NAME} says {wanted}; publish the "
            "archive again."
        )
    return _fields(name, published) | {"files": manifest["files"]}


def own_step(file: str = __file__) -> str:
    """Return the model of an ensemble in whose folder this file lies, such as MODEL_tokenizer/1.

    No model's name holds an underscore.
    """
    return Path(file).resolve().parents[1].name.partition("_")[0]


def _fields(name: str, data: bytes) -> dict[str, Any]:
    """Return what servers read of a manifest. Raises Refused."""
    try:
        manifest = json.loads(data)
        fields = {field: manifest[field] for field in FIELDS}
    except (ValueError, KeyError, TypeError) as fault:
        raise Refused(
            f"Refused: {name} cannot be read ({fault!r}); build the engine again."
        ) from fault
    return fields | {field: manifest[field] for field in OPTIONAL if field in manifest}


def refuse_foreign_device(manifest: Mapping[str, Any]) -> None:
    """Refuse a TensorRT plan of another TensorRT version or compute capability."""
    if manifest["runtime"]["name"] != TENSORRT:
        return
    wanted = manifest["runtime"]["version"]
    version = running_tensorrt(wanted)
    capability = running_compute_capability()
    refuse_foreign_runtime(manifest, TENSORRT, wanted if version is None else version, capability)


def refuse_foreign_runtime(
    manifest: Mapping[str, Any], name: str, version: str, capability: str | None
) -> None:
    """Refuse an engine that was made for another runtime version or compute capability.

    A `capability` of `None` is not known, and not compared. Raises Refused.
    """
    made = (manifest["runtime"].get("name"), manifest["runtime"].get("version"))
    if made != (name, version):
        raise Refused(
            f"Refused: the engine was made for {made[0]} {made[1]}, this server runs {name} "
            f"{version}; build it for this platform."
        )
    wanted = manifest["compute_capability"]
    if capability is not None and wanted != capability:
        raise Refused(
            f"Refused: the engine was made for compute capability {wanted}, this server runs "
            f"{capability}; build it for this target."
        )


def refuse_unchecked_files(archive: Path, files: Mapping[str, str]) -> None:
    """Refuse an archive whose files are not those of its manifest, or not signed where they must.

    What the image has checked is not read again. Raises Refused.
    """
    if not os.environ.get(SIGNERS):
        refuse_changed_files(archive, files)
    elif not os.environ.get(CHECKED):
        raise Refused(
            "Refused: this endpoint takes engines of trusted signers only, and its image checks no "
            "signatures; push the images of this version."
        )


def refuse_changed_files(archive: Path, files: Mapping[str, str]) -> None:
    """Refuse an archive whose files are not exactly those of its manifest. Raises Refused."""
    paths = (
        path for path in archive.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    present = {path.relative_to(archive).as_posix() for path in paths} - {
        MANIFEST_NAME,
        ENVELOPE_NAME,
    }
    again = "publish the archive again."
    for name in sorted(set(files) - present):
        sentence = f"{name} is named in {MANIFEST_NAME} but is not in the archive"
        raise Refused(f"Refused: {sentence}; {again}")
    for name in sorted(present - set(files)):
        sentence = f"{name} is in the archive but not named in {MANIFEST_NAME}"
        raise Refused(f"Refused: {sentence}; {again}")
    for name, expected in sorted(files.items()):
        with (archive / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected:
            sentence = f"{name} has sha256 {digest}, but {MANIFEST_NAME} says {expected}"
            raise Refused(f"Refused: {sentence}; {again}")


def running_tensorrt(wanted: str, load: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """Return the version of the TensorRT library that Triton loads; `None` where none answers.

    It is as precise as `wanted`. `getInferLibVersion` has no build number, so the fourth part of a
    version is taken from `wanted`: TensorRT itself refuses a plan of another build.
    """
    parts = wanted.split(".")
    try:
        number = int(load(f"libnvinfer.so.{parts[0]}").getInferLibVersion())
    except (OSError, AttributeError):
        return None
    version = (number // 10000, number // 100 % 100, number % 100)
    return ".".join([*map(str, version[: len(parts)]), *parts[3:]])


def running_compute_capability(load: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """Return the first GPU's compute capability, as its driver says; `None` without a driver."""
    try:
        driver = load(CUDA)
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for number, attribute in ((major, MAJOR), (minor, MINOR)):
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return f"{major.value}.{minor.value}"


def longest_sequence(manifest: Mapping[str, Any]) -> int | None:
    """Return the most tokens of a row; `None` when no optimization profile has a sequence axis."""
    return max((sizes[2] for sizes in _sequences(manifest)), default=None)


def sequence_buckets(manifest: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the lengths that rows are padded to: each profile's, and powers of two between them.

    Triton batches only rows of one length, and a CUDA graph has one length, so there are few.
    """
    ends = {size for sizes in _sequences(manifest) for size in sizes}
    if not ends:
        return ()
    between = {1 << power for power in range(31) if min(ends) < 1 << power < max(ends)}
    return tuple(sorted(ends | between))


def warm_up_sizes(manifest: Mapping[str, Any]) -> tuple[tuple[int, int | None], ...]:
    """Return (batch, sequence) of every profile's minimum, optimum and maximum, each once.

    There are none when the model file turns warm-up off.
    """
    if not manifest["warm_up"]:
        return ()
    sizes: dict[tuple[int, int | None], None] = {}
    for profile in manifest["optimization_profiles"]:
        for place in range(3):
            batch = min(profile["batch"][place], manifest["max_batch_size"])
            sizes[(batch, profile["sequence"][place] if profile["sequence"] else None)] = None
    return tuple(sizes)


def prompt_prefix(parameters: str, prompts: Mapping[str, Any] | None) -> str:
    """Return what is put before a request's texts: its parameter `prompt_name`, or the default.

    `parameters` is JSON, as Triton's python backend gives it. Raises ValueError with the sentence
    for the client; the Python server says the same.
    """
    texts = {} if prompts is None else prompts["texts"]
    name = json.loads(parameters).get("prompt_name") if parameters else None
    if name is None:
        name = None if prompts is None else prompts["default_prompt_name"]
        return "" if name is None else str(texts[name])
    if not isinstance(name, str):
        raise ValueError(f'"prompt_name" is {name!r}; it must be a string.')
    if name not in texts:
        names = "no prompts" if prompts is None else ", ".join(map(repr, sorted(texts)))
        raise ValueError(f"Unknown prompt {name!r:.60}; the model has {names}.")
    return str(texts[name])


def over_long_texts(lengths: Sequence[int], longest: int | None) -> str | None:
    """Return the refusal of texts of more than `longest` tokens; `None` where there is none.

    `lengths` are the texts' tokens, special tokens included. The Python server says the same.
    """
    if longest is None:
        return None
    longer = [
        f"text[{place}] has {length}" for place, length in enumerate(lengths) if length > longest
    ]
    if not longer:
        return None
    rest = len(longer) - LISTED_TEXTS
    more = f" and {rest} more are too long" if rest > 0 else ""
    return (
        f"The request holds text of more than the {longest} tokens that the model takes, special "
        f"tokens included: {', '.join(longer[:LISTED_TEXTS])}{more}; "
        "shorten or split what is longer."
    )


def _sequences(manifest: Mapping[str, Any]) -> list[Sequence[int]]:
    """Return (min, opt, max) of the sequence axis of each profile that has one."""
    profiles = manifest["optimization_profiles"]
    return [profile["sequence"] for profile in profiles if profile.get("sequence")]
