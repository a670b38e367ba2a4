"""Application Auto Scaling at work.

Alarms call on policies, schedules fall due, and endpoints are scaled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.core.responses import request_scope

from local_cloud.application_autoscaling.actor import Actor
from local_cloud.application_autoscaling.breach import Breach
from local_cloud.application_autoscaling.records import Target
from local_cloud.application_autoscaling.registry import Registry
from local_cloud.cloudwatch.evaluation import Verdict
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.errors import AwsError

logger = logging.getLogger("roundhouse.scaling")


class Autoscaler:
    """Acts on the targets of every account, from one thread."""

    def __init__(self, registry: Registry, actor: Actor) -> None:
        self._registry, self._actor = registry, actor
        self._breaches: list[tuple[tuple[str, str], Breach]] = []

    def is_tracked(self, endpoint: str, variant: str) -> bool:
        """Whether a variant of the account and region in hand is a scalable target."""
        return any(
            key.endpoint == endpoint and key.variant == variant for key in self._registry.targets
        )

    def take_alarm_action(self, action: str, alarm: Mapping[str, Any], found: Verdict) -> None:
        """Takes an alarm's call on a policy.

        It is answered at the next step, together with the other alarms' calls.
        """
        if ":scalingPolicy:" in action:
            breach = Breach(
                policy_arn=action,
                alarm=str(alarm["AlarmName"]),
                values=found.values,
                threshold=float(alarm["Threshold"]),
                below=str(alarm["ComparisonOperator"]).startswith("Less"),
            )
            self._breaches.append(((account_id(), region()), breach))

    def step(self, now: float) -> None:
        """Follows open activities, runs due scheduled actions, and scales as alarms have asked."""
        breaches, self._breaches = self._breaches, []
        for scope in self._registry.scopes:
            with request_scope(*scope), self._registry.turn:
                self._actor.follow(self._registry.targets, self._registry.activities)
                for target in list(self._registry.targets.values()):
                    self._step(
                        target, [breach for owner, breach in breaches if owner == scope], now
                    )

    def _step(self, target: Target, breaches: Sequence[Breach], now: float) -> None:
        """One target; that of an endpoint which is gone goes too."""
        try:
            self._actor.endpoints.endpoint_named(target.key.endpoint)
        except AwsError:
            self._registry.forget(target.key)
            return
        kept = self._registry.activities
        for action in list(self._registry.scheduled_of(target.key)):
            self._actor.tick(action, target, kept, now)
        try:
            self._actor.act(
                target, list(self._registry.policies_of(target.key)), breaches, kept, now
            )
        except AwsError as error:
            logger.warning("%s: %s", target.key.resource_id, error.message)
