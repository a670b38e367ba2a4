"""S3 in memory, for the calls of stores and of the signer."""

from __future__ import annotations

import io

from botocore.exceptions import ClientError


def client_error(code, message=""):
    return ClientError({"Error": {"Code": code, "Message": message}}, "Call")


class Bucket:
    """The calls of S3 that a store makes, in memory.

    `refusal` is every call's answer; the first `contested` writes meet another build's.
    """

    def __init__(self, refusal: Exception | None = None, contested: int = 0) -> None:
        self.objects: dict[str, bytes] = {}
        self.refusal = refusal
        self.contested = contested

    def put_object(self, *, Bucket, Key, Body, ChecksumSHA256, IfNoneMatch=None):
        self._refuse()
        if self.contested > 0:
            self.contested -= 1
            if self.contested == 0:
                self.objects[Key] = b"the other's"
            raise client_error("ConditionalRequestConflict", "conflict")
        if IfNoneMatch == "*" and Key in self.objects:
            raise client_error("PreconditionFailed")
        self.objects[Key] = Body.read()
        return {}

    def head_object(self, *, Bucket, Key):
        return {"ContentLength": len(self._object(Key, "404"))}

    def get_object(self, *, Bucket, Key):
        return {"Body": io.BytesIO(self._object(Key, "NoSuchKey"))}

    def list_objects_v2(self, *, Bucket, Prefix, ContinuationToken=""):
        self._refuse()
        keys = [key for key in sorted(self.objects) if key.startswith(Prefix)]
        page = [{"Key": key} for key in keys if key > ContinuationToken][:2]
        is_truncated = bool(page) and page[-1]["Key"] != keys[-1]
        following = {"NextContinuationToken": page[-1]["Key"]} if is_truncated else {}
        return {"Contents": page, "IsTruncated": is_truncated, **following}

    def _object(self, key, code):
        self._refuse()
        if key not in self.objects:
            raise client_error(code)
        return self.objects[key]

    def _refuse(self):
        if self.refusal is not None:
            raise self.refusal
