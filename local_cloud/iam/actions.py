"""IAM's actions and resources of requests whose resource MiniStack does not know.

Source: Service Authorization Reference, the tables "Actions defined by" of each service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ministack.core import iam_actions

SERVICES = ("sagemaker", "application-autoscaling")
KINDS = {
    "InferenceComponent": "inference-component",
    "EndpointConfig": "endpoint-config",
    "Endpoint": "endpoint",
    "Model": "model",
    "TrainingJob": "training-job",
}
"""The resource of an operation on one noun, which its request names by `<noun>Name`."""
BY_ID = frozenset(
    {f"codebuild:{name}" for name in ("BatchGetBuilds", "BatchGetProjects", "StopBuild")}
)
INVOCATION = re.compile(r"/endpoints/([^/]+)/(async-)?invocations(-response-stream)?")


def install() -> None:
    """Let MiniStack evaluate policies for requests of these services."""
    action, resource = iam_actions.extract_iam_action, iam_actions.extract_resource_arn

    def action_of(
        service: str, method: str, path: str, headers: Any, body: bytes, query: Any
    ) -> Any:
        if service not in SERVICES:
            return action(service, method, path, headers, body, query)
        return own_action(service, path, headers)

    def resource_of(
        service: str, method: str, path: str, headers: Any, body: bytes, query: Any,
        region: str, account: str,
    ) -> Any:  # fmt: skip
        if service in SERVICES:
            return own_resource(service, path, headers, body, f"{region}:{account}")
        known = resource(service, method, path, headers, body, query, region, account)
        if known != "*":
            return known
        called = action(service, method, path, headers, body, query)
        return listed_resource(str(called), body, f"{region}:{account}")

    iam_actions.extract_iam_action = action_of
    iam_actions.extract_resource_arn = resource_of


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


def own_action(service: str, path: str, headers: Mapping[str, str]) -> str:
    """Return IAM's action: the operation's name, and of every invocation InvokeEndpoint."""
    invocation = INVOCATION.fullmatch(path)
    if service == "sagemaker" and invocation is not None:
        return "sagemaker:InvokeEndpointAsync" if invocation[2] else "sagemaker:InvokeEndpoint"
    return f"{service}:{headers.get('x-amz-target', '').rpartition('.')[2]}"


def own_resource(
    service: str, path: str, headers: Mapping[str, str], body: bytes, place: str
) -> str:
    """Return the ARN of what a request is about, `*` where it names nothing.

    `place` is region and account. SageMaker's ARNs are in lower case.
    """
    invocation = INVOCATION.fullmatch(path)
    if service == "sagemaker" and invocation is not None:
        return f"arn:aws:sagemaker:{place}:endpoint/{invocation[1].lower()}"
    operation = headers.get("x-amz-target", "").rpartition(".")[2]
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        return "*"
    if not isinstance(request, dict) or operation.startswith("List"):
        return "*"
    arn = request.get("ResourceArn")
    if isinstance(arn, str):
        return arn
    for noun, kind in KINDS.items():
        name = request.get(f"{noun}Name")
        if noun in operation and isinstance(name, str):
            return f"arn:aws:sagemaker:{place}:{kind}/{name.lower()}"
    return "*"
