"""What MiniStack's S3 does otherwise than AWS.

CopyObject finds its source in another account's bucket, and reads If-None-Match.
Source: Amazon S3 API reference, CopyObject (`If-None-Match`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ministack.services import s3


def install() -> None:
    """Make MiniStack find the source of a copy in its owner's account, and keep objects."""
    copy_object = s3._copy_object

    def copy_once(bucket: str, key: str, headers: Mapping[str, str]) -> Any:
        present = (s3._buckets.get(bucket) or {"objects": {}})["objects"].get(key)
        refused = s3._check_put_preconditions(headers, present)
        return copy_object(bucket, key, headers) if refused is None else refused

    s3._ensure_bucket = owned_bucket
    s3._copy_object = copy_once


def owned_bucket(name: str) -> Any:
    """Return a bucket of this account or, once a request for it is allowed, of its owner."""
    return s3._buckets.get(name) or s3._buckets.get_scoped(
        s3._bucket_owner_account(name), None, name
    )
