"""AWS clients, and their errors as sentences: the only place of the command that imports boto3."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from roundhouse.aws.faults import client_message, fault_message
from roundhouse.errors import AwsError

Client = Any
"""A boto3 client, or what a test puts in its place."""

Clients = Callable[[str], Client]
"""The client of a service, by the service's name, or by `COPIES`."""
COPIES = "copies of s3"
"""S3 for copies alone, whose answers come late: other calls must not wait that long."""

ABSENT = frozenset(
    {
        *("404", "NoSuchKey", "NoSuchBucket", "NotFound"),
        *("ImageNotFoundException", "RepositoryNotFoundException"),
    }
)
"""Codes of S3 and ECR; SageMaker has one code for every refusal, and its sentence begins so:"""
ABSENT_WORDS = "Could not find"
PRESENT = "PreconditionFailed"
"""S3's answer to a write with If-None-Match of a name that is taken."""
CHUNK_BYTES = 1024 * 1024
CONNECT_SECONDS, READ_SECONDS = 10, 60
"""botocore waits a minute, and five times over, for a host that does not answer; the second is its
own."""
COPY_SECONDS = 600
"""S3 may answer a copy of 5 GB once it is done, and breaks it off for a client that has gone."""

T = TypeVar("T")


def aws_clients(region: str) -> Clients:
    """Return clients of the process environment's credentials, each created when it is needed.

    Raises AwsError where no client can be made of this shell's settings.
    """
    made: dict[str, Client] = {}
    sessions: list[Any] = []

    def client(service: str) -> Client:
        if service not in made:
            with calling(f"AWS {service}"), _making(f"AWS {service}"):
                if not sessions:
                    sessions.append(_session(region))
                made[service] = sessions[0].client(
                    "s3" if service == COPIES else service,
                    region_name=region,
                    config=_config(service),
                )
        return made[service]

    return client


def assumed_clients(clients: Clients, role_arn: str, region: str, what: str) -> Clients:
    """Return clients of a role that may be assumed with these. Raises AwsError, saying `what`."""
    import boto3

    with calling(what):
        answer = clients("sts").assume_role(RoleArn=role_arn, RoleSessionName="roundhouse")
        keys = answer["Credentials"]
        session: Any = boto3.Session(
            region_name=region,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys["SessionToken"],
        )
    return lambda service: session.client(service, config=_config(service))


@contextmanager
def calling(what: str) -> Iterator[None]:
    """Turn an AWS client's error into one sentence, AwsError."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (BotoCoreError, ClientError, ResponseParserError, KeyError) as error:
        message, is_temporary = fault_message(error)
        raise AwsError(f"{what}: {message}", is_temporary=is_temporary) from error


@contextmanager
def _making(what: str) -> Iterator[None]:
    """The same for what botocore does not foresee of this shell's settings.

    Nothing of ours runs inside.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError):
        raise
    except Exception as error:
        raise AwsError(f"{what}: {client_message(error)}") from error


def _session(region: str) -> Any:
    """Return a session whose credentials are there, so that their faults come first."""
    import boto3

    session: Any = boto3.Session(region_name=region)
    credentials = session.get_credentials()
    if credentials is not None:
        credentials.get_frozen_credentials()
    return session


def _config(service: str) -> Any:
    from botocore.config import Config

    seconds = COPY_SECONDS if service == COPIES else READ_SECONDS
    return Config(connect_timeout=CONNECT_SECONDS, read_timeout=seconds)


def frozen_credentials(what: str) -> Callable[[], Any]:
    """Give the process environment's credentials as they are at each call.

    Raises AwsError where there are none.
    """
    import boto3
    from botocore.exceptions import NoCredentialsError

    with calling(what), _making(what):
        credentials: Any = boto3.Session().get_credentials()
        if credentials is None:
            raise NoCredentialsError
        credentials.get_frozen_credentials()
    frozen: Callable[[], Any] = credentials.get_frozen_credentials
    return frozen


