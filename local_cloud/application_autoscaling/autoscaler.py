"""Records of Application Auto Scaling by account and region, and alarms that trigger policies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from ministack.core.responses import request_scope

from local_cloud.application_autoscaling.actor import Actor
from local_cloud.application_autoscaling.policy_alarms import delete_alarms
from local_cloud.application_autoscaling.records import (
    Activity,
    Key,
    Policy,
    ScheduledAction,
    Target,
)
from local_cloud.application_autoscaling.requests import not_found
from local_cloud.application_autoscaling.tracking import Breach
from local_cloud.cloudwatch.evaluation import Verdict
from local_cloud.ministack.account import Scoped, account_id, region
from local_cloud.protocol.errors import AwsError

logger = logging.getLogger("roundhouse.scaling")


class Registry:
    """Targets, policies, scheduled actions and activities; `turn` is the lock of all of them."""

    def __init__(self) -> None:
        self.targets: MutableMapping[Key, Target] = Scoped()
        self.policies: MutableMapping[tuple[Key, str], Policy] = Scoped()
        self.scheduled: MutableMapping[tuple[Key, str], ScheduledAction] = Scoped()
        self._activities: MutableMapping[str, list[Activity]] = Scoped()
        self.turn = threading.RLock()

    @property
    def activities(self) -> list[Activity]:
        """The activities of the present account and region, newest first."""
        return self._activities.setdefault("newest first", [])

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """The accounts and regions that have targets."""
        return sorted({key[:2] for key in list(self.targets._data)})  # type: ignore[attr-defined]

    def target(self, key: Key) -> Target:
        """Return a target. Raises AwsError where it is not registered."""
        target = self.targets.get(key)
        if target is None:
            raise not_found(f"No scalable target registered for {key.text}")
        return target

    def variants(self, endpoint: str) -> frozenset[str]:
        """Return the variants of an endpoint that are scalable targets."""
        return frozenset(key.variant for key in self.targets if key.endpoint == endpoint)

    def scales_component(self, name: str) -> bool:
        """Whether an inference component is a scalable target."""
        return any(key.component == name for key in self.targets)

    def policies_of(self, key: Key) -> list[Policy]:
        """Return the policies of one target."""
        return [policy for policy in self.policies.values() if policy.key == key]

    def scheduled_of(self, key: Key) -> list[ScheduledAction]:
        """Return the scheduled actions of one target."""
        return [action for action in self.scheduled.values() if action.key == key]

    def forget(self, key: Key) -> None:
        """Remove a target, its policies with their alarms, and its scheduled actions."""
        for policy in self.policies_of(key):
            delete_alarms(policy)
            del self.policies[(key, policy.name)]
        for action in self.scheduled_of(key):
            del self.scheduled[(key, action.name)]
        self.targets.pop(key, None)


class Autoscaler:
    """Acts on the targets of every account, from one thread."""

    def __init__(self, registry: Registry, actor: Actor) -> None:
        self._registry, self._actor = registry, actor
        self._breaches: list[tuple[tuple[str, str], Breach]] = []

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
        """Follow open activities, and scale for breached alarms."""
        breaches, self._breaches = self._breaches, []
        for scope in self._registry.scopes:
            called = [breach for owner, breach in breaches if owner == scope]
            with request_scope(*scope), self._registry.turn:
                self._actor.follow(self._registry.targets, self._registry.activities)
                for target in list(self._registry.targets.values()):
                    self._step_target(target, called, now)

    def _step_target(self, target: Target, breaches: Sequence[Breach], now: float) -> None:
        """A target whose resource is gone is removed."""
        registry = self._registry
        try:
            self._actor.resources.state(target.key)
        except AwsError:
            registry.forget(target.key)
            return
        policies = registry.policies_of(target.key)
        try:
            self._actor.act(target, policies, breaches, registry.activities, now)
        except AwsError as error:
            logger.warning("%s: %s", target.key.resource_id, error.message)
