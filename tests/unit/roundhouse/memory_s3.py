"""S3 in memory, for accounts of tests: every bucket has the same objects unless a test says so."""

from __future__ import annotations

import base64
import hashlib
import io
from datetime import UTC, datetime
from types import SimpleNamespace

from botocore.exceptions import ClientError


def refusal(code, operation="Any"):
    return ClientError({"Error": {"Code": code, "Message": "Not Found"}}, operation)


class Body(io.BytesIO):
    """A stream as boto3 gives it."""

    def iter_chunks(self, size):
        yield self.getvalue()


class MemoryS3:
    """The calls that the command makes; `bucket_there` False: before the first deploy."""

    bucket_there = True

    def __init__(self):
        self.objects = {}

    def bucket(self, name):
        """Return the objects of a bucket."""
        return self.objects

    def get_paginator(self, operation):
        """One item a page."""
        return SimpleNamespace(paginate=getattr(self, operation))

    def _content(self, bucket, key, code="404"):
        if key not in self.bucket(bucket):
            raise refusal(code)
        return self.bucket(bucket)[key]

    def head_bucket(self, Bucket):
        if not self.bucket_there:
            raise refusal("404", "HeadBucket")
        return {}

    def head_object(self, Bucket, Key, ChecksumMode=None):
        content = self._content(Bucket, Key)
        digest = hashlib.sha256(content)
        return {
            "ETag": digest.hexdigest(),
            "ContentLength": len(content),
            "ChecksumSHA256": base64.b64encode(digest.digest()).decode(),
        }

    def get_object(self, Bucket, Key):
        return {"Body": Body(self._content(Bucket, Key, "NoSuchKey"))}

    def list_objects_v2(self, Bucket, Prefix):
        modified = datetime(2026, 11, 21, tzinfo=UTC)
        for key, content in sorted(self.bucket(Bucket).items()):
            if key.startswith(Prefix):
                item = {"Key": key, "Size": len(content), "LastModified": modified}
                yield {"Contents": [item]}

    def put_object(self, Bucket, Key, Body, IfNoneMatch=None):
        self.bucket(Bucket)[Key] = Body
