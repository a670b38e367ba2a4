"""Alarms on failed requests, latency, load and queues, by what was promised and measured.

The servers differ in whose fault a status names (docs/serving.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from onboarding.deployment import Deployment, Variant
from onboarding.metrics import INVOCATIONS
from stacks.alarms.alarm import (
    AT_LEAST,
    MICROSECONDS_A_MILLISECOND,
    Alarm,
    Computed,
    Metric,
    percent,
    variant_metric,
)
from stacks.capacity.variant import drift_limit, variant_capacity
from stacks.rollout import ready_seconds, step_percent
from stacks.scaling.resources import endpoint_dimensions
from stacks.scaling.targets import SECONDS_A_MINUTE, invocations_target, most, scaled_variants

SERVER_ERRORS, CLIENT_ERRORS = "Invocation5XXErrors", "Invocation4XXErrors"
FEW = {SERVER_ERRORS: 0.01, CLIENT_ERRORS: 0.05}
"""Shares of the requests at which people want to know."""
LOST_SHARE = 0.01
LEAST_FAILED = 3
"""Failed requests in a minute, below which a share says nothing, unless every request failed."""
UNANSWERED = "time-outs, and connections that broke"
FEW_REQUESTS = 300
"""A minute, below which p99 is one of the slowest three: chance would take sound versions back."""
COUNT = "FLOOR(requests / each + 0.5)"
"""Instances: every request adds 1 to the one metric, and 1/instances to the other."""
SCALING_SECONDS = 300
"""Until scaling has seen the backlog and asked for an instance."""
MetricOf = Callable[[str, str], Metric]
"""One statistic of a metric, by the names of both."""


def error_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield alarms on errors of the server, of clients, and on requests without an answer."""
    mixed = mixed_metric(deployment, variant)
    for metric, noun, status in (
        (SERVER_ERRORS, "server", "5xx"),
        (CLIENT_ERRORS, "client", "4xx"),
    ):
        few, part = FEW[metric], f"{noun.capitalize()}Errors"
        share = max(few, broken_share(deployment, variant)) if metric == mixed else few
        faults = metric in (SERVER_ERRORS, mixed)
        alarm = partial(_errors, deployment, variant, metric)
        yield alarm(part, f"{noun}-errors", share, rolls_back=faults and variant.role != "shadow")
        if share > few:
            yield alarm(f"Early{part}", f"early-{status}", few, rolls_back=False)
    yield _no_answers(deployment, variant)


def mixed_metric(deployment: Deployment, variant: Variant) -> str | None:
    """Return the metric in which a broken engine and a client's mistake look alike.

    None where the server keeps them apart. Triton says 500 to a malformed request of a single-model
    endpoint, and 400 to every failed inference of a multi-model one.
    """
    if variant.server != "triton":
        return None
    return CLIENT_ERRORS if deployment.multi_model else SERVER_ERRORS


def broken_share(deployment: Deployment, variant: Variant) -> float:
    """Return half the failures that a wholly broken version shows in its first step.

    Less may well be a client's mistake. The metric counts the old fleet's requests as well as the
    new one's. A shadow has no rollout, and takes nothing back.
    """
    return 0.0 if variant.role == "shadow" else step_percent(deployment) / 200


def _errors(
    deployment: Deployment,
    variant: Variant,
    metric: str,
    part: str,
    kind: str,
    share: float,
    *,
    rolls_back: bool,
) -> Alarm:
    is_mixed = metric == mixed_metric(deployment, variant)
    mixed = " (Triton counts clients' malformed requests there too)" if is_mixed else ""
    return Alarm(
        part=part,
        kind=kind,
        variant=variant,
        watched=failed_share(partial(variant_metric, deployment, variant.name), metric),
        threshold=share,
        explanation=(
            f"{metric} is over {percent(share)} of the requests, {LEAST_FAILED} or more in a"
            f" minute, or all of them{mixed}"
        ),
        rolls_back=rolls_back,
    )


def _no_answers(deployment: Deployment, variant: Variant) -> Alarm:
    """Alarm on requests that failed under no status.

    SageMaker counts them among the model's errors. A queue publishes no `InvocationModelErrors`
    (SageMaker developer guide, "Monitor asynchronous endpoints"), and counts failures itself.
    """
    metric = partial(variant_metric, deployment, variant.name)
    reason, watched = UNANSWERED, unanswered_share(metric)
    if deployment.endpoint.asynchronous is not None:
        reason = "time-outs, and requests or answers that did not pass through S3"
        # Whether what failed counts as processed too, AWS does not say: with both below the line
        # the share is never too high.
        watched = Computed(
            expression=(
                f"IF(failed >= {LEAST_FAILED} OR failed >= FILL(processed, 0), "
                "(failed - FILL(clients, 0) - FILL(servers, 0)) / (failed + FILL(processed, 0)), 0)"
            ),
            label=watched.label,
            metrics={
                "failed": metric("InvocationFailures", "Sum"),
                "processed": metric("InvocationsProcessed", "Sum"),
                "clients": metric(CLIENT_ERRORS, "Sum"),
                "servers": metric(SERVER_ERRORS, "Sum"),
            },
        )
    return Alarm(
        part="NoAnswers",
        kind="no-answers",
        variant=variant,
        watched=watched,
        threshold=LOST_SHARE,
        explanation=f"over {percent(LOST_SHARE)} of the requests got no answer: {reason}",
        rolls_back=variant.role != "shadow",
    )


