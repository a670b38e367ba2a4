"""Condition keys that MiniStack does not supply: of S3's conditional writes, and of TLS.

Source: Amazon S3 user guide, "Enforce conditional writes on Amazon S3 buckets".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ministack.core import iam_actions, iam_evaluator

HEADERS = ("if-match", "if-none-match")
CREATES_NOTHING = frozenset({"uploads", "partNumber"})
"""Query parameters of CreateMultipartUpload, UploadPart and UploadPartCopy, which take no such
header.
"""


def install(emulator: Any) -> None:
    """Add the keys to what a request for an object's write carries.

    A request over this machine's loopback stands for one over TLS: `aws:SecureTransport` is true.
    """
    pin = iam_evaluator.pin_request_origin
    emulator.pin_request_origin = lambda source_ip, _: pin(source_ip, True)
    known = iam_actions.s3_service_context

    def context(
        action: str,
        query: Mapping[str, Any] | None,
        path: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        found: dict[str, Any] = known(action, query, path, headers)
        if action == "s3:PutObject":
            found |= write_keys(query or {}, headers or {})
        return found

    iam_actions.s3_service_context = context


def write_keys(query: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the condition keys of one PutObject, CopyObject or part of a multipart upload."""
    creates = not CREATES_NOTHING & query.keys()
    keys = {f"s3:{name}": headers[name] for name in HEADERS if headers.get(name)}
    return {**keys, "s3:ObjectCreationOperation": str(creates).lower()}
