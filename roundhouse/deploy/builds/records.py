"""Records that builds publish of what they made: lock entries, read from the bucket."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from onboarding.names import artifact_bucket
from onboarding.values import Value
from roundhouse.aws.clients import object_bytes
from roundhouse.errors import BuildFailedError
from roundhouse.session import Session

EntryT = TypeVar("EntryT", bound=Value)


def published_record(session: Session, path: str, kind: type[EntryT]) -> EntryT:
    """Return the lock entry that a build published. Raises BuildFailedError."""
    bucket = artifact_bucket(session.environment)
    data = object_bytes(session.clients("s3"), bucket, path)
    if data is None:
        raise BuildFailedError(
            f"the build ended well, but s3://{bucket}/{path} is not there: it built another key; "
            "are all files of the tree saved and readable by the build?"
        )
    try:
        return kind.model_validate_json(data)
    except ValidationError as fault:
        raise BuildFailedError(
            f"the build ended well, but its record s3://{bucket}/{path} cannot be read by this "
            f"version of roundhouse ({fault.error_count()} fault(s)); delete the record and build "
            "again with the files of this version."
        ) from fault


def another_record(
    session: Session, path: str, found: tuple[str, str], wanted: tuple[str, str]
) -> BuildFailedError:
    """Return the error of a record of another key or model; `found` and `wanted` are both."""
    bucket = artifact_bucket(session.environment)
    return BuildFailedError(
        f"the build ended well, but its record s3://{bucket}/{path} is that of {found[0]} of "
        f"{found[1]}, not {wanted[0]} of {wanted[1]}; delete the record and build again."
    )
