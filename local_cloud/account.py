"""The account and region of the present request, and its S3.

Import it only after MiniStack is configured.
"""

from __future__ import annotations

import contextvars
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ministack.core import responses
from ministack.services import s3

Scoped = responses.AccountRegionScopedDict
R = TypeVar("R")


def account_id() -> str:
    """Return the account of the present request."""
    return str(responses.get_account_id())


def region() -> str:
    """Return the region of the present request."""
    return str(responses.get_region())


def of_every_account(records: Mapping[str, R]) -> Iterator[R]:
    """Yield the records of every account and region, each while it is the present one."""
    scoped: Mapping[tuple[str, str, str], R] = records._data  # type: ignore[attr-defined]
    for (account, region, _), record in list(scoped.items()):
        with responses.request_scope(account, region):
            yield record


def sagemaker_arn(noun: str, name: str) -> str:
    """ARN of a SageMaker resource, whose noun is that of its operations: EndpointConfig."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", noun).lower()
    return f"arn:aws:sagemaker:{region()}:{account_id()}:{kind}/{name}"


def read_object(bucket: str, key: str) -> bytes | None:
    """An S3 object's bytes; None when the object or its bucket is not there."""
    content = s3._get_object_data(bucket, key)
    return None if content is None else bytes(content)


def object_keys(bucket: str, prefix: str) -> tuple[str, ...]:
    """Return the keys of a bucket's objects that begin with a prefix, folders left out."""
    record = s3._buckets.get(bucket) or {"objects": {}}
    keys = sorted(key for key in record["objects"] if key.startswith(prefix))
    return tuple(key for key in keys if not key.endswith("/"))


def write_object(
    bucket: str, key: str, content: bytes, content_type: str, kms_key: str | None = None
) -> bool:
    """Write an S3 object, encrypted with a KMS key where one is named; False on failure."""
    headers = {"content-type": content_type}
    if kms_key is not None:
        headers |= {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": kms_key,
        }
    return int(s3._put_object(bucket, key, content, headers)[0]) < 300


def correct_copies() -> None:
    """Let CopyObject find its source in another account's bucket, and read If-None-Match.

    Source: Amazon S3 API reference, CopyObject (`If-None-Match`).
    """
    copy_object = s3._copy_object

    def copy_once(bucket: str, key: str, headers: Mapping[str, str]) -> Any:
        present = (s3._buckets.get(bucket) or {"objects": {}})["objects"].get(key)
        refused = s3._check_put_preconditions(headers, present)
        return copy_object(bucket, key, headers) if refused is None else refused

    def owned_bucket(name: str) -> Any:
        """A bucket of this account or, once a request for it is allowed, of its owner."""
        return s3._buckets.get(name) or s3._buckets.get_scoped(
            s3._bucket_owner_account(name), None, name
        )

    s3._ensure_bucket = owned_bucket
    s3._copy_object = copy_once


def in_background(function: Callable[..., Any], *arguments: Any) -> threading.Thread:
    """Runs a function in a thread, for the account and region of the present request."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(function, *arguments), daemon=True)
    thread.start()
    return thread
