"""Application Auto Scaling at work: alarms trigger policies."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.core.responses import request_scope

from local_cloud.application_autoscaling.actor import Actor
from local_cloud.application_autoscaling.records import Target
from local_cloud.application_autoscaling.registry import Registry
from local_cloud.application_autoscaling.tracking import Breach
from local_cloud.cloudwatch.evaluation import Verdict
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.errors import AwsError

logger = logging.getLogger("roundhouse.scaling")


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
