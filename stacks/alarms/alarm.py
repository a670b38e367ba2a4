"""What an endpoint's alarms have in common: their subject, their names, who rolls back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onboarding import arns, names
from onboarding.aws_limits import ROLLBACK_ALARM_COUNT
from onboarding.deployment import VARIANT, DeployedEndpoint
from onboarding.metrics import Alarm, Metric, MetricMath, PromQL, VariantMetrics
from stacks.scaling.targets import named_id

MICROSECONDS_A_MILLISECOND, MICROSECONDS_A_SECOND = 1000, 1_000_000
ROLLBACK_ORDER = (
    "server-errors",
    "component-errors",
    "no-answers",
    "stream-errors",
    "first-token",
    "latency",
    "client-errors",
)
"""SageMaker watches ten alarms: with many variants those whose kinds are first here."""
EARLY = {"early-5xx": "EarlyServerErrors", "early-4xx": "EarlyClientErrors"}
"""Ids of kinds that are named by the status; other ids are the kind in PascalCase."""


@dataclass(frozen=True)
class Subject:
    """What alarms watch: one variant of an endpoint, or its own variant and the whole endpoint."""

    deployment: DeployedEndpoint
    variant: str = VARIANT

    @property
    def endpoint(self) -> str:
        """SageMaker's name of the endpoint."""
        return names.endpoint_name(self.deployment.environment, self.deployment.name)

    @property
    def metrics(self) -> VariantMetrics:
        """The metrics of the variant."""
        return VariantMetrics(self.endpoint, self.variant)

    def alarm(
        self,
        kind: str,
        watched: Metric | MetricMath | PromQL,
        explanation: str,
        **options: Any,
    ) -> Alarm:
        """Return an alarm; the name of a joined variant stands behind two hyphens.

        No name has those in a row.
        """
        is_own = self.variant == VARIANT
        part = EARLY.get(kind, kind.title().replace("-", ""))
        return Alarm(
            id=named_id(self.variant, part),
            kind=kind,
            name=f"{self.endpoint}-{kind}{'' if is_own else f'--{self.variant}'}",
            subject=self.endpoint if is_own else f"{self.endpoint}, {self.variant}",
            explanation=explanation,
            variant=self.variant,
            watched=watched,
            **options,
        )


def rollback_alarms(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return those that take a new version back, the gravest first."""
    found = [alarm for alarm in alarms if alarm.rolls_back]
    return sorted(found, key=lambda alarm: ROLLBACK_ORDER.index(alarm.kind))


def watched_in_rollouts(alarms: Iterable[Alarm]) -> tuple[str, ...]:
    """Return the names of those that SageMaker watches during a rollout, ten at most."""
    return tuple(alarm.name for alarm in rollback_alarms(alarms)[:ROLLBACK_ALARM_COUNT])


def alarm_arn(deployment: DeployedEndpoint, alarm: Alarm) -> str:
    """Return what a dashboard calls the alarm."""
    return arns.arn(deployment.environment, "cloudwatch", f"alarm:{alarm.name}")


def series(name: str, labels: Iterable[tuple[str, str]]) -> str:
    """Return the PromQL selector of a series, whose names and labels may hold dots."""
    matchers = "".join(f', "{label}"="{value}"' for label, value in labels)
    return f'{{"{name}"{matchers}}}'


def percent(share: float) -> str:
    """Return a share for people."""
    return f"{share * 100:.3g} %"
