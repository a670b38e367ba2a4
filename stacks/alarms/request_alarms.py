"""Alarms on failed requests, latency, load and queues, by what was promised and measured.

The servers differ in whose fault a status names (docs/serving.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onboarding.deployment import Deployment, Variant
from onboarding.metrics import AT_LEAST, Alarm, Metric, MetricMath
from stacks.alarms.alarm import MICROSECONDS_A_MILLISECOND, Subject, percent
from stacks.capacity.variant import drift_limit, variant_capacity
from stacks.rollout import ready_seconds, step_percent
from stacks.scaling import SECONDS_A_MINUTE, invocations_target, most, scaled_variants

SERVER_ERRORS, CLIENT_ERRORS = "Invocation5XXErrors", "Invocation4XXErrors"
FEW = {SERVER_ERRORS: 0.01, CLIENT_ERRORS: 0.05}
"""Shares of the requests at which people want to know."""
LOST_SHARE = 0.01
LEAST_FAILED = 3
"""Failed requests in a minute, below which a share says nothing, unless every request failed."""
UNANSWERED = "time-outs, and connections that broke"
UNANSWERED_LABEL = "requests without an answer, share"
FEW_REQUESTS = 300
"""A minute, below which p99 is one of the slowest three: chance would take sound versions back."""
COUNT = "FLOOR(requests / each + 0.5)"
"""Instances: every request adds 1 to the one metric, and 1/instances to the other."""
SCALING_SECONDS = 300
"""Until scaling has seen the backlog and asked for an instance."""


def error_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield alarms on errors of the server, of clients, and on requests without an answer."""
    subject, takes_back = Subject(deployment, variant.name), variant.role != "shadow"
    mixed = mixed_metric(deployment, variant)
    broken = broken_share(deployment, variant)
    for name, noun, status in (
        (SERVER_ERRORS, "server", "5xx"),
        (CLIENT_ERRORS, "client", "4xx"),
    ):
        few, is_mixed = FEW[name], name == mixed
        share = max(few, broken) if is_mixed else few
        what = "" if not is_mixed else " (Triton counts clients' malformed requests there too)"
        faults = (name == SERVER_ERRORS or is_mixed) and takes_back
        kinds = [(f"{noun}-errors", share, faults)]
        kinds += [(f"early-{status}", few, False)] if share > few else []
        for kind, limit, rolls_back in kinds:
            yield subject.alarm(
                kind,
                failed_share(subject, name),
                f"{name} is over {percent(limit)} of the requests, {LEAST_FAILED} or more in a"
                f" minute, or all of them{what}",
                threshold=limit,
                rolls_back=rolls_back,
            )
    if deployment.is_component:
        yield component_errors(subject, max(FEW[SERVER_ERRORS], broken))
    queued = deployment.endpoint.asynchronous is not None
    reason = "time-outs, and requests or answers that did not pass through S3"
    yield no_answers(
        subject,
        _queue_unanswered_share(subject) if queued else unanswered_share(subject),
        reason if queued else UNANSWERED,
        rolls_back=takes_back,
    )


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


def no_answers(subject: Subject, watched: MetricMath, reason: str, *, rolls_back: bool) -> Alarm:
    """Return the alarm on requests that failed under no status."""
    explanation = f"over {percent(LOST_SHARE)} of the requests got no answer: {reason}"
    return subject.alarm(
        "no-answers", watched, explanation, threshold=LOST_SHARE, rolls_back=rolls_back
    )


def component_errors(subject: Subject, share: float, mixed: str = "") -> Alarm:
    """Return the alarm on failures of an inference component's copies, by its own metric."""
    metric = partial(subject.metrics.component, SERVER_ERRORS)
    return subject.alarm(
        "component-errors",
        share_of(metric("Average"), metric("Sum")),
        f"{SERVER_ERRORS} of the component is over {percent(share)} of its requests{mixed}",
        threshold=share,
        rolls_back=True,
    )


def failed_share(subject: Subject, name: str) -> MetricMath:
    """Return the share of the requests that a metric counts; 0 where few failed, and not all."""
    metric = subject.metrics.invocations
    return share_of(metric(name, "Average"), metric(name, "Sum"))


def share_of(share: Metric, failed: Metric) -> MetricMath:
    """Return a metric's average over requests, each 0 or 1; 0 where few failed, and not all."""
    return MetricMath(
        expression=f"IF(failed >= {LEAST_FAILED} OR share == 1, share, 0)",
        label=f"{share.name}, share",
        metrics={"share": share, "failed": failed},
    )


