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
from typing import Any

from onboarding import names
from onboarding.aws_limits import ROLLBACK_ALARM_COUNT
from onboarding.deployment import VARIANT
from onboarding.metrics import HOST, INVOCATIONS
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.alarm import (
    AT_LEAST,
    MICROSECONDS_A_MILLISECOND,
    UNDER,
    Alarm,
    Computed,
    Metric,
    alarm_name,
    percent,
    properties,
    rollback_alarms,
    variant_metric,
)
from stacks.alarms.host_alarms import query_alarm
from stacks.alarms.request_alarms import (
    CLIENT_ERRORS,
    FEW,
    LOST_SHARE,
    SERVER_ERRORS,
    UNANSWERED,
    failed_share,
    unanswered_share,
)
from stacks.generation import sizes
from stacks.generation.properties import component_name
from stacks.scaling.resources import Dimensions

FEW_REQUESTS = 20
"""A minute, below which the 95th percentile is the slowest request."""
MINUTE = 60
KV_SHARE = 0.9
RANGE = "5m"
ENDPOINT_LABEL, COMPONENT_LABEL = (
    "aws.sagemaker.endpoint.name",
    "aws.sagemaker.inference_component.name",
)
_alarm = partial(Alarm, variant=None)


def alarms(deployment: GenerationDeployment) -> dict[str, dict[str, Any]]:
    """Return every `AWS::CloudWatch::Alarm`, by logical id."""
    own = {alarm.part: properties(deployment, alarm) for alarm in metric_alarms(deployment)}
    return own | engine_alarms(deployment)