def failed_share(metric: MetricOf, name: str) -> Computed:
    """Return the share of the requests that a metric counts; 0 where few failed, and not all."""
    return Computed(
        expression=f"IF(failed >= {LEAST_FAILED} OR share == 1, share, 0)",
        label=f"{name}, share",
        # The metric is 0 or 1 for each invocation, so its average is a share.
        metrics={"share": metric(name, "Average"), "failed": metric(name, "Sum")},
    )


def unanswered_share(metric: MetricOf) -> Computed:
    """Return the share of the requests that failed under no status."""
    return Computed(
        expression=f"IF(failed >= {LEAST_FAILED} OR every == 1, every - clients - servers, 0)",
        label="requests without an answer, share",
        metrics={
            "every": metric("InvocationModelErrors", "Average"),
            "failed": metric("InvocationModelErrors", "Sum"),
            "clients": metric(CLIENT_ERRORS, "Average"),
            "servers": metric(SERVER_ERRORS, "Average"),
        },
    )


def latency_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield the alarm of the SLO, and an early warning below it."""
    latency = partial(variant_metric, deployment, variant.name, "ModelLatency")
    slo, limit = deployment.endpoint.latency_slo_ms, drift_limit(deployment, variant)
    if slo is not None:
        yield Alarm(
            part="Latency",
            kind="latency",
            variant=variant,
            watched=Computed(
                expression=f"IF(requests >= {FEW_REQUESTS}, p99, p95)",
                label="model latency, microseconds: p99, of few requests p95",
                metrics={
                    "requests": latency("SampleCount"),
                    "p99": latency("p99"),
                    "p95": latency("p95"),
                },
            ),
            threshold=slo * MICROSECONDS_A_MILLISECOND,
            explanation=(
                f"p99 model latency is over the SLO of {slo:g} ms; p95 in a minute of fewer than"
                f" {FEW_REQUESTS} requests"
            ),
            rolls_back=variant.role != "shadow",
        )
    if limit is not None:
        yield Alarm(
            part="Drift",
            kind="drift",
            variant=variant,
            watched=latency("p99"),
            threshold=limit.milliseconds * MICROSECONDS_A_MILLISECOND,
            points=10,
            periods=15,
            explanation=f"p99 model latency is over {limit.milliseconds} ms: {limit.derivation}",
        )


def load_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """None for a queue, which has a length instead, nor for a shadow, whose count nothing moves."""
    if deployment.endpoint.asynchronous is not None or variant.role == "shadow":
        return
    each = variant_metric(deployment, variant.name, "InvocationsPerInstance", "Sum")
    alarm = partial(Alarm, variant=variant, points=10, periods=15)
    capacity = variant_capacity(deployment, variant)
    if capacity is not None:
        yield alarm(
            part="Saturation",
            kind="saturation",
            watched=each,
            threshold=measured_per_minute(capacity.requests_per_second),
            explanation=(
                "an instance has more requests than were measured within the SLO:"
                f" {capacity.derivation} x {SECONDS_A_MINUTE} s"
            ),
        )
    target, count = invocations_target(deployment, variant), most(variant)
    if target is not None and variant in scaled_variants(deployment):
        requests = variant_metric(deployment, variant.name, "Invocations", "Sum")
        # At its most instances alone a variant may be well.
        yield alarm(
            part="Ceiling",
            kind="ceiling",
            watched=Computed(
                expression=f"IF(each > {target.value:.10g}, {COUNT}, 0)",
                label="instances, while each has more requests than scaling aims at",
                metrics={"requests": requests, "each": each},
            ),
            threshold=count,
            comparison=AT_LEAST,
            explanation=(
                f"all {count} instances that it may have are there, each with over the"
                f" {target.value:.10g} requests a minute that scaling aims at: raise scaling.max"
            ),
        )


def measured_per_minute(requests_per_second: float) -> float:
    """Requests a minute, to a tenth."""
    return round(requests_per_second * SECONDS_A_MINUTE, 1)


def queue_alarms(deployment: Deployment) -> Iterator[Alarm]:
    """Yield the alarm that the oldest request waits longer than one more instance takes to come.

    None for an endpoint that answers at once.
    """
    if deployment.endpoint.asynchronous is None:
        return
    limit = longest_wait_seconds(deployment)
    yield Alarm(
        part="OldestRequest",
        kind="oldest-request",
        variant=None,
        watched=Metric(
            namespace=INVOCATIONS,
            name="ApproximateAgeOfOldestRequest",
            dimensions=endpoint_dimensions(deployment),
            statistic="Maximum",
        ),
        threshold=limit,
        explanation=(
            f"the oldest request has waited over {limit} s: one more instance takes"
            f" {ready_seconds(deployment, deployment.own)} s at most, and scaling {SCALING_SECONDS}"
            " s to ask for it"
        ),
    )


def longest_wait_seconds(deployment: Deployment) -> int:
    """What scaling out may take, whole."""
    return SCALING_SECONDS + ready_seconds(deployment, deployment.own)
