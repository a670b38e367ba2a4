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
from typing import Any

from engine_build.errors import InputRefused, PublishFailed

S3_SCHEME = "s3://"
HALF_WRITTEN = ".part-"
"""What the names begin with of files that a folder's store is still writing."""
BUCKET = re.compile(r"[A-Za-z0-9._-]{3,255}")
"""Amazon S3 User Guide, "General purpose bucket naming rules", those of old buckets too."""
CONFLICT = "ConditionalRequestConflict"
"""Another upload of the object was under way; S3 asks to try again (PutObject, `If-None-Match`)."""
CONFLICT_SECONDS = (1, 2, 4, 8)
"""Between the tries."""
LARGEST_OBJECT_BYTES = 5 * 1000**3
"""Of one PUT (Amazon S3 User Guide, "Uploading objects": 5 GB)."""
ABSENT_OR_PRESENT = ("404", "NoSuchKey", "NotFound", "412", "PreconditionFailed")


def store_at(place: str, *, region: str) -> Store:
    """Return the store of `s3://bucket`, or else of a folder.

    Raises InputRefused for any other kind of address.
    """
    bucket, allowed = place.removeprefix(S3_SCHEME).rstrip("/"), "s3://BUCKET, or a folder's path"
    if place.startswith(S3_SCHEME) and BUCKET.fullmatch(bucket):
        return S3Store(bucket, region=region)
    if "://" in place:
        raise InputRefused(f"--publish {place} is no store; allowed: {allowed}.")
    if Path(place).exists() and not Path(place).is_dir():
        raise InputRefused(f"--publish {place} is no folder; allowed: {allowed}.")
    return FolderStore(Path(place))


class FolderStore:
    """A folder; objects appear by rename, and nobody writes to one that is there.

    Of every store: each write is whole or not at all, and PublishFailed is raised when it does not
    answer. `place` is what a user calls it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = str(folder)

    def path(self, name: str) -> Path:
        """Where an object lies, or would."""
        return self._folder / name

    def size(self, name: str) -> int | None:
        """Bytes of an object; None when there is none."""
        path = self.path(name)
        return path.stat().st_size if path.is_file() else None

    def names(self, prefix: str) -> tuple[str, ...]:
        """Every object's name that begins with a prefix, sorted."""
        paths = (path for path in self._folder.rglob("*") if path.is_file())
        names = (path.relative_to(self._folder).as_posix() for path in paths)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def read(self, name: str) -> bytes | None:
        """An object's bytes; None when there is none."""
        path = self.path(name)
        return path.read_bytes() if path.is_file() else None

    def download(self, name: str, path: Path) -> bool:
        """Give an object to a file, by a hard link or a copy; False when there is none."""
        source = self.path(name)
        if not source.is_file():
            return False
        link_or_copy(source, path)
        return True

    def upload(self, path: Path, name: str, *, only_if_absent: bool = False) -> bool:
        """Write an object from a file; False when it was there already and `only_if_absent`."""
        target = self.path(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=HALF_WRITTEN)
            os.close(handle)
            try:
                shutil.copyfile(path, temporary)
                # The last step is one call, so that a half-written file never has its name.
                if only_if_absent:
                    os.link(temporary, target)
                else:
                    Path(temporary).replace(target)
            except FileExistsError:
                return False
            finally:
                Path(temporary).unlink(missing_ok=True)
        except OSError as error:
            raise PublishFailed(
                f"{target} cannot be written: {error.strerror}; make room in {self.place}, or "
                "make it writable."
            ) from error
        return True


class S3Store:
    """A bucket; boto3 finds the credentials and, in AWS_ENDPOINT_URL, another endpoint.

    Its methods are those of FolderStore.
    """

    def __init__(
        self,
        bucket: str,
        *,
        region: str,
        client: Any = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.place = f"{S3_SCHEME}{bucket}"
        self._bucket = bucket
        self._sleep = sleep
        self._region = region
        self._given = client

    def size(self, name: str) -> int | None:
        answer = self._answer(name, lambda: self._client.head_object(Bucket=self._bucket, Key=name))
        return None if answer is None else int(answer["ContentLength"])

    def names(self, prefix: str) -> tuple[str, ...]:
        fields, found = {"Bucket": self._bucket, "Prefix": prefix}, []
        while True:
            page = self._answer(prefix, lambda: self._client.list_objects_v2(**fields)) or {}
            found += [item["Key"] for item in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                return tuple(sorted(found))
            fields["ContinuationToken"] = page["NextContinuationToken"]

    def read(self, name: str) -> bytes | None:
        data: bytes | None = self._answer(name, lambda: self._body(name).read())
        return data

    def download(self, name: str, path: Path) -> bool:
        def stream() -> Path:
            body = self._body(name)
            with path.open("wb") as file:
                shutil.copyfileobj(body, file, 1 << 20)
            return path

        return self._answer(name, stream) is not None

    def upload(self, path: Path, name: str, *, only_if_absent: bool = False) -> bool:
        """One PUT with its sha256: the bucket takes those bytes, whole, or nothing."""
        if only_if_absent and self.size(name) is not None:
            return False
        condition = {"IfNoneMatch": "*"} if only_if_absent else {}
        return self._answer(name, lambda: self._put(path, name, condition)) is not None

    @property
    def _client(self) -> Any:
        if self._given is None:
            import boto3
            from botocore.config import Config

            config = Config(
                connect_timeout=10,
                read_timeout=120,
                retries={"max_attempts": 3, "mode": "standard"},
            )
            self._given = boto3.client("s3", region_name=self._region, config=config)
        return self._given

    def _body(self, name: str) -> Any:
        return self._client.get_object(Bucket=self._bucket, Key=name)["Body"]

    def _put(self, path: Path, name: str, condition: dict[str, str]) -> Any:
        from botocore.exceptions import ClientError

        checksum = base64.b64encode(bytes.fromhex(sha256_of(path))).decode()
        fields = {"Bucket": self._bucket, "Key": name, "ChecksumSHA256": checksum, **condition}
        waits = iter(CONFLICT_SECONDS)
        while True:
            try:
                with path.open("rb") as file:
                    return self._client.put_object(Body=file, **fields)
            except ClientError as error:
                seconds = next(waits, None)
                if seconds is None or error.response.get("Error", {}).get("Code") != CONFLICT:
                    raise
                self._sleep(seconds)

    def _answer(self, name: str, call: Callable[[], Any]) -> Any:
        """None when the object is absent, or already there; other refusals are sentences."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in ABSENT_OR_PRESENT:
                return None
            message = error.response.get("Error", {}).get("Message", code)
            reason = f": S3 answers {code} ({message})"
        except BotoCoreError as error:
            reason = f" cannot be reached ({error})"
        raise PublishFailed(f"{self.place}/{name}{reason}; no engine was published.")


Store = FolderStore | S3Store


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file that nobody changes another name: a hard link, or a copy on another disk."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
