"""Condition keys that MiniStack does not supply: of S3's conditional writes, of KMS, and of TLS.

Sources: Amazon S3 user guide, "Enforce conditional writes on Amazon S3 buckets"; AWS KMS developer
guide, "AWS KMS condition keys"; IAM user guide, "AWS global condition context keys".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ministack.core import iam_actions, iam_evaluator
from ministack.services import kms

SESSION = re.compile(
    r"arn:(?P<partition>[a-z-]+):sts::(?P<account>\d{12}):assumed-role/(?P<role>[^/]+)/.+"
)
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

    def resolve_key(key: str, request: Any) -> Any:
        if key.lower() != "aws:principalarn":
            return resolve(key, request)
        # MiniStack asks a bucket of another account about the caller's account as a whole.
        caller, given = str(iam_evaluator.caller_arn()), str(request.principal_arn)
        is_account = given == f"arn:aws:iam::{request.principal_account}:root"
        is_same = caller.split(":")[4:5] == [request.principal_account]
        return role_of(caller if is_account and is_same else given)

    iam_evaluator._resolve_condition_key = resolve_key


def role_of(principal: str) -> str:
    """Return the ARN of a session's role, or the principal's own where it is no session."""
    session = SESSION.fullmatch(principal)
    if session is None:
        return principal
    return f"arn:{session['partition']}:iam::{session['account']}:role/{session['role']}"


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
