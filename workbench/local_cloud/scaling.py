"""Application Auto Scaling: scalable targets and scaling policies, kept but not yet acted on."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import MutableMapping

from workbench.local_cloud.account import Scoped, account_id, region
from workbench.local_cloud.aws_error import AwsError, Reply
from workbench.local_cloud.checks import number
from workbench.local_cloud.json_protocol import Actions, Request, dispatched

KEY_FIELDS = ("ServiceNamespace", "ResourceId", "ScalableDimension")
SAGEMAKER_RESOURCE = re.compile(r"endpoint/[^/]+/variant/[^/]+|inference-component/[^/]+")


class Scaling:
    """Answers the `AnyScaleFrontendService.*` actions."""

    def __init__(self) -> None:
        self.targets: MutableMapping[tuple[str, ...], Request] = Scoped()
        self.policies = Scoped()
        self.actions: Actions = {
            "RegisterScalableTarget": self.register,
            "DescribeScalableTargets": self.describe_targets,
            "DeregisterScalableTarget": self.deregister,
            "PutScalingPolicy": self.put_policy,
            "DescribeScalingPolicies": self.describe_policies,
            "DeleteScalingPolicy": self.delete_policy,
            "DescribeScalingActivities": lambda request: {"ScalingActivities": []},
        }

    def answer(self, target: str, body: bytes) -> Reply:
        """Answers one request of the JSON 1.1 protocol."""
        return dispatched("scaling", self.actions, target, body)

    def register(self, request: Request) -> Request:
        """Records a scalable target, or changes the bounds of one that is there."""
        key = _key(request)
        if key[0] == "sagemaker" and SAGEMAKER_RESOURCE.fullmatch(key[1]) is None:
            raise _refusal(f"Unsupported resource ID {key[1]}: use endpoint/<name>/variant/<name>.")
        merged = {**self.targets.get(key, {}), **request}
        low, high = (int(number(merged.get(name, 0))) for name in ("MinCapacity", "MaxCapacity"))
        if low > high:
            raise _refusal(f"Maximum capacity cannot be less than minimum capacity: {high} is less than {low}.")
        arn = f"arn:aws:application-autoscaling:{region()}:{account_id()}:scalable-target/{uuid.uuid4().hex[:12]}"
        record = {"ScalableTargetARN": arn, "CreationTime": time.time(), **merged, "MinCapacity": low, "MaxCapacity": high}
        self.targets[key] = record
        return {"ScalableTargetARN": record["ScalableTargetARN"]}

    def deregister(self, request: Request) -> Request:
        """Forgets a scalable target and its policies."""
        self._target(_key(request))
        del self.targets[_key(request)]
        for policy_key in [each for each in self.policies.keys() if each[1:] == _key(request)]:  # noqa: SIM118
            del self.policies[policy_key]
        return {}

    def describe_targets(self, request: Request) -> Request:
        """The scalable targets of a namespace, or of the named resources."""
        wanted = request.get("ResourceIds") or ()
        found = [each for each in self.targets.values() if not wanted or each["ResourceId"] in wanted]
        return {"ScalableTargets": [each for each in found if each["ServiceNamespace"] == request.get("ServiceNamespace")]}

    def put_policy(self, request: Request) -> Request:
        """Records a scaling policy of a registered target."""
        self._target(_key(request))
        name = str(request.get("PolicyName", ""))
        key = (name, *_key(request))
        suffix = f"{uuid.uuid4()}:resource/{request['ServiceNamespace']}/{request['ResourceId']}:policyName/{name}"
        arn = f"arn:aws:autoscaling:{region()}:{account_id()}:scalingPolicy:{suffix}"
        record = {"PolicyARN": arn, "CreationTime": time.time(), **self.policies.get(key, {}), **request}
        self.policies[key] = record
        return {"PolicyARN": record["PolicyARN"], "Alarms": []}

    def delete_policy(self, request: Request) -> Request:
        """Forgets a scaling policy."""
        key = (str(request.get("PolicyName", "")), *_key(request))
        if key not in self.policies:
            raise AwsError("ObjectNotFoundException", f"No scaling policy found: {key[0]}.")
        del self.policies[key]
        return {}

    def describe_policies(self, request: Request) -> Request:
        """The scaling policies of a namespace, or of one resource."""
        asked = {name: request[name] for name in KEY_FIELDS if request.get(name) is not None}
        found = [each for each in self.policies.values() if all(each[name] == value for name, value in asked.items())]
        return {"ScalingPolicies": [{"Alarms": [], **each} for each in found]}

    def _target(self, key: tuple[str, ...]) -> Request:
        target = self.targets.get(key)
        if target is None:
            raise AwsError(
                "ObjectNotFoundException",
                f"No scalable target registered for service namespace: {key[0]}, resource ID: {key[1]}, "
                f"scalable dimension: {key[2]}",
            )
        return target


def _key(request: Request) -> tuple[str, ...]:
    for name in KEY_FIELDS:
        if request.get(name) is None:
            raise _refusal(f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: not null")
    return tuple(str(request[name]) for name in KEY_FIELDS)


def _refusal(message: str) -> AwsError:
    return AwsError("ValidationException", message)
