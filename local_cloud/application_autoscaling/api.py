"""Application Auto Scaling's API for endpoint variants and inference components."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from ministack.core.responses import request_scope

from local_cloud.application_autoscaling.autoscaler import Autoscaler
from local_cloud.application_autoscaling.policy_alarms import delete_alarms, put_alarms
from local_cloud.application_autoscaling.records import (
    CONFIGURATIONS,
    NAMESPACE,
    RESOURCES,
    SUSPENSIONS,
    Description,
    Key,
    Policy,
    Target,
)
from local_cloud.application_autoscaling.registry import Registry, not_found
from local_cloud.application_autoscaling.tracking import Breach
from local_cloud.cloudwatch.evaluation import Verdict
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.constraints import SCALING, checked_actions
from local_cloud.protocol.errors import Actions, Reply, Request, dispatch, validation_error
from local_cloud.protocol.listing import page

logger = logging.getLogger("roundhouse.scaling")
PAGE = 50
SERVICE_ROLE = (
    "aws-service-role/sagemaker.application-autoscaling.amazonaws.com/"
    "AWSServiceRoleForApplicationAutoScaling_SageMaker{}"
)


class Scaling:
    """Answers the `AnyScaleFrontendService.*` actions; the autoscaler acts on its records."""

    def __init__(self, registry: Registry, autoscaler: Autoscaler) -> None:
        self.registry, self._autoscaler = registry, autoscaler
        self._breaches: list[tuple[tuple[str, str], Breach]] = []
        actions: Actions = {
            "RegisterScalableTarget": self._register,
            "DeregisterScalableTarget": self._deregister,
            "PutScalingPolicy": self._put_policy,
            "DeleteScalingPolicy": self._delete_policy,
            "PutScheduledAction": self._put_scheduled_action,
            "DeleteScheduledAction": self._delete_scheduled_action,
            "DescribeScalableTargets": lambda request: _describe(
                request, "ScalableTargets", registry.targets.values()
            ),
            "DescribeScalingPolicies": lambda request: _describe(
                request, "ScalingPolicies", registry.policies.values()
            ),
            "DescribeScheduledActions": lambda request: _describe(
                request, "ScheduledActions", registry.scheduled.values()
            ),
        }
        self.actions = checked_actions(actions, SCALING)

    def answer(self, target: str, body: bytes) -> Reply:
        """Answer one request of the JSON 1.1 protocol."""
        return dispatch("scaling", self.actions, target, body)

    def take_alarm_action(self, action: str, alarm: Mapping[str, Any], verdict: Verdict) -> None:
        """Collect an alarm's call of a policy until the next step."""
        if ":scalingPolicy:" in action:
            breach = Breach(
                policy_arn=action,
                alarm=str(alarm["AlarmName"]),
                values=verdict.values,
                threshold=float(alarm["Threshold"]),
                below=str(alarm["ComparisonOperator"]).startswith("Less"),
            )
            self._breaches.append(((account_id(), region()), breach))

    def step(self, now: float) -> None:
        """Scale in every account, from one thread."""
        breaches, self._breaches = self._breaches, []
        for scope in self.registry.scopes:
            called = [breach for owner, breach in breaches if owner == scope]
            with request_scope(*scope), self.registry.turn:
                self._autoscaler.step(called, now)

    def declare(self, properties: Request) -> Request:
        """Register a target as a template describes it: with exactly its scheduled actions."""
        declared = properties.get("ScheduledActions") or ()
        names = {str(action["ScheduledActionName"]) for action in declared}
        with self.registry.turn:
            reply = self.actions["RegisterScalableTarget"](properties)
            key = _key_of(properties)
            self.registry.forget_scheduled(key, but=names)
            for action in declared:
                self.actions["PutScheduledAction"]({**key.as_description(), **action})
        return reply

    def _register(self, request: Request) -> Request:
        """Register a target or change its bounds, and bring its variant within them."""
        key, suspended = _key_of(request), request.get("SuspendedState") or {}
        low, high = request.get("MinCapacity"), request.get("MaxCapacity")
        with self.registry.turn:
            target = self.registry.targets.get(key)
            if target is not None:
                low, high = (
                    target.low if low is None else low,
                    target.high if high is None else high,
                )
            if low is None or high is None or not 0 <= low <= high:
                raise validation_error(
                    f"MinCapacity {low} and MaxCapacity {high} must be given, and not be crossed."
                )
            self._autoscaler.capacity(key)
            if target is None:
                arn = _arn("application-autoscaling", f"scalable-target/{uuid.uuid4().hex[:28]}")
                kind = "Endpoint" if key.component is None else "InferenceComponent"
                role = f"arn:aws:iam::{account_id()}:role/{SERVICE_ROLE.format(kind)}"
                target = Target(key=key, arn=arn, role=role, low=low, high=high)
            target.low, target.high = low, high
            target.suspended.update(
                {name: suspended[name] for name in SUSPENSIONS if suspended.get(name) is not None}
            )
            self.registry.targets[key] = target
            self._autoscaler.enforce(target)
        return {"ScalableTargetARN": target.arn}

    def _deregister(self, request: Request) -> Request:
        with self.registry.turn:
            self.registry.forget(self.registry.target(_key_of(request)).key)
        return {}

    def _put_policy(self, request: Request) -> Request:
        """Record a scaling policy of a registered target, and create its alarms anew."""
        name = request["PolicyName"]
        with self.registry.turn:
            key = self.registry.target(_key_of(request)).key
            kind, policy = request["PolicyType"], self.registry.policies.get((key, name))
            configuration = request.get(CONFIGURATIONS.get(kind, ""))
            if configuration is None:
                raise validation_error(f"{CONFIGURATIONS.get(kind, kind)} must be specified")
            if policy is None:
                policy = Policy(key=key, name=name, arn=_record_arn(key, "scalingPolicy", name))
            policy.kind, policy.configuration = kind, configuration
            self.registry.policies[(key, name)] = policy
            put_alarms(policy)
        return {"PolicyARN": policy.arn, "Alarms": policy.as_description()["Alarms"]}

    def _delete_policy(self, request: Request) -> Request:
        key, name = _key_of(request), request["PolicyName"]
        with self.registry.turn:
            policy = self.registry.policies.pop((key, name), None)
            if policy is None:
                raise not_found(f"No scaling policy found for {key.text}, policy name: {name}")
            delete_alarms(policy)
        return {}

    def _put_scheduled_action(self, request: Request) -> Request:
        """Record new bounds of a registered target at a time, which no clock here sets."""
        name = request["ScheduledActionName"]
        with self.registry.turn:
            key = self.registry.target(_key_of(request)).key
            self.registry.scheduled[(key, name)] = {
                **request,
                "ScheduledActionARN": _record_arn(key, "scheduledAction", name),
                "CreationTime": time.time(),
            }
        logger.warning("%s: scheduled action %s is kept and not run", key.resource_id, name)
        return {}

    def _delete_scheduled_action(self, request: Request) -> Request:
        key, name = _key_of(request), request["ScheduledActionName"]
        with self.registry.turn:
            if self.registry.scheduled.pop((key, name), None) is None:
                raise not_found(
                    f"No scheduled action found for {key.text}, scheduled action name: {name}"
                )
        return {}


