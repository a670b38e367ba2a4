"""AWS clients, and their errors as sentences: the only place of the workbench that imports boto3."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from workbench.errors import DeskError

Client = Any
"""A boto3 client, or what a test puts in its place."""

Clients = Callable[[str], Client]
"""The client of a service, by the service's name."""

ABSENT = frozenset({"404", "NoSuchKey", "NoSuchBucket", "NotFound"})
CHUNK_BYTES = 1024 * 1024


def session_clients(region: str) -> Clients:
    """Clients of the process environment's credentials, one per service."""
    import boto3

    session: Any = boto3.Session(region_name=region)
    made: dict[str, Client] = {}

    def client(service: str) -> Client:
        if service not in made:
            with calling(f"AWS {service}"):
                made[service] = session.client(service)
        return made[service]

    return client


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Turns an AWS client's error into one sentence."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        raise DeskError(f"{what}: AWS answered {answer.get('Code')}: {str(answer.get('Message')).rstrip('.')}.") from error
    except BotoCoreError as error:
        said = str(error).rstrip(".")
        raise DeskError(f"{what}: {said}; are the cloud and its credentials there (`roundhouse status`)?") from error


def bucket_exists(s3: Client, bucket: str) -> bool:
    """Whether an S3 bucket is there."""
    return _or_absent(lambda: s3.head_bucket(Bucket=bucket), f"s3://{bucket}") is not None


def object_exists(s3: Client, bucket: str, key: str) -> bool:
    """Whether an S3 object is there; a missing bucket counts as a missing object."""
    return _or_absent(lambda: s3.head_object(Bucket=bucket, Key=key), f"s3://{bucket}/{key}") is not None


def object_bytes(s3: Client, bucket: str, key: str) -> bytes | None:
    """The bytes of a small S3 object; None when it is not there."""
    found = _or_absent(lambda: s3.get_object(Bucket=bucket, Key=key), f"s3://{bucket}/{key}")
    if found is None:
        return None
    data: bytes = found["Body"].read()
    return data


def object_sha256(s3: Client, bucket: str, key: str) -> str | None:
    """Hex digest of an S3 object's bytes, read as a stream; None when it is not there."""
    found = _or_absent(lambda: s3.get_object(Bucket=bucket, Key=key), f"s3://{bucket}/{key}")
    if found is None:
        return None
    digest = hashlib.sha256()
    for chunk in found["Body"].iter_chunks(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _or_absent(call: Callable[[], Any], what: str) -> Any | None:
    from botocore.exceptions import ClientError

    with calling(what):
        try:
            return call()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ABSENT:
                return None
            raise
