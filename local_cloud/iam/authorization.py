"""What IAM evaluates of a request where MiniStack does not know it: actions, resources, conditions.

Sources: Service Authorization Reference, the tables "Actions defined by" of each service; Amazon S3
user guide, "Enforce conditional writes on Amazon S3 buckets"; AWS KMS developer guide, "AWS KMS
condition keys"; IAM user guide, "AWS global condition context keys".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ministack.core import iam_actions, iam_evaluator
from ministack.services import kms

SERVICES = ("sagemaker", "application-autoscaling")
KINDS = {
    "InferenceComponent": "inference-component",
    "EndpointConfig": "endpoint-config",
    "Endpoint": "endpoint",
    "Model": "model",
    "TrainingJob": "training-job",
}
"""The resource of an operation on one noun, which its request names by `<noun>Name`."""
INVOCATIONS = {"sagemaker:InvokeEndpointWithResponseStream": "sagemaker:InvokeEndpoint"}
BY_ID = frozenset(
    {f"codebuild:{name}" for name in ("BatchGetBuilds", "BatchGetProjects", "StopBuild")}
)
SESSION = re.compile(
    r"arn:(?P<partition>[a-z-]+):sts::(?P<account>\d{12}):assumed-role/(?P<role>[^/]+)/.+"
)
HEADERS = ("if-match", "if-none-match")
CREATES_NOTHING = frozenset({"uploads", "partNumber"})
"""Query parameters of CreateMultipartUpload, UploadPart and UploadPartCopy, which take no such
header.
"""


def install(emulator: Any) -> None:
    """Let MiniStack evaluate policies by all of this.

    A request over this machine's loopback stands for one over TLS: `aws:SecureTransport` is true.
    """
    pin = iam_evaluator.pin_request_origin
    emulator.pin_request_origin = lambda source_ip, _: pin(source_ip, True)
    _install_actions()
    _install_contexts()
    _install_principals()


def _install_actions() -> None:
    """Name the actions and resources of our services, and the key behind an alias of KMS."""
    iam_actions.SERVICE_TO_IAM_NAMESPACE.update({name: name for name in SERVICES})
    iam_actions._BOTOCORE_SERVICE_MAP["sagemaker"] = ["sagemaker-runtime"]
    action, resource = iam_actions.extract_iam_action, iam_actions.extract_resource_arn

    def action_of(*request: Any) -> Any:
        called = action(*request)
        return INVOCATIONS.get(called, called)

    def resource_of(service: str, *request: Any) -> Any:
        _, path, headers, body, _, region, account = request
        place = f"{region}:{account}"
        if service in SERVICES:
            return own_resource(path, headers, body, place)
        known = resource(service, *request)
        key = kms._resolve_key(str(known)) if service == "kms" else None
        if known != "*" or key is not None:
            return known if key is None else str(key["Arn"])
        return listed_resource(str(action(service, *request[:5])), body, place)

    iam_actions.extract_iam_action = action_of
    iam_actions.extract_resource_arn = resource_of


def _install_contexts() -> None:
    """Add the condition keys that a write of S3 and a call of KMS carry."""
    s3_context, tag_context = iam_actions.s3_service_context, iam_actions.request_tag_context

    def context_of_s3(
        action: str,
        query: Mapping[str, Any] | None,
        path: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        found: dict[str, Any] = s3_context(action, query, path, headers)
        if action == "s3:PutObject":
            found |= write_keys(query or {}, headers or {})
        return found

    def context_of_tags(
        service: str, action: str, body: bytes, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        found: dict[str, Any] = tag_context(service, action, body, params)
        return found | (kms_keys(body) if service == "kms" else {})

    iam_actions.s3_service_context = context_of_s3
    iam_actions.request_tag_context = context_of_tags


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


def listed_resource(action: str, body: bytes, place: str) -> str:
    """Return the ARN that a request for alarms, builds by their ids, or a map run is about."""
    if action in ("cloudwatch:DescribeAlarms", "cloudwatch:DescribeAlarmHistory"):
        return f"arn:aws:cloudwatch:{place}:alarm:*"
    if action not in (*BY_ID, "states:ListExecutions"):
        return "*"
    request = json.loads(body or b"{}")
    if action not in BY_ID:
        return str(request.get("mapRunArn", "*"))
    first = [*request.get("ids", request.get("names", ())), str(request.get("id", ""))][0]
    return f"arn:aws:codebuild:{place}:project/{first.partition(':')[0]}"


def own_resource(path: str, headers: Mapping[str, str], body: bytes, place: str) -> str:
    """Return the ARN of what a request is about, `*` where it names nothing.

    `place` is region and account. SageMaker's ARNs are in lower case.
    """
    if path.startswith("/endpoints/"):
        return f"arn:aws:sagemaker:{place}:endpoint/{path.split('/')[2].lower()}"
    operation = headers.get("x-amz-target", "").rpartition(".")[2]
    if operation.startswith("List"):
        return "*"
    field = iam_actions._safe_json_field
    names = {kind: field(body, f"{noun}Name") for noun, kind in KINDS.items() if noun in operation}
    arns = [
        f"arn:aws:sagemaker:{place}:{kind}/{name.lower()}" for kind, name in names.items() if name
    ]
    return str(field(body, "ResourceArn") or next(iter(arns), "*"))


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