def _describe(
    request: Request, field: str, records: Iterable[Target | Policy | Description]
) -> Request:
    """A page of the records of a request's namespace, resource, dimension and names."""
    if request["ServiceNamespace"] != NAMESPACE:
        return {field: []}
    descriptions = (
        record if isinstance(record, dict) else record.as_description() for record in records
    )
    matching = [record for record in descriptions if _matches(record, request)]
    return page(request, field, matching, min(int(request.get("MaxResults") or PAGE), PAGE))


def _matches(record: Description, request: Request) -> bool:
    single = all(
        request.get(field) in (None, record[field]) for field in ("ResourceId", "ScalableDimension")
    )
    return single and all(
        not request.get(f"{field}s") or record.get(field) in request[f"{field}s"]
        for field in ("ResourceId", "PolicyName", "ScheduledActionName")
    )


def _key_of(request: Request) -> Key:
    """Return the scalable target of a request. Raises AwsError for other services."""
    key = Key(request["ServiceNamespace"], request["ResourceId"], request["ScalableDimension"])
    form = RESOURCES.get(key.dimension)
    if key.namespace != NAMESPACE or form is None or form.fullmatch(key.resource_id) is None:
        raise validation_error("Unsupported service namespace, resource type or scalable dimension")
    return key


def _record_arn(key: Key, kind: str, name: str) -> str:
    resource = f"resource/{key.namespace}/{key.resource_id}"
    field = {"scalingPolicy": "policyName", "scheduledAction": "scheduledActionName"}[kind]
    return _arn("autoscaling", f"{kind}:{uuid.uuid4()}:{resource}:{field}/{name}")


def _arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{region()}:{account_id()}:{rest}"
