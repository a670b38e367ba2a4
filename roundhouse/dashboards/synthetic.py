"""CloudWatch's metrics of a synthetic day, answered as CloudWatch answers: a statistic of a metric
over periods.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from local_cloud.cloudwatch.series import Found, Question, Series
from onboarding import names
from onboarding.deployment import Deployment, Variant
from roundhouse.dashboards.day import MINUTES, Minute, variant_day
from roundhouse.dashboards.minutes import Sample, sample
from template_rules.metric_facts import HOST, INVOCATIONS, METRICS, MetricFacts

Key = tuple[str, str, tuple[tuple[str, str], ...]]
PERIOD = 60.0
REDUCED: dict[str, Callable[[Sequence[Sample]], float]] = {
    "Sum": lambda found: sum(each.total for each in found),
    "SampleCount": lambda found: sum(each.count for each in found),
    "Average": lambda found: sum(each.total for each in found) / sum(each.count for each in found),
    "Maximum": lambda found: max(each.high for each in found),
    "Minimum": lambda found: min(each.low for each in found),
}


@dataclass(frozen=True, kw_only=True)
class SyntheticMetrics:
    """Metrics of endpoints whose days begin at `start`, in seconds since the epoch."""

    start: float
    days: Mapping[Key, tuple[Deployment, Variant, tuple[Minute, ...]]]

    @classmethod
    def of(cls, deployments: Sequence[Deployment], start: float) -> SyntheticMetrics:
        """Of every variant."""
        days = {}
        for deployment in deployments:
            for variant in deployment.variants:
                day = variant_day(deployment, variant)
                for namespace, name, dimensions in _published(deployment, variant):
                    days[(namespace, name, dimensions)] = (deployment, variant, day)
        return cls(start=start, days=days)

    def listed(self) -> list[Found]:
        """Every metric."""
        return [
            Found(namespace=space, name=name, dimensions=dict(of)) for space, name, of in self.days
        ]

    def read(self, question: Question, period: float) -> Series:
        """One statistic; empty for a metric that nobody publishes."""
        found = self.days.get(
            (question.namespace, question.name, tuple(sorted(question.dimensions.items())))
        )
        if found is None:
            return {}
        deployment, variant, day = found
        width = max(1, round(period / PERIOD))
        series: dict[float, float] = {}
        for begin in range(0, MINUTES, width):
            samples = [
                sample(question.name, each, deployment, variant)
                for each in day[begin : begin + width]
            ]
            there = [each for each in samples if each is not None and each.count > 0]
            if there:
                series[self.start + begin * PERIOD] = reduced(question.statistic, there)
        return series


def reduced(statistic: str, samples: Sequence[Sample]) -> float:
    """One statistic over samples; a percentile over several is the mean of theirs."""
    if statistic.startswith("p"):
        return statistics.fmean(each.percentile(float(statistic[1:])) for each in samples)
    return REDUCED[statistic](samples)


def _published(deployment: Deployment, variant: Variant) -> Iterator[Key]:
    endpoint = ("EndpointName", names.endpoint_name(deployment.environment, deployment.name))
    for namespace in (INVOCATIONS, HOST):
        for name, facts in METRICS[namespace].items():
            if _has(name, facts, deployment, variant):
                of_variant = ("VariantName",) in [each[1:] for each in facts.dimensions]
                yield (
                    namespace,
                    name,
                    (endpoint, ("VariantName", variant.name)) if of_variant else (endpoint,),
                )


def _has(name: str, facts: MetricFacts, deployment: Deployment, variant: Variant) -> bool:
    queued = deployment.endpoint.asynchronous is not None
    if name.startswith("GPU") and not variant.instance_type.is_gpu:
        return False
    kinds = {
        "any": True,
        "real-time": not queued,
        "asynchronous": queued,
        "serverless": False,
        "multi-model": deployment.multi_model,
    }
    return kinds[facts.kind]
