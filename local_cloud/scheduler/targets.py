"""What a schedule may call: CodeBuild's StartBuild, and DeleteEndpoint of SageMaker.

Source: EventBridge Scheduler user guide, "Templated targets" and "Universal targets".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from local_cloud.protocol.errors import Actions, AwsError, Reply, validation_error

PROJECT = re.compile(r"arn:aws[a-z-]*:codebuild:[a-z0-9-]+:[0-9]{12}:project/([^/:]+)")
DELETE_ENDPOINT = re.compile(r"arn:aws[a-z-]*:scheduler:::aws-sdk:sagemaker:deleteEndpoint")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a service: IAM's action and resource, and what makes it. It raises AwsError."""

    action: str
    resource: str
    make: Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The services that schedules call."""

    start_build: Callable[[Mapping[str, Any]], Reply]
    sagemaker: Callable[[], Actions]
    endpoint_arn: Callable[[str], str]

    def call_of(self, target: Mapping[str, Any]) -> Call:
        """Return the call of a schedule's target. Raises AwsError for one that is not played."""
        arn = str(target["Arn"])
        if project := PROJECT.fullmatch(arn):
            request = {"projectName": project[1]}
            return Call(
                action="codebuild:StartBuild", resource=arn, make=lambda: self._start(request)
            )
        if DELETE_ENDPOINT.fullmatch(arn):
            given = _input(target)
            name = str(given.get("EndpointName", ""))
            return Call(
                action="sagemaker:DeleteEndpoint",
                resource=self.endpoint_arn(name),
                make=lambda: self.sagemaker()["DeleteEndpoint"](given),
            )
        raise validation_error(f"The local cloud plays no schedule that calls {arn}.")

    def _start(self, request: Mapping[str, Any]) -> None:
        status, _, body = self.start_build(request)
        if status >= 300:
            fault = json.loads(body)
            raise AwsError(fault["__type"], fault["message"], status)


def _input(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a universal target's request. Raises AwsError."""
    try:
        given = json.loads(target.get("Input") or "{}")
    except ValueError as error:
        raise validation_error("Invalid Target Input: it is no JSON.") from error
    if not isinstance(given, dict):
        raise validation_error("Invalid Target Input: it is no JSON object.")
    return given
