"""The Lambda function that signs engines and publishes them: nothing else writes `engines/`.

Its whole code is this file, deployed as text in the builds stack. What a build left under
`candidates/` is data to it, and no line of the build's source runs here. So it imports the standard
library and botocore only, both of which Lambda's Python brings; the forms of statement and envelope
are those of `onboarding.signature`.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import botocore.session
from botocore.exceptions import ClientError

MANIFEST, ENVELOPE, ARCHIVE = "manifest.json", "manifest.dsse.json", "model.tar.gz"
RECORD, CARDS = "lock-entry.json", ("card.html", "card.json")
REPACKAGED = "repackaged.json"
KEY = re.compile(r"[0-9a-f]{20}")
CANDIDATE = re.compile(r"[0-9a-z-]{1,64}")
COMMIT = re.compile(r"[0-9a-f]{40}")
SOURCE = re.compile(r"[^/]+/sources/([0-9a-f]{64})\.zip")
PAYLOAD_TYPE = "application/vnd.in-toto+json"
CONFLICT_SECONDS = (1, 2, 4, 8)
"""Between tries of a write that met another of the same object."""
ABSENT, PRESENT = "NoSuchKey", "PreconditionFailed"
CONFLICT = "ConditionalRequestConflict"


class Refused(Exception):
    """The engine is not published; the message is one sentence."""


@dataclass(frozen=True)
class Archive:
    """An archive on this machine's disk, every file of which its manifest names."""

    path: Path
    manifest: bytes
    envelope: bytes | None
    repackaged: Mapping[str, Any] | None
    """Where the plan came from; None where it was compiled for this archive."""

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the archive."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def handler(event: Mapping[str, str], context: object) -> dict[str, str]:
    """Return `{"status": "signed"}`, or `{"status": "refused", "reason": …}`.

    `event` holds engineKey, model, candidate, source (bucket/key), commit and execution.
    """
    session = botocore.session.get_session()
    signer = Signer(
        bucket=os.environ["BUCKET"],
        signing_key=os.environ["SIGNING_KEY"],
        builder=os.environ["BUILDER"],
        s3=session.create_client("s3"),
        kms=session.create_client("kms"),
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            signer.publish(event, Path(folder))
    except Refused as refusal:
        return {"status": "refused", "reason": str(refusal)}
    return {"status": "signed"}


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A bucket, a key to sign with, and the ARN of the state machine whose builds it signs."""

    bucket: str
    signing_key: str
    builder: str
    s3: Any
    kms: Any
    sleep: Callable[[float], None] = time.sleep

    def publish(self, event: Mapping[str, str], folder: Path) -> None:
        """Publish archive, cards and, last, the record. What is there already is kept.

        Raises Refused.
        """
        key, candidate = event["engineKey"], event["candidate"]
        if not KEY.fullmatch(key) or not CANDIDATE.fullmatch(candidate):
            raise Refused(f"{key!r} and {candidate!r} are no engine key and candidate of a build")
        source, published = f"candidates/{key}/{candidate}", f"engines/{key}"
        built = self._archive(f"{source}/{ARCHIVE}", event, folder / "built")
        present = None
        if built is not None:
            if built.envelope is not None:
                raise Refused(f"{self._url(source)}: the build packed {ENVELOPE} itself")
            signed = self._signed(built, event, folder / "signed")
            if self._put(f"{published}/{ARCHIVE}", signed.path):
                present = signed
        if present is None:
            present = self._archive(f"{published}/{ARCHIVE}", event, folder / "present")
        if present is None:
            raise Refused(
                f"{self._url(source)}: the build left no archive; are all files of the tree saved "
                "and readable by the build?"
            )
        if present.envelope is None:
            raise Refused(
                f"{self._url(published)}: the engine that is there is not signed, and nothing is "
                "overwritten; delete it, then build again"
            )
        if built is not None and built.manifest == present.manifest:
            self._publish_cards(source, published, built, present, folder)
        self._publish_record(present, published, folder)

    def _archive(self, name: str, event: Mapping[str, str], path: Path) -> Archive | None:
        """Return an archive of the event's engine, checked; None when it is not there."""
        if not self._download(name, path):
            return None
        try:
            archive = read_archive(path)
            manifest = json.loads(archive.manifest)
            found = manifest["engine_key"], manifest["model"]
        except (ValueError, KeyError, TypeError) as fault:
            raise Refused(f"{self._url(name)}: {fault or 'it has no manifest'}") from fault
        if found != (event["engineKey"], event["model"]):
            raise Refused(
                f"{self._url(name)}: it holds engine {found[0]} of {found[1]}, not "
                f"{event['engineKey']} of {event['model']}"
            )
        return archive

    def _signed(self, archive: Archive, event: Mapping[str, str], path: Path) -> Archive:
        """Write the archive with its envelope, packed as builds pack."""
        payload = statement(archive.manifest, event, self.builder)
        message = b"DSSEv1 %d %s %d " % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload))
        signature = self.kms.sign(
            KeyId=self.signing_key,
            Message=hashlib.sha256(message + payload).digest(),
            MessageType="DIGEST",
            SigningAlgorithm="ECDSA_SHA_256",
        )["Signature"]
        public_key = self.kms.get_public_key(KeyId=self.signing_key)["PublicKey"]
        keyid, sig = hashlib.sha256(public_key).hexdigest(), _base64(signature)
        document = {"payload": _base64(payload), "payloadType": PAYLOAD_TYPE}
        envelope = _canonical_json({**document, "signatures": [{"keyid": keyid, "sig": sig}]})
        pack(archive.path, envelope, path)
        return dataclasses.replace(archive, path=path, envelope=envelope)

    def _publish_cards(
        self, source: str, published: str, built: Archive, present: Archive, folder: Path
    ) -> None:
        """Publish the build's cards, which name the archive's digest before it was signed."""
        for name in CARDS:
            path = folder / name
            if self._download(f"{source}/{name}", path):
                digests = built.sha256.encode(), present.sha256.encode()
                path.write_bytes(path.read_bytes().replace(*digests))
                self._put(f"{published}/{name}", path)

    def _publish_record(self, archive: Archive, published: str, folder: Path) -> None:
        """Publish the record; refuse one that is there and of another archive."""
        record, name = folder / RECORD, f"{published}/{RECORD}"
        data = _record(archive, f"{published}/{ARCHIVE}")
        record.write_bytes(data)
        if self._put(name, record):
            return
        self._download(name, record)
        if json.loads(record.read_bytes()) != json.loads(data):
            where = f"{self._url(published)}: its {RECORD} is of another archive"
            raise Refused(f"{where}, and nothing is overwritten; delete both, then build again")

    def _download(self, name: str, path: Path) -> bool:
        try:
            body = self.s3.get_object(Bucket=self.bucket, Key=name)["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] == ABSENT:
                return False
            raise
        with path.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        return True

    def _put(self, name: str, path: Path) -> bool:
        """Write an object that is not there yet; False when it is, which is kept."""
        with path.open("rb") as file:
            checksum = _base64(hashlib.file_digest(file, "sha256").digest())
        for seconds in (*CONFLICT_SECONDS, None):
            try:
                with path.open("rb") as file:
                    fields = {"Bucket": self.bucket, "Key": name, "ChecksumSHA256": checksum}
                    self.s3.put_object(Body=file, IfNoneMatch="*", **fields)
                return True
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == PRESENT:
                    return False
                if code != CONFLICT or seconds is None:
                    raise
                self.sleep(seconds)
        return False

    def _url(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"


def read_archive(path: Path) -> Archive:
    """Read an archive to its end and compare every file with the manifest.

    Raises ValueError: damaged, a file that the manifest does not name, another file's bytes, a name
    that leads out of the archive, or names that are not sorted.
    """
    digests: dict[str, str] = {}
    own: dict[str, bytes] = {}
    try:
        for member, stream in _members(path):
            if member.name in (MANIFEST, ENVELOPE):
                own[member.name] = stream.read()
                continue
            digests[member.name] = hashlib.file_digest(stream, "sha256").hexdigest()
            if member.name.endswith(f"/{REPACKAGED}"):
                stream.seek(0)
                own[REPACKAGED] = stream.read()
        files = json.loads(own[MANIFEST])["files"]
        repackaged = json.loads(own.get(REPACKAGED, b"null"))
    except (tarfile.TarError, EOFError, OSError, zlib.error) as fault:
        raise ValueError(f"it cannot be unpacked ({fault})") from fault
    except (KeyError, TypeError) as fault:
        raise ValueError(f"it has no {MANIFEST} that names its files") from fault
    for name in sorted(digests.keys() | files.keys()):
        if digests.get(name) != files.get(name):
            raise ValueError(f"{name} is not the file that its manifest names")
    return Archive(path, own[MANIFEST], own.get(ENVELOPE), repackaged)


def pack(archive: Path, envelope: bytes, path: Path) -> None:
    """Write an archive with its envelope: names sorted, without times, owners or modes."""
    is_written = False
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member, stream in _members(archive):
            if member.name > ENVELOPE and not is_written:
                _add(tar, ENVELOPE, len(envelope), io.BytesIO(envelope))
                is_written = True
            _add(tar, member.name, member.size, stream)


def statement(manifest: bytes, event: Mapping[str, str], builder: str) -> bytes:
    """Return the payload: the in-toto statement that the state machine built this manifest.

    What the build ran from is what the machine was started with, not what the build says.
    """
    source, commit = SOURCE.fullmatch(event["source"]), event["commit"]
    dependencies: list[dict[str, Any]] = [{"uri": f"s3://{event['source']}"}]
    if source is not None:
        dependencies[0]["digest"] = {"sha256": source[1]}
    if COMMIT.fullmatch(commit):
        dependencies.append({"name": "commit", "digest": {"gitCommit": commit}})
    fields, digest = json.loads(manifest), hashlib.sha256(manifest).hexdigest()
    names = (("model", "model"), ("engineKey", "engine_key"), ("precision", "requested_precision"))
    parameters = {name: fields[key] for name, key in names}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return _canonical_json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "predicateType": "https://slsa.dev/provenance/v1",
            "subject": [{"name": MANIFEST, "digest": {"sha256": digest}}],
            "predicate": {
                "buildDefinition": {
                    "buildType": "https://roundhouse.dev/engine/v1",
                    "externalParameters": parameters,
                    "resolvedDependencies": dependencies,
                },
                "runDetails": {
                    "builder": {"id": builder},
                    "metadata": {"invocationId": event["execution"], "finishedOn": now},
                },
            },
        }
    )


