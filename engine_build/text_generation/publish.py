"""Files of a checkpoint, their record, and how both get into the environment's store."""

from __future__ import annotations

import json
from pathlib import Path

from engine_build.errors import PublishFailed
from engine_build.log import Log
from engine_build.store import Store, sha256_of
from onboarding.checkpoint import checkpoint_files
from onboarding.names import candidate_path, checkpoint_record_path
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import (
    RECORD_NAME,
    CheckpointEntry,
    CheckpointFile,
    CheckpointRecordError,
    read_record,
)

FILES = "checkpoint"
"""The folder of the files, in the work folder and under a candidate."""


def list_files(folder: Path) -> tuple[CheckpointFile, ...]:
    """Return every file of a folder with its size and digest."""
    return tuple(
        CheckpointFile(
            path=name, size_bytes=(folder / name).stat().st_size, sha256=sha256_of(folder / name)
        )
        for name in checkpoint_files(folder)
    )


def published_entry(store: Store, key: str) -> CheckpointEntry | None:
    """Return the checkpoint of a key that is published; None where it, or a file of it, is gone.

    Raises PublishFailed for a record that cannot be read.
    """
    name = checkpoint_record_path(key)
    content = store.read(name)
    if content is None:
        return None
    try:
        entry = CheckpointEntry.model_validate_json(json.dumps(json.loads(content)))
    except ValueError as error:
        raise PublishFailed(
            f"{store.place}/{name} is no record of a checkpoint; delete it, then build again."
        ) from error
    sizes = {file.path: file.size_bytes for file in entry.files if entry.accepted}
    is_whole = all(
        store.size(f"{checkpoint_prefix(key)}{path}") == size for path, size in sizes.items()
    )
    return entry if is_whole else None


def built_entry(out: Path, key: str) -> CheckpointEntry | None:
    """Return the checkpoint that a work folder has finished; None where it has not."""
    try:
        entry = read_record((out / RECORD_NAME).read_bytes())
    except (OSError, CheckpointRecordError):
        return None
    is_whole = entry.checkpoint_key == key and list_files(out / FILES) == entry.files
    return entry if is_whole else None


def publish(
    store: Store, entry: CheckpointEntry, out: Path, candidate: str | None, log: Log
) -> None:
    """Upload a checkpoint, its record last; of one that was not accepted the record alone.

    With `candidate` it waits there for the environment's signer, and replaces nothing: a build's
    role may not. Raises PublishFailed.
    """
    key, is_candidate = entry.checkpoint_key, candidate is not None
    for number, file in enumerate(entry.files if entry.accepted else ()):
        log.progress(f"{number} of {len(entry.files)} files")
        name = f"{checkpoint_prefix(key)}{file.path}"
        if candidate is not None:
            name = candidate_path(key, candidate, f"{FILES}/{file.path}")
        store.upload(out / FILES / file.path, name, only_if_absent=is_candidate)
    name = checkpoint_record_path(key)
    if candidate is not None:
        name = candidate_path(key, candidate, RECORD_NAME)
    store.upload(out / RECORD_NAME, name, only_if_absent=is_candidate)
