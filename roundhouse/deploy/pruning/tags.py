"""The mark on objects of the artifact bucket that no lock names.

Set by a copy in place, taken off by an untag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from onboarding.names import UNREFERENCED_TAG
from roundhouse.aws.clients import Client, calling
from roundhouse.deploy.pruning.unreferenced import StoredObject

AT_ONCE = 16
KEPT_FIELDS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Metadata",
)
"""What a copy that replaces an object's metadata must be told again."""


def objects_under(s3: Client, bucket: str, prefix: str) -> tuple[StoredObject, ...]:
    """Every object whose name begins so, in a bucket; whether they are marked is not with_mark."""
    with calling(f"Listing s3://{bucket}/{prefix}"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        found = [content for page in pages for content in page.get("Contents", ())]
    return tuple(
        StoredObject(name=item["Key"], size_bytes=item["Size"], modified=item["LastModified"])
        for item in found
    )


def with_marks(
    s3: Client, bucket: str, objects: Iterable[StoredObject]
) -> tuple[StoredObject, ...]:
    """The same objects, each with_mark for its mark."""

    def with_mark(each: StoredObject) -> StoredObject:
        return replace(each, is_marked=_tag() in _tags(s3, bucket, each.name))

    return tuple(_at_once(with_mark, objects))


def mark(s3: Client, bucket: str, objects: Iterable[StoredObject]) -> int:
    """Mark those that are not marked; how many.

    S3 counts an expiration from the day an object was made, not from its tag: a tag alone would
    delete an old engine by the next
    morning. A copy in place, tag included, is made today; the version before it stays for the
    bucket's noncurrent days.
    """
    unmarked = [item for item in objects if not item.is_marked]
    _at_once(lambda entry: _copy_in_place(s3, bucket, entry.name), unmarked)
    return len(unmarked)


def take_off(s3: Client, bucket: str, objects: Iterable[StoredObject]) -> int:
    """Take the mark off those that bear it, leaving any other tag; how many."""
    marked = [item for item in objects if item.is_marked]
    _at_once(lambda entry: _untag(s3, bucket, entry.name), marked)
    return len(marked)


def keep(s3: Client, bucket: str, prefixes: Iterable[str]) -> int:
    """Take the mark off everything under these prefixes; how many objects bore it."""
    objects = [item for prefix in prefixes for item in objects_under(s3, bucket, prefix)]
    return take_off(s3, bucket, with_marks(s3, bucket, objects))


def _copy_in_place(s3: Client, bucket: str, name: str) -> None:
    key, value = UNREFERENCED_TAG
    tags = [*_tags(s3, bucket, name), _tag()]
    with calling(f"Marking s3://{bucket}/{name}"):
        head = s3.head_object(Bucket=bucket, Key=name)
        kept = {field: head[field] for field in KEPT_FIELDS if field in head}
        replaced = {
            **kept,
            "MetadataDirective": "REPLACE",
            "TaggingDirective": "REPLACE",
            "Tagging": _as_query(tags),
        }
        # S3 refuses a copy onto itself that changes nothing but tags.
        replaced["Metadata"] = {**kept.get("Metadata", {}), key: value}
        # Of several parts where it must be: one request copies 5 GB at most.
        s3.copy({"Bucket": bucket, "Key": name}, bucket, name, ExtraArgs=replaced)


def _untag(s3: Client, bucket: str, name: str) -> None:
    left = [tag for tag in _tags(s3, bucket, name) if tag != _tag()]
    with calling(f"Taking the mark off s3://{bucket}/{name}"):
        if left:
            s3.put_object_tagging(Bucket=bucket, Key=name, Tagging={"TagSet": left})
        else:
            s3.delete_object_tagging(Bucket=bucket, Key=name)


def _tags(s3: Client, bucket: str, name: str) -> list[dict[str, str]]:
    with calling(f"Reading the tags of s3://{bucket}/{name}"):
        tags: list[dict[str, str]] = s3.get_object_tagging(Bucket=bucket, Key=name)["TagSet"]
    return tags


def _tag() -> dict[str, str]:
    key, value = UNREFERENCED_TAG
    return {"Key": key, "Value": value}


def _as_query(tags: Iterable[dict[str, str]]) -> str:
    from urllib.parse import urlencode

    return urlencode({tag["Key"]: tag["Value"] for tag in tags})


def _at_once(act: Callable[[StoredObject], Any], objects: Iterable[StoredObject]) -> list[Any]:
    """Every result, or the first error once the others have ended."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        return list(threads.map(act, objects))
