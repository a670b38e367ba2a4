"""Condition keys that MiniStack does not supply: of S3's conditional writes, of KMS, and of TLS.

Sources: Amazon S3 user guide, "Enforce conditional writes on Amazon S3 buckets"; AWS KMS developer
guide, "AWS KMS condition keys"; IAM user guide, "AWS global condition context keys".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ministack.core import iam_actions, iam_evaluator
from ministack.services import iam, kms

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
    _install_kms()
    _install_principals()


def _install_principals() -> None:
    """Give `aws:PrincipalArn` of a role's session as AWS does: the role, not the session."""
    resolve = iam_evaluator._resolve_condition_key

    def condition_value(key: str, request: Any) -> Any:
        value = resolve(key, request)
        if key.lower() != "aws:principalarn" or ":assumed-role/" not in str(value):
            return value
        role = iam._roles.get(str(value).split("/")[1])
        return value if role is None else role["Arn"]

    iam_evaluator._resolve_condition_key = condition_value


def _install_kms() -> None:
    """Name the key itself where a request names its alias, and add what the request carries."""
    tag_context, resource_arn = iam_actions.request_tag_context, iam_actions.extract_resource_arn

    def context(
        service: str, action: str, body: bytes, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        found: dict[str, Any] = tag_context(service, action, body, params)
        return found | (kms_keys(body) if service == "kms" else {})

    def resource(service: str, method: str, path: str, *request: Any) -> str:
        named = str(resource_arn(service, method, path, *request))
        key = kms._resolve_key(named) if service == "kms" else None
        return named if key is None else str(key["Arn"])

    iam_actions.request_tag_context = context
    iam_actions.extract_resource_arn = resource


def kms_keys(body: bytes) -> dict[str, Any]:
    """Return the condition keys of a call of KMS: the signature's algorithm, the key's aliases."""
    request = json.loads(body or b"{}")
    keys: dict[str, Any] = {}
    if "SigningAlgorithm" in request:
        keys["kms:SigningAlgorithm"] = request["SigningAlgorithm"]
    key = kms._resolve_key(request.get("KeyId"))
    if key is not None:
        aliases = [arn for arn, key_id in kms._aliases.items() if key_id == key["KeyId"]]
        keys["kms:ResourceAliases"] = [arn.rpartition(":")[2] for arn in aliases]
    return keys


def write_keys(query: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the condition keys of one PutObject, CopyObject or part of a multipart upload."""
    creates = not CREATES_NOTHING & query.keys()
    keys = {f"s3:{name}": headers[name] for name in HEADERS if headers.get(name)}
    return {**keys, "s3:ObjectCreationOperation": str(creates).lower()}