def _members(path: Path) -> Iterator[tuple[tarfile.TarInfo, Any]]:
    """Yield an archive's files, each with its bytes as a stream. Raises ValueError."""
    before = ""
    with tarfile.open(path, "r:gz") as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if not member.isreg():
                raise ValueError(f"{member.name} is no regular file")
            if "/".join(parts) != member.name or ".." in parts:
                raise ValueError(f"{member.name} is no path within the archive")
            if member.name <= before:
                raise ValueError(f"{member.name} does not come after {before}, as names are sorted")
            before = member.name
            yield member, tar.extractfile(member)


def _add(tar: tarfile.TarFile, name: str, size: int, stream: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    tar.addfile(member, stream)


def _record(archive: Archive, name: str) -> bytes:
    """Return an engine's record, a lock entry: nothing but the archive decides it."""
    signed = json.loads(archive.envelope or b"")
    payload = base64.b64decode(signed["payload"]).decode()
    document: dict[str, Any] = {
        "archive": {
            "path": name,
            "sha256": archive.sha256,
            "size_bytes": archive.path.stat().st_size,
            "manifest_sha256": hashlib.sha256(archive.manifest).hexdigest(),
        },
        "manifest": json.loads(archive.manifest),
        "signature": {**signed["signatures"][0], "statement": payload},
    }
    if archive.repackaged is not None:
        document["repackaged"] = archive.repackaged
    return (json.dumps(document, indent=2) + "\n").encode()


def _canonical_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