def unanswered_share(subject: Subject) -> MetricMath:
    """Return the share of the requests that SageMaker counts as errors, and no status does."""
    return MetricMath(
        expression=f"IF(failed >= {LEAST_FAILED} OR every == 1, every - clients - servers, 0)",
        label=UNANSWERED_LABEL,
        metrics={
            "every": subject.metrics.invocations("InvocationModelErrors", "Average"),
            "failed": subject.metrics.invocations("InvocationModelErrors", "Sum"),
            "clients": subject.metrics.invocations(CLIENT_ERRORS, "Average"),
            "servers": subject.metrics.invocations(SERVER_ERRORS, "Average"),
        },
    )


def _queue_unanswered_share(subject: Subject) -> MetricMath:
    """Return the same share of a queue, which counts failures itself.

    It publishes no `InvocationModelErrors` (SageMaker developer guide, "Monitor asynchronous
    endpoints"). Whether what failed counts as processed too, AWS does not say: with both below the
    line the share is never too high.
    """
    return MetricMath(
        expression=(
            f"IF(failed >= {LEAST_FAILED} OR failed >= FILL(processed, 0), "
            "(failed - FILL(clients, 0) - FILL(servers, 0)) / (failed + FILL(processed, 0)), 0)"
        ),
        label=UNANSWERED_LABEL,
        metrics={
            "failed": subject.metrics.invocations("InvocationFailures", "Sum"),
            "processed": subject.metrics.invocations("InvocationsProcessed", "Sum"),
            "clients": subject.metrics.invocations(CLIENT_ERRORS, "Sum"),
            "servers": subject.metrics.invocations(SERVER_ERRORS, "Sum"),
        },
    )


def latency_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield the alarm of the SLO, and an early warning below it."""
    subject = Subject(deployment, variant.name)
    metric = partial(subject.metrics.invocations, "ModelLatency")
    requests, p95, p99 = (metric(statistic) for statistic in ("SampleCount", "p95", "p99"))
    slo, limit = deployment.endpoint.latency_slo_ms, drift_limit(deployment, variant)
    if slo is not None:
        yield subject.alarm(
            "latency",
            MetricMath(
                expression=f"IF(requests >= {FEW_REQUESTS}, p99, p95)",
                label="model latency, microseconds: p99, of few requests p95",
                metrics={"requests": requests, "p99": p99, "p95": p95},
            ),
            f"p99 model latency is over the SLO of {slo:g} ms; p95 in a minute of fewer than"
            f" {FEW_REQUESTS} requests",
            threshold=slo * MICROSECONDS_A_MILLISECOND,
            rolls_back=variant.role != "shadow",
        )
    if limit is not None:
        yield subject.alarm(
            "drift",
            p99,
            f"p99 model latency is over {limit.milliseconds} ms: {limit.derivation}",
            threshold=limit.milliseconds * MICROSECONDS_A_MILLISECOND,
            points=10,
            periods=15,
        )


def load_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """None for a queue, which has a length instead, nor for a shadow, whose count nothing moves."""
    if deployment.endpoint.asynchronous is not None or variant.role == "shadow":
        return
    subject = Subject(deployment, variant.name)
    metric, each_of = subject.metrics.invocations, "InvocationsPerInstance"
    if deployment.is_component:
        metric, each_of = subject.metrics.component, "InvocationsPerCopy"
    each = metric(each_of, "Sum")
    capacity = variant_capacity(deployment, variant)
    if capacity is not None:
        yield subject.alarm(
            "saturation",
            each,
            "an instance has more requests than were measured within the SLO:"
            f" {capacity.derivation} x {SECONDS_A_MINUTE} s",
            threshold=measured_per_minute(capacity.requests_per_second),
            points=10,
            periods=15,
        )
    target, count = invocations_target(deployment, variant), most(variant)
    if target is not None and variant in scaled_variants(deployment):
        yield subject.alarm(
            "ceiling",
            # At its most instances alone a variant may be well.
            MetricMath(
                expression=f"IF(each > {target.value:.10g}, {COUNT}, 0)",
                label="instances, while each has more requests than scaling aims at",
                metrics={"requests": metric("Invocations", "Sum"), "each": each},
            ),
            f"all {count} instances that it may have are there, each with over the"
            f" {target.value:.10g} requests a minute that scaling aims at: raise scaling.max",
            threshold=count,
            comparison=AT_LEAST,
            points=10,
            periods=15,
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
    subject, limit = Subject(deployment), longest_wait_seconds(deployment)
    yield subject.alarm(
        "oldest-request",
        subject.metrics.queue("ApproximateAgeOfOldestRequest", "Maximum"),
        f"the oldest request has waited over {limit} s: one more instance takes"
        f" {ready_seconds(deployment, deployment.own)} s at most, and scaling {SCALING_SECONDS} s"
        " to ask for it",
        threshold=limit,
    )


def longest_wait_seconds(deployment: Deployment) -> int:
    """What scaling out may take, whole."""
    return SCALING_SECONDS + ready_seconds(deployment, deployment.own)
