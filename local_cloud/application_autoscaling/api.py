"""Application Auto Scaling's API for endpoint variants and inference components."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from ministack.core.responses import request_scope

from local_cloud.account import account_id, region
from local_cloud.application_autoscaling.autoscaler import Autoscaler, Breach
from local_cloud.application_autoscaling.records import (
    CONFIGURATIONS,
    NAMESPACE,
    RESOURCES,
    SUSPENSIONS,
    Key,
    Policy,
    Target,
    not_found,
)
from local_cloud.application_autoscaling.registry import Registry, delete_alarms, put_alarms
from local_cloud.cloudwatch.evaluation import Verdict
from local_cloud.protocol.constraints import SCALING, checked_actions
from local_cloud.protocol.errors import Actions, Reply, Request, dispatch, validation_error
from local_cloud.protocol.listing import page

logger = logging.getLogger("roundhouse.scaling")
PAGE = 50


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
            "DescribeScalableTargets": self._describe,
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

    def _register(self, request: Request) -> Request:
        """Register a target or change its bounds, and bring its variant within them."""
        key, suspended = _key_of(request), request.get("SuspendedState") or {}
        if request.get("ScheduledActions"):
            logger.warning("%s: the local cloud runs no scheduled actions", key.resource_id)
        with self.registry.turn:
            target = self.registry.targets.get(key)
            present = (None, None) if target is None else (target.low, target.high)
            given = (request.get("MinCapacity"), request.get("MaxCapacity"))
            low, high = (
                old if new is None else new for old, new in zip(present, given, strict=True)
            )
            if low is None or high is None or not 0 <= low <= high:
                raise validation_error(
                    f"MinCapacity {low} and MaxCapacity {high} must be given, and not be crossed."
                )
            self._autoscaler.capacity(key)
            if target is None:
                arn = _arn("application-autoscaling", f"scalable-target/{uuid.uuid4().hex[:28]}")
                target = Target(key=key, arn=arn, low=low, high=high)
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

    def _describe(self, request: Request) -> Request:
        """Return a page of the targets of a request's namespace, dimension and resources."""
        dimension, resources = request.get("ScalableDimension"), request.get("ResourceIds")
        targets = [
            target.as_description()
            for key, target in self.registry.targets.items()
            if key.namespace == request["ServiceNamespace"]
            and dimension in (None, key.dimension)
            and (not resources or key.resource_id in resources)
        ]
        size = min(int(request.get("MaxResults") or PAGE), PAGE)
        return page(request, "ScalableTargets", targets, size)

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
                resource = f"resource/{key.namespace}/{key.resource_id}:policyName/{name}"
                arn = _arn("autoscaling", f"scalingPolicy:{uuid.uuid4()}:{resource}")
                policy = Policy(key=key, name=name, arn=arn)
            policy.kind, policy.configuration = kind, configuration
            self.registry.policies[(key, name)] = policy
            put_alarms(policy)
        alarms = [{"AlarmName": name, "AlarmARN": arn} for name, arn in policy.alarms.items()]
        return {"PolicyARN": policy.arn, "Alarms": alarms}

    def _delete_policy(self, request: Request) -> Request:
        key, name = _key_of(request), request["PolicyName"]
        with self.registry.turn:
            policy = self.registry.policies.pop((key, name), None)
            if policy is None:
                raise not_found("No scaling policy found", key, f", policy name: {name}")
            delete_alarms(policy)
        return {}


def _key_of(request: Request) -> Key:
    """Return the scalable target of a request. Raises AwsError for other services."""
    key = Key(request["ServiceNamespace"], request["ResourceId"], request["ScalableDimension"])
    form = RESOURCES.get(key.dimension)
    if key.namespace != NAMESPACE or form is None or form.fullmatch(key.resource_id) is None:
        raise validation_error("Unsupported service namespace, resource type or scalable dimension")
    return key


def _arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{region()}:{account_id()}:{rest}"
