"""Application Auto Scaling's API.

Scalable targets, policies and scheduled actions of endpoint variants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

from local_cloud.application_autoscaling.activities import capacity
from local_cloud.application_autoscaling.actor import Actor
from local_cloud.application_autoscaling.descriptions import (
    activity_descriptions,
    matching_records,
    policy_description,
)
from local_cloud.application_autoscaling.new_records import new_policy, new_target, scheduled_action
from local_cloud.application_autoscaling.policy_alarms import alarm_arn, delete_alarms, put_alarms
from local_cloud.application_autoscaling.records import Key, Policy, Target
from local_cloud.application_autoscaling.registry import Registry, scalable_target_text
from local_cloud.application_autoscaling.requests import (
    CONFIGURATIONS,
    STEP,
    TRACKING,
    check_bounds,
    check_policy,
    key_of,
    not_found,
    suspensions,
    whole,
    with_numbers,
)
from local_cloud.protocol.constraints import SCALING, checked_request
from local_cloud.protocol.errors import Actions, Reply, Request, dispatch


class Scaling:
    """Answers the `AnyScaleFrontendService.*` actions; what it records, the autoscaler acts on."""

    def __init__(self, registry: Registry, actor: Actor) -> None:
        self.registry, self._actor = registry, actor
        answers: Actions = {
            "RegisterScalableTarget": self.register,
            "DescribeScalableTargets": self.describe_targets,
            "DeregisterScalableTarget": self.deregister,
            "PutScalingPolicy": self.put_policy,
            "DescribeScalingPolicies": self.describe_policies,
            "DeleteScalingPolicy": self.delete_policy,
            "PutScheduledAction": self.put_scheduled_action,
            "DescribeScheduledActions": self.describe_scheduled_actions,
            "DeleteScheduledAction": self.delete_scheduled_action,
            "DescribeScalingActivities": self.describe_activities,
        }
        self.actions: Actions = {
            name: partial(_check_request, name, action) for name, action in answers.items()
        }

    @property
    def targets(self) -> MutableMapping[Key, Target]:
        """The scalable targets of the account and region in hand."""
        return self.registry.targets

    def answer(self, target: str, body: bytes) -> Reply:
        """Answers one request of the JSON 1.1 protocol."""
        return dispatch("scaling", self.actions, target, body)

    def register(self, request: Request) -> Request:
        """Registers a scalable target or changes its bounds, and brings its variant within them."""
        key = key_of(request)
        with self.registry.turn:
            found = self.registry.targets.get(key)
            low, high = whole(request, "MinCapacity"), whole(request, "MaxCapacity")
            if found is not None:
                low, high = found.low if low is None else low, found.high if high is None else high
            low, high = check_bounds(low, high)
            capacity(self._actor.endpoints, key)
            target = new_target(key, low, high) if found is None else found
            target.low, target.high = low, high
            target.suspended.update(suspensions(request))
            self.registry.targets[key] = target
            self._actor.enforce(target, self.registry.activities)
        return {"ScalableTargetARN": target.arn}

    def declare(self, properties: Request) -> Request:
        """Registers a target as a template describes it: with exactly its scheduled actions."""
        key, declared = key_of(properties), properties.get("ScheduledActions") or ()
        names = {str(action["ScheduledActionName"]) for action in declared}
        with self.registry.turn:
            reply = self.actions["RegisterScalableTarget"](properties)
            for action in list(self.registry.scheduled_of(key)):
                if action.name not in names:
                    del self.registry.scheduled[(key, action.name)]
            for action in declared:
                self.actions["PutScheduledAction"]({**key.as_description(), **action})
        return reply

    def deregister(self, request: Request) -> Request:
        """Forgets a scalable target, its policies with their alarms, and its scheduled actions."""
        with self.registry.turn:
            self.registry.forget(self.registry.target(key_of(request)).key)
        return {}

    def put_policy(self, request: Request) -> Request:
        """Records a scaling policy of a registered target, and makes its alarms anew."""
        with self.registry.turn:
            key, name = (
                self.registry.target(key_of(request)).key,
                str(request.get("PolicyName") or ""),
            )
            found = self.registry.policies.get((key, name))
            kind = str(request.get("PolicyType") or (found.kind if found else _kind(request)))
            given = request.get(CONFIGURATIONS.get(kind, ""))
            configuration = (
                found.configuration
                if given is None and found is not None and found.kind == kind
                else given
            )
            others = [item for item in self.registry.policies_of(key) if item.name != name]
            check_policy(request, kind, configuration, others)
            policy = new_policy(key, name) if found is None else found
            policy.kind, policy.configuration = kind, with_numbers(configuration)
            self.registry.policies[(key, name)] = policy
            put_alarms(policy)
        return {"PolicyARN": policy.arn, "Alarms": _policy_description(policy)["Alarms"]}

    def delete_policy(self, request: Request) -> Request:
        """Forgets a scaling policy and deletes its alarms."""
        key, name = key_of(request), str(request.get("PolicyName") or "")
        with self.registry.turn:
            policy = self.registry.policies.pop((key, name), None)
            if policy is None:
                raise not_found(
                    f"No scaling policy found for {scalable_target_text(key)}, policy name: {name}"
                )
            delete_alarms(policy)
        return {}

    def put_scheduled_action(self, request: Request) -> Request:
        """Records new bounds of a registered target at a time, or changes them."""
        with self.registry.turn:
            key, name = (
                self.registry.target(key_of(request)).key,
                str(request.get("ScheduledActionName") or ""),
            )
            found = self.registry.scheduled.get((key, name))
            pace = self._actor.stretch * 60
            self.registry.scheduled[(key, name)] = scheduled_action(key, request, found, pace)
        return {}

    def delete_scheduled_action(self, request: Request) -> Request:
        """Forgets a scheduled action."""
        key, name = key_of(request), str(request.get("ScheduledActionName") or "")
        with self.registry.turn:
            if self.registry.scheduled.pop((key, name), None) is None:
                raise not_found(
                    f"No scheduled action found for {scalable_target_text(key)}, scheduled "
                    f"action name: {name}"
                )
        return {}

    def describe_targets(self, request: Request) -> Request:
        """The scalable targets of a namespace, or of the named resources."""
        return matching_records(
            request,
            "ScalableTargets",
            [target.as_description() for target in self.registry.targets.values()],
        )

    def describe_policies(self, request: Request) -> Request:
        """The scaling policies of a namespace, of one resource, or of the given names."""
        return matching_records(
            request, "ScalingPolicies", map(_policy_description, self.registry.policies.values())
        )

    def describe_scheduled_actions(self, request: Request) -> Request:
        """The scheduled actions of a namespace, of one resource, or of the given names."""
        return matching_records(
            request,
            "ScheduledActions",
            [item.as_description() for item in self.registry.scheduled.values()],
        )

    def describe_activities(self, request: Request) -> Request:
        """What scaling has done, newest first."""
        return matching_records(
            request, "ScalingActivities", activity_descriptions(request, self.registry.activities)
        )


def _check_request(name: str, action: Callable[[Request], Request], request: Request) -> Request:
    """Holds a request against the API model first."""
    return action(checked_request(name, request, SCALING))


def _policy_description(policy: Policy) -> dict[str, Any]:
    return policy_description(policy, list(map(alarm_arn, policy.alarms)))


def _kind(request: Request) -> str:
    return STEP if request.get(CONFIGURATIONS[STEP]) is not None else TRACKING


TARGET_PARTS = 4


def scaled_variants(targets: Iterable[tuple[str, ...]], endpoint: str) -> frozenset[str]:
    """Variants of an endpoint that are scalable targets."""
    resources = (
        resource.split("/") for namespace, resource, _ in targets if namespace == "sagemaker"
    )
    return frozenset(
        parts[3]
        for parts in resources
        if len(parts) == TARGET_PARTS and parts[:2] == ["endpoint", endpoint]
    )