def rollback_alarm_ids(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return the logical ids of the alarms that take an update back, the gravest first."""
    return tuple(alarm.part for alarm in _rollback(deployment))


def rollback_alarm_names(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return the names of the alarms that take an update back."""
    return tuple(alarm_name(deployment, alarm.kind) for alarm in _rollback(deployment))


def _rollback(deployment: GenerationDeployment) -> list[Alarm]:
    return rollback_alarms(metric_alarms(deployment))[:ROLLBACK_ALARM_COUNT]


def metric_alarms(deployment: GenerationDeployment) -> tuple[Alarm, ...]:
    """Return the alarms on metrics of CloudWatch."""
    return (
        *_errors(deployment),
        _first_token(deployment),
        *_capacity(deployment),
    )


def engine_alarms(deployment: GenerationDeployment) -> dict[str, dict[str, Any]]:
    """Return the alarms on what vLLM tells of itself, which PromQL reads."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {
        part: query_alarm(
            deployment, alarm_name(deployment, kind), f"{endpoint}: {explanation}", query
        )
        for part, kind, explanation, query in _queries(deployment)
    }


def series(deployment: GenerationDeployment, name: str) -> str:
    """Return the PromQL selector of one of the endpoint's series."""
    labels = {ENDPOINT_LABEL: names.endpoint_name(deployment.environment, deployment.name)}
    if sizes.is_component(deployment):
        labels[COMPONENT_LABEL] = component_name(deployment)
    matchers = "".join(f', "{label}"="{value}"' for label, value in labels.items())
    return f'{{"{name}"{matchers}}}'


def quantile(deployment: GenerationDeployment, name: str) -> str:
    """Return the PromQL of a histogram's 95th percentile, over all copies."""
    return f"histogram_quantile(0.95, sum(rate({series(deployment, name)}[{RANGE}])))"


def component_dimensions(deployment: GenerationDeployment) -> Dimensions:
    """Return the CloudWatch dimensions of the base component."""
    return [{"Name": "InferenceComponentName", "Value": component_name(deployment)}]


def _errors(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield alarms on failed requests, broken streams, and requests without an answer.

    Requests beyond the queue's bound are answered 503, so that few of them take nothing back: half
    of the failures that a wholly broken version shows in its first batch do.
    """
    metric = partial(variant_metric, deployment, VARIANT)
    first = sizes.batch_percent(deployment) if sizes.is_component(deployment) else 100
    for part, kind, name, share, rolls_back, mixed in (
        ("ServerErrors", "server-errors", SERVER_ERRORS, first / 200, True, ", overload included"),
        ("EarlyServerErrors", "early-5xx", SERVER_ERRORS, FEW[SERVER_ERRORS], False, ""),
        ("ClientErrors", "client-errors", CLIENT_ERRORS, FEW[CLIENT_ERRORS], False, ""),
        ("StreamErrors", "stream-errors", "MidStreamErrors", LOST_SHARE, True, ""),
    ):
        if name == "MidStreamErrors" and not deployment.spec.slo.streaming:
            continue
        yield _alarm(
            part=part,
            kind=kind,
            watched=failed_share(metric, name),
            threshold=share,
            explanation=f"{name} is over {percent(share)} of the requests{mixed}",
            rolls_back=rolls_back,
        )
    yield _alarm(
        part="NoAnswers",
        kind="no-answers",
        watched=unanswered_share(metric),
        threshold=LOST_SHARE,
        explanation=f"over {percent(LOST_SHARE)} of the requests got no answer: {UNANSWERED}",
        rolls_back=True,
    )


def _first_token(deployment: GenerationDeployment) -> Alarm:
    """Return the alarm on the time to the first token; of whole answers, on the answer's time."""
    slo = deployment.spec.slo
    if slo.streaming:
        name, milliseconds, of = "FirstChunkModelLatency", slo.ttft_p95_ms, "time to the first part"
    else:
        name, of = "ModelLatency", "model latency"
        milliseconds = slo.ttft_p95_ms + deployment.spec.context.output_p95 * slo.itl_p95_ms
    metric = partial(variant_metric, deployment, VARIANT, name)
    return _alarm(
        part="FirstToken",
        kind="first-token",
        watched=Computed(
            expression=f"IF(requests >= {FEW_REQUESTS}, p95, 0)",
            label=f"{of}, microseconds: p95 of {FEW_REQUESTS} requests or more",
            metrics={"requests": metric("SampleCount"), "p95": metric("p95")},
        ),
        threshold=milliseconds * MICROSECONDS_A_MILLISECOND,
        explanation=f"p95 {of} is over the SLO of {milliseconds:g} ms",
        rolls_back=True,
    )


def _capacity(deployment: GenerationDeployment) -> Iterator[Alarm]:
    """Yield alarms on missing instances, refused requests, and copies with too many of them."""
    if deployment.spec.endpoint.copies.min > 0:
        yield _alarm(
            part="NoInstances",
            kind="no-instances",
            watched=variant_metric(
                deployment, VARIANT, "MemoryUtilization", "SampleCount", namespace=HOST
            ),
            threshold=1,
            comparison=UNDER,
            points=5,
            periods=5,
            missing="breaching",
            explanation="no instance has reported its memory for five minutes",
        )
    busy = variant_metric(deployment, VARIANT, "ConcurrentRequestsPerModel", "Average")
    if sizes.is_component(deployment):
        minutes = _minutes_without_capacity(deployment)
        metric = partial(Metric, namespace=INVOCATIONS, dimensions=component_dimensions(deployment))
        busy = metric(name="ConcurrentRequestsPerCopy", statistic="Average")
        yield _alarm(
            part="NoCapacity",
            kind="no-capacity",
            watched=metric(name="NoCapacityInvocationFailures", statistic="Sum"),
            threshold=1,
            comparison=AT_LEAST,
            points=minutes,
            periods=minutes,
            explanation=f"requests found no copy for {minutes} minutes",
        )
    known = sizes.concurrency(deployment)
    yield _alarm(
        part="Saturation",
        kind="saturation",
        watched=busy,
        threshold=known.requests,
        points=10,
        periods=15,
        explanation=f"a copy has more than {known.requests} requests at once, the most within the "
        f"SLO ({known.origin})",
    )


def _minutes_without_capacity(deployment: GenerationDeployment) -> int:
    """Return the minutes that requests may find no copy: three, or a start from zero."""
    if deployment.spec.endpoint.copies.min > 0:
        return 3
    return math.ceil(sizes.start_seconds(deployment) / MINUTE)


def _queries(deployment: GenerationDeployment) -> Iterator[tuple[str, str, str, str]]:
    """Yield logical id, kind, explanation and PromQL of each alarm on the engine's own series."""
    slo = deployment.spec.slo
    name, between = partial(series, deployment), "vllm:inter_token_latency_seconds"
    # Few requests wait in the engine where those that would miss the SLO are refused before it.
    knee = sizes.concurrency(deployment).requests
    most = max(1, min(knee, sizes.most_requests(deployment) - 1))
    yield (
        "TokenTime",
        "token-time",
        f"p95 time between tokens is over the SLO of {slo.itl_p95_ms:g} ms",
        f"{quantile(deployment, between)} > {slo.itl_p95_ms / 1000:.10g}",
    )
    yield (
        "KvCache",
        "kv-cache",
        f"a copy's KV cache is over {percent(KV_SHARE)} full",
        f"{name('vllm:kv_cache_usage_perc')} > {KV_SHARE:g}",
    )
    yield (
        "Waiting",
        "waiting",
        f"a copy has more than {most} answers under way, and answers {knee} within the SLO",
        f"{name('roundhouse_front_sequences')} > {most}",
    )
    for part, kind, what, total in (
        ("Preemptions", "preemptions", "requests lose their KV cache and begin again",
         "vllm:num_preemptions_total"),
        ("Rejections", "rejections", "requests are refused because the queue is full",
         "roundhouse_front_rejections_total"),
    ):  # fmt: skip
        if part != "Rejections" or sizes.bounds_queue(deployment):
            yield part, kind, what, f"sum(rate({name(total)}[{RANGE}])) > 0"


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
