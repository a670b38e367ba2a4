"""Alarms of a text generator's endpoint: failed requests, time to the first token, full engines.

CloudWatch's own metrics take an update back. What only the engine knows comes through detailed
observability as OpenTelemetry metrics, which PromQL alone reads; such alarms notify. Sources:
SageMaker developer guide, monitoring-cloudwatch (FirstChunkModelLatency, MidStreamErrors,
NoCapacityInvocationFailures), inference-monitoring (labels); CloudWatch user guide, alarm-promql,
metrics-otel-histograms; vLLM 0.30.0's /metrics (names).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

from onboarding.metrics import (
    AT_LEAST,
    INVOCATIONS,
    Alarm,
    Metric,
    MetricMath,
    PromQL,
)
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms import alarm as of_endpoints
from stacks.alarms.alarm import (
    MICROSECONDS_A_MILLISECOND,
    Subject,
    percent,
    rollback_alarms,
    watched_in_rollouts,
)
from stacks.alarms.host_alarms import no_instances
from stacks.alarms.request_alarms import (
    CLIENT_ERRORS,
    FEW,
    LOST_SHARE,
    SERVER_ERRORS,
    UNANSWERED,
    failed_share,
    no_answers,
    share_of,
    unanswered_share,
)
from stacks.generation import sizes
from stacks.generation.properties import component_name

FEW_REQUESTS = 20
"""A minute, below which the 95th percentile is the slowest request."""
MINUTE = 60
KV_SHARE = 0.9
RANGE = "5m"


def endpoint_alarms(deployment: GenerationDeployment) -> tuple[Alarm, ...]:
    """Return every alarm: those on CloudWatch's metrics, then those on vLLM's own."""
    return (
        *_errors(deployment),
        *_latencies(deployment),
        *_capacity(deployment),
        *_engine_alarms(deployment),
    )


def rollback_alarm_ids(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return the logical ids of the alarms that take an update back, the gravest first."""
    return tuple(alarm.id for alarm in rollback_alarms(endpoint_alarms(deployment)))


