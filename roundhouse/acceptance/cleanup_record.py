"""The record of what a run may have created, written before each creation.

It outlives a killed run: while it lies there, the next run is refused and `--clean` knows where to
look.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from onboarding.environment_spec import EnvironmentSpec
from onboarding.values import Value
from roundhouse.errors import NotReadyError, RoundhouseError

FILE = "cleanup.json"


class CleanupRecord(Value):
    """One run: its environment as it was deployed, when it began, and what it was to create."""

    environment: EnvironmentSpec
    origin: str
    in_local_cloud: bool
    begun_at: str
    evidence: str
    created: tuple[str, ...] = ()


def record_path(build: Path) -> Path:
    """Return where the record of a run lies."""
    return build / FILE


def read_record(build: Path) -> CleanupRecord | None:
    """Return the record of an earlier run that was not cleaned; None where there is none.

    Raises RoundhouseError for a file that is no record.
    """
    path = record_path(build)
    try:
        return CleanupRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise RoundhouseError(
            f"{path}: is no record of an acceptance run; delete it, then clean with `roundhouse "
            "acceptance --env ENV --clean`, which also finds everything by its name."
        ) from error


def write_record(build: Path, record: CleanupRecord) -> None:
    """Write the record so that a power cut leaves the old one or the new one."""
    path = record_path(build)
    part = path.with_suffix(".part")
    document: dict[str, Any] = record.model_dump(mode="json", by_alias=True, exclude_none=True)
    try:
        build.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise NotReadyError(
            f"{path}: cannot be written ({error.strerror}), and nothing is created without it; "
            "free the folder, then try again."
        ) from error


def add_created(build: Path, record: CleanupRecord, names: Sequence[str]) -> CleanupRecord:
    """Return the record with what is about to be created, once it is on disk."""
    created = tuple(dict.fromkeys((*record.created, *names)))
    result = record.model_copy(update={"created": created})
    write_record(build, result)
    return result


def delete_record(build: Path) -> None:
    """Delete the record: nothing of the run is left."""
    record_path(build).unlink(missing_ok=True)
