"""Alarms of a text generator's endpoint: failed requests, time to the first token, full engines.

Source: SageMaker developer guide, monitoring-cloudwatch (FirstChunkModelLatency, MidStreamErrors,
NoCapacityInvocationFailures).
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.metrics import Alarm, MetricMath
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.alarm import (
    MICROSECONDS_A_MILLISECOND,
    Subject,
    percent,
)
from stacks.alarms.host_alarms import no_capacity, no_instances
from stacks.alarms.request_alarms import (
    CLIENT_ERRORS,
    FEW,
    LOST_SHARE,
    SERVER_ERRORS,
    UNANSWERED,
    component_errors,
    failed_share,
    no_answers,
    unanswered_share,
)
from stacks.capacity import generation as sizes

FEW_REQUESTS = 20
"""A minute, below which the 95th percentile is the slowest request."""
FULL_SECONDS = 180
"""That requests may find no copy, where one is always there."""


def generation_alarms(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield every alarm, all on CloudWatch's own metrics."""
    yield from _errors(deployment)
    yield from _latencies(deployment)
    yield from _capacity(deployment)


def _errors(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield alarms on failed requests, broken streams, and requests without an answer.

    Requests beyond the queue's bound are answered 503, so that few of them take nothing back: half
    of the failures that a wholly broken version shows in its first batch do.
    """
    subject = Subject(deployment)
    first = sizes.batch_percent(deployment)
    for kind, name, share, rolls_back, mixed in (
        ("server-errors", SERVER_ERRORS, first / 200, True, ", overload included"),
        ("early-5xx", SERVER_ERRORS, FEW[SERVER_ERRORS], False, ""),
        ("client-errors", CLIENT_ERRORS, FEW[CLIENT_ERRORS], False, ""),
        ("stream-errors", "MidStreamErrors", LOST_SHARE, True, ""),
    ):
        if name != "MidStreamErrors" or deployment.spec.slo.streaming:
            yield subject.alarm(
                kind,
                failed_share(subject, name),
                f"{name} is over {percent(share)} of the requests{mixed}",
                threshold=share,
                rolls_back=rolls_back,
            )
    yield component_errors(subject, first / 200, ", overload included")
    yield no_answers(subject, unanswered_share(subject), UNANSWERED, rolls_back=True)


def _latencies(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield alarms on the time to the first token, and on that of the whole answer.

    AWS lists metrics of first parts and of broken streams under bidirectional streaming alone, so
    that the time of the answer takes a slow version back wherever those stay empty. Source:
    SageMaker developer guide, monitoring-cloudwatch.
    """
    slo, subject = deployment.spec.slo, Subject(deployment)
    answer = slo.ttft_p95_ms + deployment.spec.context.output_p95 * slo.itl_p95_ms
    times = [("first-token", "ModelLatency", "model latency", answer)]
    if slo.streaming:
        times = [
            ("first-token", "FirstChunkModelLatency", "time to the first part", slo.ttft_p95_ms),
            ("latency", "ModelLatency", "model latency", answer),
        ]
    for kind, name, of, milliseconds in times:
        yield subject.alarm(
            kind,
            MetricMath(
                expression=f"IF(requests >= {FEW_REQUESTS}, p95, 0)",
                label=f"{of}, microseconds: p95 of {FEW_REQUESTS} requests or more",
                metrics={
                    "requests": subject.metrics.invocations(name, "SampleCount"),
                    "p95": subject.metrics.invocations(name, "p95"),
                },
            ),
            f"p95 {of} is over the SLO of {milliseconds:g} ms",
            threshold=milliseconds * MICROSECONDS_A_MILLISECOND,
            rolls_back=True,
        )


def _capacity(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield alarms on missing instances, refused requests, and copies with too many of them."""
    subject = Subject(deployment)
    if deployment.spec.endpoint.copies.min > 0:
        yield no_instances(subject, "no instance has reported its memory for five minutes")
    is_zero = deployment.spec.endpoint.copies.min == 0
    yield no_capacity(subject, sizes.start_seconds(deployment) if is_zero else FULL_SECONDS)
    known = sizes.concurrency(deployment)
    yield subject.alarm(
        "saturation",
        subject.metrics.component("ConcurrentRequestsPerCopy", "Average"),
        f"a copy has more than {known.requests} requests at once, the most within the "
        f"SLO ({known.origin})",
        threshold=known.requests,
        points=10,
        periods=15,
    )