def rollback_alarm_names(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return the names of the alarms that take an update back."""
    return watched_in_rollouts(endpoint_alarms(deployment))


def series(deployment: GenerationDeployment, name: str) -> str:
    """Return the PromQL selector of one of the endpoint's series."""
    labels = [("aws.sagemaker.endpoint.name", Subject(deployment).endpoint)]
    if sizes.is_component(deployment):
        labels.append(("aws.sagemaker.inference_component.name", component_name(deployment)))
    return of_endpoints.series(name, labels)


def quantile(deployment: GenerationDeployment, name: str) -> str:
    """Return the PromQL of a histogram's 95th percentile, over all copies."""
    return f"histogram_quantile(0.95, sum(rate({series(deployment, name)}[{RANGE}])))"


def component_metric(
    deployment: GenerationDeployment,
    name: str,
    statistic: str,
    *,
    namespace: str = INVOCATIONS,
    period: int = MINUTE,
) -> Metric:
    """Return one statistic of a metric of the base component."""
    return Metric(
        namespace=namespace,
        name=name,
        dimensions=(("InferenceComponentName", component_name(deployment)),),
        statistic=statistic,
        period=period,
    )


def _errors(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield alarms on failed requests, broken streams, and requests without an answer.

    Requests beyond the queue's bound are answered 503, so that few of them take nothing back: half
    of the failures that a wholly broken version shows in its first batch do.
    """
    subject = Subject(deployment)
    first = sizes.batch_percent(deployment) if sizes.is_component(deployment) else 100
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
    if sizes.is_component(deployment):
        metric = partial(component_metric, deployment, SERVER_ERRORS)
        yield subject.alarm(
            "component-errors",
            share_of(metric("Average"), metric("Sum")),
            f"{SERVER_ERRORS} of the component is over {percent(first / 200)} of its requests, "
            "overload included",
            threshold=first / 200,
            rolls_back=True,
        )
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
    busy = subject.metrics.invocations("ConcurrentRequestsPerModel", "Average")
    if sizes.is_component(deployment):
        minutes = _minutes_without_capacity(deployment)
        busy = component_metric(deployment, "ConcurrentRequestsPerCopy", "Average")
        yield subject.alarm(
            "no-capacity",
            component_metric(deployment, "NoCapacityInvocationFailures", "Sum"),
            f"requests found no copy for {minutes} minutes",
            threshold=1,
            comparison=AT_LEAST,
            points=minutes,
            periods=minutes,
        )
    known = sizes.concurrency(deployment)
    yield subject.alarm(
        "saturation",
        busy,
        f"a copy has more than {known.requests} requests at once, the most within the "
        f"SLO ({known.origin})",
        threshold=known.requests,
        points=10,
        periods=15,
    )


def _minutes_without_capacity(deployment: GenerationDeployment) -> int:
    """Return the minutes that requests may find no copy: three, or a start from zero."""
    if deployment.spec.endpoint.copies.min > 0:
        return 3
    return math.ceil(sizes.start_seconds(deployment) / MINUTE)


def _engine_alarms(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield the alarms on the engine's own series."""
    slo = deployment.spec.slo
    name, between = partial(series, deployment), "vllm:inter_token_latency_seconds"
    # Few requests wait in the engine where those that would miss the SLO are refused before it.
    knee = sizes.concurrency(deployment).requests
    most = max(1, min(knee, sizes.most_requests(deployment) - 1))
    queries = [
        (
            "token-time",
            f"p95 time between tokens is over the SLO of {slo.itl_p95_ms:g} ms",
            f"{quantile(deployment, between)} > {slo.itl_p95_ms / 1000:.10g}",
        ),
        (
            "kv-cache",
            f"a copy's KV cache is over {percent(KV_SHARE)} full",
            f"{name('vllm:kv_cache_usage_perc')} > {KV_SHARE:g}",
        ),
        (
            "waiting",
            f"a copy has more than {most} answers under way, and answers {knee} within the SLO",
            f"{name('roundhouse_front_sequences')} > {most}",
        ),
    ]
    counted = [
        (
            "preemptions",
            "requests lose their KV cache and begin again",
            "vllm:num_preemptions_total",
        ),
    ]
    if sizes.bounds_queue(deployment):
        refused = "requests are refused because the queue is full"
        counted.append(("rejections", refused, "roundhouse_front_rejections_total"))
    queries += [
        (kind, what, f"sum(rate({name(total)}[{RANGE}])) > 0") for kind, what, total in counted
    ]
    for kind, explanation, query in queries:
        yield Subject(deployment).alarm(kind, PromQL(query=query), explanation)


def dashboard_queries(deployment: GenerationDeployment) -> Mapping[str, str]:
    """Return the PromQL of what the engine tells, by what it is, for Query Studio and Grafana."""
    name = partial(series, deployment)
    return {
        "time to the first token, p95, s": quantile(deployment, "vllm:time_to_first_token_seconds"),
        "time between tokens, p95, s": quantile(deployment, "vllm:inter_token_latency_seconds"),
        "output tokens/s": f"sum(rate({name('vllm:generation_tokens_total')}[{RANGE}]))",
        "prompt tokens/s": f"sum(rate({name('vllm:prompt_tokens_total')}[{RANGE}]))",
        "KV cache in use, share": name("vllm:kv_cache_usage_perc"),
        "answers under way": name("roundhouse_front_sequences"),
        "requests waiting": name("vllm:num_requests_waiting"),
        "preemptions/s": f"sum(rate({name('vllm:num_preemptions_total')}[{RANGE}]))",
        "refused/s": f"sum(rate({name('roundhouse_front_rejections_total')}[{RANGE}]))",
        "prefix cache hits, share": (
            f"sum(rate({name('vllm:prefix_cache_hits_total')}[{RANGE}])) / "
            f"sum(rate({name('vllm:prefix_cache_queries_total')}[{RANGE}]))"
        ),
        "use of each GPU, %": name("DCGM_FI_DEV_GPU_UTIL"),
    }
