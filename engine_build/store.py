"""Where networks and engines are kept: an S3 bucket, or a folder of the same layout.

The one place that talks to S3.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from engine_build.errors import InputRefused, PublishFailed

S3_SCHEME = "s3://"
HALF_WRITTEN = ".part-"
"""What the names begin with of files that a folder's store is still writing."""
BUCKET = re.compile(r"[A-Za-z0-9._-]{3,255}")
"""Names of buckets, those of old buckets too (Amazon S3 User Guide, "General purpose bucket naming
rules").
"""
CONFLICT = "ConditionalRequestConflict"
"""Another build's upload of the same object was under way.

S3 asks to try again (PutObject, `If-None-Match`).
"""
CONFLICT_SECONDS = (1, 2, 4, 8)
"""Between the tries."""
ABSENT_OR_PRESENT = ("404", "NoSuchKey", "NotFound", "412", "PreconditionFailed")


class Store(Protocol):
    """Objects by name.

    Every write is whole or not at all; every method raises PublishFailed when the store does not
    answer.
    """

    @property
    def place(self) -> str:
        """What a user calls it."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of an object; None when there is none."""
        ...

    def read(self, name: str) -> bytes | None:
        """An object's bytes; None when there is none."""
        ...

    def download(self, name: str, path: Path) -> bool:
        """Copies an object to a file; False when there is none."""
        ...

    def upload(self, path: Path, name: str, *, only_if_absent: bool = False) -> bool:
        """Writes an object from a file; False when it was there already and `only_if_absent`."""
        ...


def store_at(place: str, *, region: str) -> Store:
    """The store of `s3://bucket`, or else of a folder.

    Raises InputRefused for any other kind of address.
    """
    bucket = place.removeprefix(S3_SCHEME).rstrip("/")
    if place.startswith(S3_SCHEME) and BUCKET.fullmatch(bucket):
        return S3Store(bucket, region=region)
    if "://" in place:
        raise InputRefused(
            f"--publish {place} is no store; allowed: s3://BUCKET, or a folder's path."
        )
    if Path(place).exists() and not Path(place).is_dir():
        raise InputRefused(
            f"--publish {place} is no folder; allowed: s3://BUCKET, or a folder's path."
        )
    return FolderStore(Path(place))


class FolderStore:
    """A folder; objects appear by rename."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    def path(self, name: str) -> Path:
        """Where an object lies, or would."""
        return self._folder / name

    def size(self, name: str) -> int | None:
        """Bytes of a file."""
        path = self._folder / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str) -> bytes | None:
        """A file's bytes."""
        path = self._folder / name
        return path.read_bytes() if path.is_file() else None

    def download(self, name: str, path: Path) -> bool:
        """A copy, or a hard link where the disk allows it.

        Nobody writes to an object once it is there.
        """
        if self.size(name) is None:
            return False
        _link_or_copy(self._folder / name, path)
        return True

    def upload(self, path: Path, name: str, *, only_if_absent: bool = False) -> bool:
        """A rename for the last step, so that a half-written file never has its name."""
        target = self._folder / name
        try:
            return _place(path, target, only_if_absent=only_if_absent)
        except OSError as error:
            sentence = (
                f"{target} cannot be written: {error.strerror}; make room in {self._folder}, or "
                "make it writable."
            )
            raise PublishFailed(sentence) from error


class S3Store:
    """A bucket; boto3 finds the credentials and, in AWS_ENDPOINT_URL, another endpoint."""

    def __init__(
        self,
        bucket: str,
        *,
        region: str,
        client: Any = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bucket = bucket
        self._sleep = sleep
        self._region = region
        self._given = client

    @property
    def place(self) -> str:
        """The bucket as a URI."""
        return f"{S3_SCHEME}{self._bucket}"

    def size(self, name: str) -> int | None:
        """Bytes of an object, by its head."""
        answer = self._answer(name, lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        return None if answer is None else int(answer["ContentLength"])

    def read(self, name: str) -> bytes | None:
        """An object's bytes."""
        data: bytes | None = self._answer(
            name, lambda: self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        )
        return data

    def download(self, name: str, path: Path) -> bool:
        """Streams an object to a file."""
        return self._answer(name, lambda: self._stream(name, path)) is not None

    def upload(self, path: Path, name: str, *, only_if_absent: bool = False) -> bool:
        """One PUT with its sha256.

        The bucket refuses other bytes, and a broken upload leaves nothing.
        """
        if only_if_absent and self.size(name) is not None:
            return False
        condition = {"IfNoneMatch": "*"} if only_if_absent else {}
        return self._answer(name, lambda: self._put(path, name, condition)) is not None

    @property
    def _client(self) -> Any:
        if self._given is None:
            import boto3
            from botocore.config import Config

            patience = Config(
                connect_timeout=10,
                read_timeout=120,
                retries={"max_attempts": 3, "mode": "standard"},
            )
            self._given = boto3.client("s3", region_name=self._region, config=patience)
        return self._given

    def _stream(self, name: str, path: Path) -> Path:
        body = self._client.get_object(Bucket=self._bucket, Key=name)["Body"]
        with path.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        return path

    def _put(
        self,
        path: Path,
        name: str,
        condition: dict[str, str],
        waits: tuple[int, ...] = CONFLICT_SECONDS,
    ) -> Any:
        from botocore.exceptions import ClientError

        checksum = base64.b64encode(bytes.fromhex(sha256_of(path))).decode()
        try:
            with path.open("rb") as file:
                return self._client.put_object(
                    Bucket=self._bucket, Key=name, Body=file, ChecksumSHA256=checksum, **condition
                )
        except ClientError as error:
            if not waits or error.response.get("Error", {}).get("Code") != CONFLICT:
                raise
        self._sleep(waits[0])
        return self._put(path, name, condition, waits[1:])

    def _answer(self, name: str, ask: Callable[[], Any]) -> Any:
        """None when the object is absent, or already there; other refusals are sentences."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return ask()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in ABSENT_OR_PRESENT:
                return None
            message = error.response.get("Error", {}).get("Message", code)
            raise PublishFailed(
                f"{self.place}/{name}: S3 answers {code} ({message}); no engine was published."
            ) from error
        except BotoCoreError as error:
            raise PublishFailed(
                f"{self.place}/{name} cannot be reached ({error}); no engine was published."
            ) from error


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _place(path: Path, target: Path, *, only_if_absent: bool) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary_name = tempfile.mkstemp(dir=target.parent, prefix=HALF_WRITTEN)
    os.close(handle)
    temporary = Path(temporary_name)
    try:
        shutil.copyfile(path, temporary)
        if not only_if_absent:
            temporary.replace(target)
            return True
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _link_or_copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
