"""The Lambda function that signs checkpoints; nothing else writes `checkpoints/`.

Its code is signing.py and this file. A checkpoint may have hundreds of gigabytes, so no file of it
is read here: S3 compared each with its sha256 when the build wrote it, keeps that, and copies the
file within the bucket. The signed record lies beside the prefix, `checkpoints/KEY.json`: a server
gets every object of the prefix, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from botocore.exceptions import ClientError

from engine_build.signing import (
    ABSENT,
    COPIES_AT_ONCE,
    Publisher,
    Refused,
    Unfinished,
    answer,
    base64_text,
    candidate_of,
    canonical_json,
    statement,
)

CHECKPOINT_RECORD = "checkpoint.json"
FILES = "checkpoint"
"""The folder of a candidate that holds the checkpoint's files."""
LONGEST_COPY_SECONDS = 450
"""Of one file, half of the function's time: none is begun later. S3 documents no rate of a copy;
one of 5 GB takes so long at 11 MB/s."""
LARGEST_COPY_BYTES = 5 * 1000**3
"""Of one PUT and of one CopyObject (Amazon S3 User Guide: 5 GB); S3 keeps no sha256 of parts."""


def handler(event: Mapping[str, str], context: object) -> dict[str, str]:
    """Return `{"status": "signed"}`, or `{"status": "refused", "reason": …}`."""
    return answer(CheckpointSigner, event, context)


