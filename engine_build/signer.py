"""The Lambda function that signs engines and publishes them: nothing else writes `engines/`.

Its code is signing.py and this file, and it imports what that one does.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from engine_build.signing import (
    Publisher,
    Refused,
    answer,
    candidate_of,
    canonical_json,
    statement,
)

MANIFEST, ENVELOPE, ARCHIVE = "manifest.json", "manifest.dsse.json", "model.tar.gz"
RECORD = "lock-entry.json"
REPACKAGED = "repackaged.json"


def handler(event: Mapping[str, str], context: object) -> dict[str, str]:
    """Return `{"status": "signed"}`, or `{"status": "refused", "reason": …}`."""
    return answer(Signer, event, context)


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


class Signer(Publisher):
    """The signer of engines: nothing else writes `engines/`."""

    def publish(self, event: Mapping[str, str], folder: Path) -> None:
        """Publish the archive and, last, the record. What is there already is kept.

        Raises Refused.
        """
        key, source = candidate_of(event)
        published = f"engines/{key}"
        built = self._archive(f"{source}/{ARCHIVE}", event, folder / "built")
        present = None
        if built is not None:
            if built.envelope is not None:
                raise Refused(f"{self.url(source)}: the build packed {ENVELOPE} itself")
            signed = self._signed(built, event, folder / "signed")
            if self.upload(f"{published}/{ARCHIVE}", signed.path):
                present = signed
        if present is None:
            present = self._archive(f"{published}/{ARCHIVE}", event, folder / "present")
        if present is None:
            raise Refused(
                f"{self.url(source)}: the build left no archive; are all files of the tree saved "
                "and readable by the build?"
            )
        if present.envelope is None:
            raise Refused(
                f"{self.url(published)}: the engine that is there is not signed, and nothing is "
                "overwritten; delete it, then build again"
            )
        self._publish_record(present, published, folder)

    def _archive(self, name: str, event: Mapping[str, str], path: Path) -> Archive | None:
        """Return an archive of the event's engine, checked; None when it is not there."""
        if not self.download(name, path):
            return None
        try:
            archive = read_archive(path)
            manifest = json.loads(archive.manifest)
            found = manifest["engine_key"], manifest["model"]
        except (ValueError, KeyError, TypeError) as fault:
            raise Refused(f"{self.url(name)}: {fault or 'it has no manifest'}") from fault
        if found != (event["engineKey"], event["model"]):
            raise Refused(
                f"{self.url(name)}: it holds engine {found[0]} of {found[1]}, not "
                f"{event['engineKey']} of {event['model']}"
            )
        return archive

    def _signed(self, archive: Archive, event: Mapping[str, str], path: Path) -> Archive:
        """Write the archive with its envelope, packed as builds pack."""
        subject = MANIFEST, archive.manifest
        payload = statement(subject, event, self.builder, parameters(archive.manifest))
        envelope = canonical_json(self.envelope(payload))
        pack(archive.path, envelope, path)
        return dataclasses.replace(archive, path=path, envelope=envelope)

    def _publish_record(self, archive: Archive, published: str, folder: Path) -> None:
        """Publish the record; refuse one that is there and of another archive."""
        record, name = folder / RECORD, f"{published}/{RECORD}"
        data = _record(archive, f"{published}/{ARCHIVE}")
        record.write_bytes(data)
        if self.upload(name, record):
            return
        self.download(name, record)
        if json.loads(record.read_bytes()) != json.loads(data):
            where = f"{self.url(published)}: its {RECORD} is of another archive"
            raise Refused(f"{where}, and nothing is overwritten; delete both, then build again")


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


def parameters(manifest: bytes) -> dict[str, str]:
    """Return what an engine's statement says of it."""
    fields = json.loads(manifest)
    names = (("model", "model"), ("engineKey", "engine_key"), ("precision", "requested_precision"))
    return {name: fields[key] for name, key in names}


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
