"""What an endpoint's alarms have in common: their subject and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, DeployedEndpoint
from onboarding.metrics import Alarm, Metric, MetricMath, VariantMetrics
from stacks.scaling import named_id

MICROSECONDS_A_MILLISECOND = 1000
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
        watched: Metric | MetricMath,
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


def percent(share: float) -> str:
    """Return a share for people."""
    return f"{share * 100:.3g} %"