class CheckpointSigner(Publisher):
    """The signer of checkpoints."""

    def publish(self, event: Mapping[str, str], folder: Path) -> None:
        """Publish files and, last, the signed record. What is there already is kept.

        Of a checkpoint that its gate refused the record alone. Raises Refused, and Unfinished where
        files are left for the next call.
        """
        key, source = candidate_of(event)
        published, path = f"checkpoints/{key}", folder / CHECKPOINT_RECORD
        present = self._present(published, event, folder / "present")
        if not self.download(f"{source}/{CHECKPOINT_RECORD}", path):
            if present is not None:
                return
            raise Refused(
                f"{self.url(source)}: the build left no {CHECKPOINT_RECORD}; are all files of the "
                "tree saved and readable by the build?"
            )
        content = path.read_bytes()
        record = self._record(content, event, f"{source}/{CHECKPOINT_RECORD}")
        if present is not None and present["files_sha256"] != record["files_sha256"]:
            self._require_files(present, published)
            return
        if record["accepted"]:
            self._copy_all(record["files"], f"{source}/{FILES}", published)
        parameters = {"model": record["model"], "checkpointKey": key, "scheme": record["scheme"]}
        subject = CHECKPOINT_RECORD, content
        payload = statement(subject, event, self.builder, parameters, built="checkpoint")
        signature = {**self.envelope(payload)["signatures"][0], "statement": payload.decode()}
        path.write_bytes(canonical_json({**record, "signature": signature}))
        self.upload(f"{published}.json", path)

    def _present(
        self, published: str, event: Mapping[str, str], path: Path
    ) -> dict[str, Any] | None:
        """Return the record that is there; None where none is. Raises Refused."""
        if not self.download(f"{published}.json", path):
            return None
        record: dict[str, Any] = json.loads(path.read_bytes())
        if (record["checkpoint_key"], record["model"]) != (event["engineKey"], event["model"]):
            raise Refused(
                f"{self.url(published)}.json: is of another model; nothing is overwritten"
            )
        return record

    def _require_files(self, record: Mapping[str, Any], published: str) -> None:
        """Raise Refused where files of the record that is there are gone, and others were built."""
        for file in record["files"] if record["accepted"] else ():
            if self._head(f"{published}/{file['path']}") is None:
                raise Refused(
                    f"{self.url(published)}/{file['path']}: is gone, and the build made other "
                    f"files than {self.url(published)}.json names; delete that record and "
                    f"{self.url(published)}/, then build again"
                )

    def _record(self, content: bytes, event: Mapping[str, str], name: str) -> dict[str, Any]:
        """Return the record of the event's checkpoint, checked. Raises Refused."""
        try:
            record: dict[str, Any] = json.loads(content)
            found = record["checkpoint_key"], record["model"]
            own = record["prefix"], canonical_json(record), type(record["accepted"])
            kinds = {type(record["scheme"]), *(type(file["path"]) for file in record["files"])}
            sizes = {file["path"]: int(file["size_bytes"]) for file in record["files"]}
            lengths = {len(bytes.fromhex(file["sha256"])) for file in record["files"]}
        except (ValueError, KeyError, TypeError, RecursionError) as fault:
            raise Refused(f"{self.url(name)}: is no record of a checkpoint") from fault
        if found != (event["engineKey"], event["model"]):
            raise Refused(
                f"{self.url(name)}: it is of checkpoint {found[0]} of {found[1]}, not "
                f"{event['engineKey']} of {event['model']}"
            )
        expected = f"checkpoints/{found[0]}/", content, bool
        if own != expected or kinds != {str} or lengths != {32} or not _has_own_digest(record):
            raise Refused(f"{self.url(name)}: is no record of a checkpoint as builds write it")
        for path, size in sizes.items():
            if str(PurePosixPath(path)) != path or path.startswith("/") or ".." in path.split("/"):
                raise Refused(f"{self.url(name)}: {path!r} is no path within the checkpoint")
            if size > LARGEST_COPY_BYTES:
                raise Refused(
                    f"{self.url(name)}: {path} has {size} bytes, and S3 copies at most "
                    f"{LARGEST_COPY_BYTES} at once; save the checkpoint in smaller files"
                )
        return record

    def _copy_all(self, files: Sequence[Mapping[str, Any]], source: str, published: str) -> None:
        """Copy files, many at once, beginning none that may outlast the function.

        Raises Refused, and Unfinished where some are left.
        """

        def copy(file: Mapping[str, Any]) -> bool | None:
            is_late = self.seconds_left() < LONGEST_COPY_SECONDS
            return None if is_late else self._copy(file, source, published)

        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            copied = list(pool.map(copy, files))
        if None not in copied:
            return
        if True not in copied:
            raise Refused(
                f"{self.url(source)}: no file of it was copied before the function's time was up; "
                "give the function more time"
            )
        raise Unfinished

    def _copy(self, file: Mapping[str, Any], source: str, published: str) -> bool:
        """Copy one file on the condition that none is there; what is there must be the same.

        Return whether it was copied.
        """
        is_new = False
        origin, name = f"{source}/{file['path']}", f"{published}/{file['path']}"
        found = self._head(origin)
        if found is None:
            if self._head(name) is None:
                raise Refused(f"{self.url(origin)}: is missing, which the record names")
        else:
            self._require(origin, file, found)
            copy = {"Bucket": self.bucket, "Key": origin}
            is_new = self.write_once(
                lambda: self.s3.copy_object(
                    Bucket=self.bucket,
                    Key=name,
                    CopySource=copy,
                    CopySourceIfMatch=found["ETag"],
                    ChecksumAlgorithm="SHA256",
                    TaggingDirective="REPLACE",
                    IfNoneMatch="*",
                )
            )
        there = self._head(name)
        if there is None:
            raise Refused(f"{self.url(origin)}: changed while it was copied; build again")
        self._require(name, file, there)
        return is_new

    def _head(self, name: str) -> dict[str, Any] | None:
        try:
            head: dict[str, Any] = self.s3.head_object(
                Bucket=self.bucket, Key=name, ChecksumMode="ENABLED"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in ABSENT:
                return None
            raise
        return head

    def _require(self, name: str, file: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Raise Refused for another object than the record names, by S3's own sha256 of it."""
        wanted = base64_text(bytes.fromhex(file["sha256"]))
        if found.get("ChecksumSHA256") is None:
            raise Refused(f"{self.url(name)}: S3 has no sha256 of it; upload it with one")
        if (found["ChecksumSHA256"], found["ContentLength"]) != (wanted, file["size_bytes"]):
            own = found["ChecksumSHA256"]
            shown = base64.b64decode(own).hex()[:12] if "-" not in own else own
            raise Refused(
                f"{self.url(name)}: has sha256 {shown}… and {found['ContentLength']} bytes, and "
                f"the record says {file['sha256'][:12]}… and {file['size_bytes']}; nothing is "
                "overwritten: find out which one is right, then delete the other"
            )


def _has_own_digest(record: Mapping[str, Any]) -> bool:
    """Return whether a record's digest is that of its files, each named once.

    A record with the digest of a published one and other files would add those to it.
    """
    lines = {file["path"]: f"{file['sha256']}  {file['path']}\n" for file in record["files"]}
    text = "".join(lines[path] for path in sorted(lines))
    digest: str = hashlib.sha256(text.encode()).hexdigest()
    return len(lines) == len(record["files"]) and digest == record.get("files_sha256")
