"""`checkpoint.json`: a checkpoint as its build wrote it, which is what is signed."""

from __future__ import annotations

import hashlib
import json

from pydantic import ValidationError

from onboarding.signature import canonical_json
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, files_sha256

RECORD_NAME = "checkpoint.json"
LATER = {"signature", "knee"}
"""Fields that are known after the build."""


class CheckpointRecordError(ValueError):
    """Why bytes are no record of a checkpoint."""


def record_bytes(entry: CheckpointEntry) -> bytes:
    """Return the record of a checkpoint: canonical JSON without its signature and knee."""
    return canonical_json(entry.model_dump(mode="json", exclude=LATER))


def record_sha256(entry: CheckpointEntry) -> str:
    """Return the digest that a checkpoint's signature signs."""
    return hashlib.sha256(record_bytes(entry)).hexdigest()


def read_record(content: bytes) -> CheckpointEntry:
    """Return the entry of a record's bytes. Raises CheckpointRecordError for other bytes."""
    try:
        entry = CheckpointEntry.model_validate_json(json.dumps(json.loads(content)))
    except (ValidationError, ValueError, RecursionError) as error:
        raise CheckpointRecordError(f"{RECORD_NAME} is no record of a checkpoint") from error
    if record_bytes(entry) != content:
        raise CheckpointRecordError(f"{RECORD_NAME} is no canonical JSON of a build's record")
    if files_sha256(entry.files) != entry.files_sha256:
        raise CheckpointRecordError(f"{RECORD_NAME} has a digest that its files do not have")
    return entry
