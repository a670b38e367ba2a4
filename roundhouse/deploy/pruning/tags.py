"""The tag on objects of the artifact bucket that no lock names: the mark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from onboarding.names import UNREFERENCED_TAG
from roundhouse.aws.clients import Client, calling
from roundhouse.deploy.pruning.unreferenced import StoredObject

AT_ONCE = 16
LARGEST_COPY_BYTES = 5 * 1000**3
"""Of one CopyObject (Amazon S3 User Guide: 5 GB)."""
MARK = dict(zip(("Key", "Value"), UNREFERENCED_TAG, strict=True))
KEPT_FIELDS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
)
"""Fields that a copy which replaces an object's metadata must be given again."""


def objects_under(s3: Client, bucket: str, prefix: str) -> tuple[StoredObject, ...]:
    """Return the objects of a bucket under a prefix; whether they are marked is not read."""
    with calling(f"Listing s3://{bucket}/{prefix}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return tuple(
            StoredObject(name=item["Key"], size_bytes=item["Size"], modified=item["LastModified"])
            for page in pages
            for item in page.get("Contents", ())
        )


def with_marks(
    s3: Client, bucket: str, objects: Iterable[StoredObject]
) -> tuple[StoredObject, ...]:
    """Return the same objects with whether they are marked."""

    def with_mark(item: StoredObject) -> StoredObject:
        return replace(item, is_marked=MARK in _tags(s3, bucket, item.name))

    return tuple(_at_once(with_mark, objects))


def mark(s3: Client, bucket: str, objects: Iterable[StoredObject]) -> int:
    """Mark those that are not marked; return how many.

    S3 counts an expiration from the day an object was made, not from its tag: a tag alone would
    delete an old engine by the next morning. A copy in place, tag included, is made today; the
    version before it stays for the bucket's noncurrent days.
    """
    unmarked = [item for item in objects if not item.is_marked]
    _at_once(lambda item: _copy_in_place(s3, bucket, item), unmarked)
    return len(unmarked)


def take_off(s3: Client, bucket: str, objects: Iterable[StoredObject]) -> int:
    """Take the mark off those that bear it, leaving any other tag; return how many."""
    marked = [item for item in objects if item.is_marked]
    _at_once(lambda item: _untag(s3, bucket, item.name), marked)
    return len(marked)


def keep(s3: Client, bucket: str, prefixes: Iterable[str]) -> int:
    """Take the mark off everything under these prefixes; return how many objects bore it."""
    objects = [item for prefix in prefixes for item in objects_under(s3, bucket, prefix)]
    return take_off(s3, bucket, with_marks(s3, bucket, objects))


def _copy_in_place(s3: Client, bucket: str, item: StoredObject) -> None:
    name = item.name
    tags = [*_tags(s3, bucket, name), MARK]
    with calling(f"Marking s3://{bucket}/{name}"):
        head = s3.head_object(Bucket=bucket, Key=name)
        arguments = {
            **{field: head[field] for field in KEPT_FIELDS if field in head},
            # S3 refuses a copy onto itself that changes nothing but tags.
            "Metadata": {**head.get("Metadata", {}), MARK["Key"]: MARK["Value"]},
            "MetadataDirective": "REPLACE",
            "TaggingDirective": "REPLACE",
            "Tagging": urlencode({tag["Key"]: tag["Value"] for tag in tags}),
        }
        source = {"Bucket": bucket, "Key": name}
        if item.size_bytes <= LARGEST_COPY_BYTES:
            # Whole: of parts S3 would not know the sha256 that a checkpoint's file must have.
            s3.copy_object(Bucket=bucket, Key=name, CopySource=source, **arguments)
        else:
            s3.copy(source, bucket, name, ExtraArgs=arguments)


def _untag(s3: Client, bucket: str, name: str) -> None:
    tags = [tag for tag in _tags(s3, bucket, name) if tag != MARK]
    with calling(f"Taking the mark off s3://{bucket}/{name}"):
        if tags:
            s3.put_object_tagging(Bucket=bucket, Key=name, Tagging={"TagSet": tags})
        else:
            s3.delete_object_tagging(Bucket=bucket, Key=name)


def _tags(s3: Client, bucket: str, name: str) -> list[dict[str, str]]:
    with calling(f"Reading the tags of s3://{bucket}/{name}"):
        tags: list[dict[str, str]] = s3.get_object_tagging(Bucket=bucket, Key=name)["TagSet"]
    return tags


def _at_once(act: Callable[[StoredObject], Any], objects: Iterable[StoredObject]) -> list[Any]:
    """Return every result, or raise the first error once the others have ended."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        return list(threads.map(act, objects))