def bucket_exists(s3: Client, bucket: str) -> bool:
    """Return whether an S3 bucket is there."""
    return or_absent(lambda: s3.head_bucket(Bucket=bucket), f"s3://{bucket}") is not None


def object_exists(s3: Client, bucket: str, key: str) -> bool:
    """Return whether an S3 object is there; a missing bucket counts as a missing object."""
    where = f"s3://{bucket}/{key}"
    return or_absent(lambda: s3.head_object(Bucket=bucket, Key=key), where) is not None


def object_head(s3: Client, bucket: str, key: str) -> dict[str, Any] | None:
    """What S3 knows of an object, its own checksums too; None when it is not there."""
    return or_absent(
        lambda: s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED"),
        f"s3://{bucket}/{key}",
    )


def pages(client: Client, operation: str, field: str, **request: Any) -> Iterator[Any]:
    """Yield the items that all pages of an operation's answer have in a field."""
    for page in client.get_paginator(operation).paginate(**request):
        # S3 leaves the field of an empty page out.
        yield from page.get(field, ()) if field == "Contents" else page[field]


def stored_objects(s3: Client, bucket: str, prefix: str) -> list[dict[str, Any]]:
    """Return what S3 lists of every object whose key begins with a prefix."""
    with calling(f"Listing s3://{bucket}/{prefix}"):
        return list(pages(s3, "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix))


def list_objects(s3: Client, bucket: str, prefix: str) -> dict[str, int]:
    """Return the size of every object whose key begins with a prefix."""
    return {item["Key"]: item["Size"] for item in stored_objects(s3, bucket, prefix)}


def object_bytes(s3: Client, bucket: str, key: str) -> bytes | None:
    """The bytes of a small S3 object; None when it is not there."""
    where = f"s3://{bucket}/{key}"
    return or_absent(lambda: s3.get_object(Bucket=bucket, Key=key)["Body"].read(), where)


def object_sha256(s3: Client, bucket: str, key: str) -> str | None:
    """Hex digest of an S3 object's bytes, read as a stream; None when it is not there."""

    def digested() -> str:
        digest = hashlib.sha256()
        for chunk in s3.get_object(Bucket=bucket, Key=key)["Body"].iter_chunks(CHUNK_BYTES):
            digest.update(chunk)
        return digest.hexdigest()

    return or_absent(digested, f"s3://{bucket}/{key}")


def copy_once(
    s3: Client, source: tuple[str, str], destination: tuple[str, str], *, etag: str | None = None
) -> bool:
    """Copy an S3 object of 5 GB at most unless one is there; return whether it was copied.

    `source` and `destination` are bucket and key. S3 keeps the sha256 of the whole object, as it
    does not where parts are copied. Tags stay behind. `etag`: of the object that is meant.
    """
    bucket, key = destination
    fields = {} if etag is None else {"CopySourceIfMatch": etag}
    return _unless_present(
        lambda: s3.copy_object(
            Bucket=bucket,
            Key=key,
            CopySource=dict(zip(("Bucket", "Key"), source, strict=True)),
            ChecksumAlgorithm="SHA256",
            TaggingDirective="REPLACE",
            IfNoneMatch="*",
            **fields,
        ),
        f"Copying {key} to s3://{bucket}",
    )


def write_once(s3: Client, bucket: str, key: str, data: bytes, what: str) -> bool:
    """Put an S3 object unless one of this name is there; return whether it was put.

    `what` says it in the sentence of a failure.
    """
    return _unless_present(
        lambda: s3.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*"), what
    )


def _unless_present(call: Callable[[], object], what: str) -> bool:
    """Return whether a call wrote; False where S3 has an object of this name."""
    from botocore.exceptions import ClientError

    with calling(what):
        try:
            call()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != PRESENT:
                raise
            return False
    return True


def or_absent(call: Callable[[], T], what: str) -> T | None:
    """Return what a call gives; None where AWS answers that there is no such thing."""
    from botocore.exceptions import ClientError

    with calling(what):
        try:
            return call()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in ABSENT or ABSENT_WORDS in str(error):
                return None
            raise
