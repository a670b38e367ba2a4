"""An endpoint's alarms: what each watches, when it trips, and where its threshold comes from.

The servers differ in whose fault a status names (docs/serving.md). Source: SageMaker developer
guide, monitoring-cloudwatch (FirstChunkModelLatency, MidStreamErrors,
NoCapacityInvocationFailures).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Variant
from onboarding.memory import fewest_resident, pool_memories
from onboarding.metrics import AT_LEAST, UNDER, Alarm, Metric, MetricMath, VariantMetrics
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks import generation_capacity as sizes
from stacks.engine_capacity import gpus_used, variant_capacity
from stacks.rollout import ready_seconds, step_percent
from stacks.scaling import SECONDS_A_MINUTE, minute_target, most, named_id, scaled_variants

ROLLBACK_ORDER = (
    *("server-errors", "component-errors", "no-answers", "stream-errors"),
    *("first-token", "latency", "client-errors"),
)
"""SageMaker watches ten alarms: with many variants those whose kinds are first here."""
MICROSECONDS_A_MILLISECOND = 1000
SERVER_ERRORS, CLIENT_ERRORS = "Invocation5XXErrors", "Invocation4XXErrors"
FEW = {SERVER_ERRORS: 0.01, CLIENT_ERRORS: 0.05}
"""Shares of the requests at which people want to know."""
ERROR_KINDS = {
    SERVER_ERRORS: ("server-errors", "early-5xx"),
    CLIENT_ERRORS: ("client-errors", "early-4xx"),
}
EARLY_IDS = {"early-5xx": "EarlyServerErrors", "early-4xx": "EarlyClientErrors"}
"""Ids of kinds that are named by the status; other ids are the kind in PascalCase."""
LOST_SHARE = 0.01
LEAST_FAILED = 3
"""Failed requests in a minute, below which a share says nothing, unless every request failed."""
FEW_REQUESTS, FEW_GENERATIONS = 300, 20
"""A minute, below which p99 is one of the slowest three, and a generator's p95 the slowest: chance
would take sound versions back."""
COUNT = "FLOOR(requests / each + 0.5)"
"""Instances: every request adds 1 to the one metric, and 1/instances to the other."""
SCALING_SECONDS = 300
"""Until scaling has seen the backlog and asked for an instance."""
MEMORY_PERCENT, DISK_PERCENT = 90, 85
FULL_SECONDS = 180
"""That requests may find no copy, where one is always there."""
CACHE_PERIOD, CACHE_PERIODS = 300, 3
CACHE_REQUESTS = 50
"""Requests in five minutes, below which a share says nothing."""
LASTING = {"points": 10, "periods": 15}
"""Options of an alarm on load that only lasts."""


def _alarm(
    of: VariantMetrics, kind: str, watched: Metric | MetricMath, explanation: str, **options: Any
) -> Alarm:
    """Return an alarm of a variant; the name of a joined one stands behind two hyphens.

    No name has those in a row.
    """
    is_own = of.variant == VARIANT
    return Alarm(
        id=named_id(of.variant, EARLY_IDS.get(kind, kind.title().replace("-", ""))),
        kind=kind,
        name=f"{of.endpoint}-{kind}{'' if is_own else f'--{of.variant}'}",
        subject=of.endpoint if is_own else f"{of.endpoint}, {of.variant}",
        explanation=explanation,
        variant=of.variant,
        watched=watched,
        **options,
    )


def endpoint_alarms(deployment: Deployment | GenerationDeployment) -> tuple[Alarm, ...]:
    """Every alarm, by variant, then those of the endpoint as a whole."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    own = VariantMetrics(endpoint, VARIANT)
    if isinstance(deployment, GenerationDeployment):
        kinds = (_generation_errors, _generation_latencies, _copies)
        return tuple(alarm for kind in kinds for alarm in kind(deployment, own))
    of_variants = (
        alarm
        for variant in deployment.variants
        for kind in (_errors, _latency, _hosts, _load, _cache)
        for alarm in kind(deployment, variant, VariantMetrics(endpoint, variant.name))
    )
    return (*of_variants, *_queue(deployment, own))


def rollback_alarms(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return those that take a new version back, the gravest first.

    What only a client can have caused must not.
    """
    found = [alarm for alarm in alarms if alarm.rolls_back]
    return sorted(found, key=lambda alarm: ROLLBACK_ORDER.index(alarm.kind))


def percent(share: float) -> str:
    """Return a share for people."""
    return f"{share * 100:.3g} %"


def _errors(deployment: Deployment, variant: Variant, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield alarms on errors of the server, of clients, and on requests without an answer.

    A broken engine and a client's mistake look alike in one metric of Triton, which says 500 to a
    malformed request of a single-model endpoint, and 400 to every failed inference of a multi-model
    one. There half of the failures that a wholly broken version shows in its first step take it
    back: the metric counts the old fleet's requests as well. A shadow takes nothing back.
    """
    takes_back, mixed = variant.role != "shadow", None
    if variant.server == "triton":
        mixed = CLIENT_ERRORS if deployment.multi_model else SERVER_ERRORS
    broken = step_percent(deployment) / 200 if takes_back else 0.0
    for name, few in FEW.items():
        is_mixed = name == mixed
        note = " (Triton counts clients' malformed requests there too)" if is_mixed else ""
        faults = takes_back and (is_mixed or name == SERVER_ERRORS)
        share = max(few, broken) if is_mixed else few
        yield from _failed(of, name, share, note, rolls_back=faults)
    if deployment.is_component:
        yield _component_errors(of, max(FEW[SERVER_ERRORS], broken))
    queued = deployment.endpoint.asynchronous is not None
    yield _no_answers(of, rolls_back=takes_back, is_queue=queued)


def _failed(
    of: VariantMetrics, name: str, share: float, note: str, *, rolls_back: bool
) -> Iterator[Alarm]:
    """Yield the alarm on a share of failed requests, and an early one where that is a large one."""
    (kind, early), few = ERROR_KINDS[name], FEW[name]
    limits = [(kind, share, rolls_back), *([(early, few, False)] if share > few else [])]
    for found, limit, takes_back in limits:
        explanation = (
            f"{name} is over {percent(limit)} of the requests, {LEAST_FAILED} or more in a"
            f" minute, or all of them{note}"
        )
        watched = share_of(partial(of.invocations, name))
        yield _alarm(of, found, watched, explanation, threshold=limit, rolls_back=takes_back)


def share_of(metric: Callable[[str], Metric]) -> MetricMath:
    """Return a metric's average over requests, each 0 or 1; 0 where few failed, and not all.

    `metric` gives it by statistic.
    """
    share, failed = metric("Average"), metric("Sum")
    return MetricMath(
        expression=f"IF(failed >= {LEAST_FAILED} OR share == 1, share, 0)",
        label=f"{share.name}, share",
        metrics={"share": share, "failed": failed},
    )


def _component_errors(of: VariantMetrics, share: float, note: str = "") -> Alarm:
    """Return the alarm on failures of an inference component's copies, by its own metric."""
    explanation = f"{SERVER_ERRORS} of the component is over {percent(share)} of the requests{note}"
    watched = share_of(partial(of.component, SERVER_ERRORS))
    return _alarm(of, "component-errors", watched, explanation, threshold=share, rolls_back=True)


def _no_answers(of: VariantMetrics, *, rolls_back: bool, is_queue: bool = False) -> Alarm:
    """Return the alarm on the share of requests that failed under no status.

    A queue publishes no `InvocationModelErrors` and counts failures itself (SageMaker developer
    guide, "Monitor asynchronous endpoints"). Whether what failed counts as processed too, AWS does
    not say: with both below the line the share is never too high.
    """
    expression = f"IF(failed >= {LEAST_FAILED} OR every == 1, every - clients - servers, 0)"
    reason, statistic = "time-outs, and connections that broke", "Average"
    counted = {
        "every": ("InvocationModelErrors", "Average"),
        "failed": ("InvocationModelErrors", "Sum"),
    }
    if is_queue:
        expression = (
            f"IF(failed >= {LEAST_FAILED} OR failed >= FILL(processed, 0), "
            "(failed - FILL(clients, 0) - FILL(servers, 0)) / (failed + FILL(processed, 0)), 0)"
        )
        reason, statistic = "time-outs, and requests or answers that did not pass through S3", "Sum"
        counted = {
            "failed": ("InvocationFailures", "Sum"),
            "processed": ("InvocationsProcessed", "Sum"),
        }
    counted |= {"clients": (CLIENT_ERRORS, statistic), "servers": (SERVER_ERRORS, statistic)}
    watched = MetricMath(
        expression=expression,
        label="requests without an answer, share",
        metrics={key: of.invocations(*metric) for key, metric in counted.items()},
    )
    explanation = f"over {percent(LOST_SHARE)} of the requests got no answer: {reason}"
    options = {"threshold": LOST_SHARE, "rolls_back": rolls_back}
    return _alarm(of, "no-answers", watched, explanation, **options)


def _latency(deployment: Deployment, variant: Variant, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield the alarms of the SLO, if one is promised: of many requests, and of few that last."""
    slo = deployment.endpoint.latency_slo_ms
    if slo is None:
        return
    limit, statistics = slo * MICROSECONDS_A_MILLISECOND, ("SampleCount", "p99", "p95")
    requests, p99, p95 = (of.invocations("ModelLatency", name) for name in statistics)
    watched = MetricMath(
        expression=f"IF(requests >= {FEW_REQUESTS}, p99, p95)",
        label="model latency, microseconds: p99, of few requests p95",
        metrics={"requests": requests, "p99": p99, "p95": p95},
    )
    explanation = (
        f"p99 model latency is over the SLO of {slo:g} ms; p95 in a minute of fewer than"
        f" {FEW_REQUESTS} requests"
    )
    options = {"threshold": limit, "rolls_back": variant.role != "shadow"}
    yield _alarm(of, "latency", watched, explanation, **options)
    explanation = f"p99 model latency stays over the SLO of {slo:g} ms, of however few requests"
    yield _alarm(of, "slow", p99, explanation, threshold=limit, **LASTING)


def _load(deployment: Deployment, variant: Variant, of: VariantMetrics) -> Iterator[Alarm]:
    """None for a queue, which has a length instead, nor for a shadow, whose count nothing moves."""
    if deployment.endpoint.asynchronous is not None or variant.role == "shadow":
        return
    metric, each_of = of.invocations, "InvocationsPerInstance"
    if deployment.is_component:
        metric, each_of = of.component, "InvocationsPerCopy"
    each, capacity = metric(each_of, "Sum"), variant_capacity(deployment, variant)
    if capacity is not None:
        limit = round(capacity.requests_per_second * SECONDS_A_MINUTE, 1)
        explanation = (
            "an instance has more requests than were measured within the SLO:"
            f" {capacity.derivation} x {SECONDS_A_MINUTE} s"
        )
        yield _alarm(of, "saturation", each, explanation, threshold=limit, **LASTING)
    target, count = minute_target(deployment, variant), most(variant)
    if target is not None and variant in scaled_variants(deployment):
        # At its most instances alone a variant may be well.
        watched = MetricMath(
            expression=f"IF(each > {target.value:.10g}, {COUNT}, 0)",
            label="instances, while each has more requests than scaling aims at",
            metrics={"requests": metric("Invocations", "Sum"), "each": each},
        )
        explanation = (
            f"all {count} instances that it may have are there, each with over the"
            f" {target.value:.10g} requests a minute that scaling aims at: raise scaling.max"
        )
        options = {"threshold": count, "comparison": AT_LEAST, **LASTING}
        yield _alarm(of, "ceiling", watched, explanation, **options)


def _queue(deployment: Deployment, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield the alarm that the oldest request waits longer than one more instance takes to come.

    None for an endpoint that answers at once.
    """
    if deployment.endpoint.asynchronous is None:
        return
    ready = ready_seconds(deployment, deployment.own)
    limit, watched = SCALING_SECONDS + ready, of.queue("ApproximateAgeOfOldestRequest", "Maximum")
    explanation = (
        f"the oldest request has waited over {limit} s: one more instance takes"
        f" {ready} s at most, and scaling {SCALING_SECONDS} s to ask for it"
    )
    yield _alarm(of, "oldest-request", watched, explanation, threshold=limit)


def _hosts(deployment: Deployment, variant: Variant, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield alarms on missing instances, and on an instance's memory and disk.

    A multi-model endpoint fills its disk with archives, and its memory where models push each
    other out: neither has an alarm there.
    """
    if variant.scaling.fewest > 0:
        yield _no_instances(of)
    if deployment.is_component:
        yield _no_capacity(of, ready_seconds(deployment, variant))
    fills = any(not plan.fits for plan in pool_memories(deployment) if plan.memory is not None)
    full: list[tuple[str, Metric | MetricMath, str, int, str]] = []
    if not deployment.multi_model:
        disk = of.host("DiskUtilization", "Maximum")
        full.append(("disk", disk, "disk", DISK_PERCENT, "full"))
    if not fills:
        memory = of.host("MemoryUtilization", "Maximum")
        full.append(("host-memory", memory, "host memory", MEMORY_PERCENT, "used"))
    if not fills and all(pool.instance_type.is_gpu for pool in variant.pools):
        # Of several instance types the most GPUs, so that no alarm trips too early; the metric
        # counts 100 for each.
        gpus = max(1, *(gpus_used(variant, pool.instance_type) for pool in variant.pools))
        memory, state = of.host("GPUMemoryUtilization", "Maximum"), "used"
        watched: Metric | MetricMath = memory
        if gpus > 1:
            label, state = f"memory of each of {gpus} GPUs, %", f"used, of {gpus} GPUs"
            metrics = {"memory": memory}
            watched = MetricMath(expression=f"memory / {gpus}", label=label, metrics=metrics)
        full.append(("gpu-memory", watched, "GPU memory", MEMORY_PERCENT, state))
    for kind, metric, noun, limit, state in full:
        explanation = f"the fullest instance's {noun} is over {limit} % {state}"
        yield _alarm(of, kind, metric, explanation, threshold=limit, points=5)


def _no_instances(of: VariantMetrics) -> Alarm:
    """Return the alarm that no instance reports; each reports its memory once a minute."""
    explanation = (
        "no instance has reported its memory for five minutes, which each in service does every"
        " minute"
    )
    watched = of.host("MemoryUtilization", "SampleCount")
    options = {"threshold": 1, "comparison": UNDER, "points": 5, "missing": "breaching"}
    return _alarm(of, "no-instances", watched, explanation, **options)


def _no_capacity(of: VariantMetrics, seconds: int) -> Alarm:
    """Return the alarm that requests find no copy of an inference component for so long."""
    minutes = math.ceil(seconds / SECONDS_A_MINUTE)
    watched = of.component("NoCapacityInvocationFailures", "Sum")
    explanation = f"requests found no copy for {minutes} minutes"
    lasting = {"points": minutes, "periods": minutes}
    options = {"threshold": 1, "comparison": AT_LEAST, **lasting}
    return _alarm(of, "no-capacity", watched, explanation, **options)


def _cache(deployment: Deployment, variant: Variant, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield none for an endpoint of one model.

    What is expected is the lowest share of evenly spread requests whose model is in memory, by the
    locks' sizes.
    """
    if not deployment.multi_model:
        return
    plans = [plan for plan in pool_memories(deployment) if plan.models and plan.memory is not None]
    expected = min(
        (fewest_resident(plan.models, plan.capacity_mib) / len(plan.models) for plan in plans),
        default=1.0,
    )
    metric = partial(of.invocations, "ModelCacheHit", period=CACHE_PERIOD)
    watched = MetricMath(
        expression=f"IF(requests >= {CACHE_REQUESTS}, hits, 1)",
        label="cache hits, share",
        metrics={"hits": metric("Average"), "requests": metric("SampleCount")},
    )
    explanation = (
        f"fewer than {percent(expected / 2)} of the requests find their model in memory: half of"
        f" the {percent(expected)} of the models that fit, whichever they are, by what the locks"
        " measured"
    )
    lasting = {"points": CACHE_PERIODS, "periods": CACHE_PERIODS}
    options = {"threshold": expected / 2, "comparison": UNDER, **lasting}
    yield _alarm(of, "cache-hits", watched, explanation, **options)


def _generation_errors(deployment: GenerationDeployment, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield alarms on failed requests, broken streams, and requests without an answer.

    Requests beyond the queue's bound are answered 503, so that few of them take nothing back: half
    of the failures that a wholly broken version shows in its first batch do.
    """
    broken, note = step_percent(deployment) / 200, "; overload counts too"
    yield from _failed(of, SERVER_ERRORS, broken, note, rolls_back=True)
    yield from _failed(of, CLIENT_ERRORS, FEW[CLIENT_ERRORS], "", rolls_back=False)
    if deployment.spec.slo.streaming:
        watched = share_of(partial(of.invocations, "MidStreamErrors"))
        explanation = f"MidStreamErrors is over {percent(LOST_SHARE)} of the requests"
        options = {"threshold": LOST_SHARE, "rolls_back": True}
        yield _alarm(of, "stream-errors", watched, explanation, **options)
    yield _component_errors(of, broken, note)
    yield _no_answers(of, rolls_back=True)


def _generation_latencies(deployment: GenerationDeployment, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield alarms on the time to the first token, and on that of the whole answer.

    AWS lists metrics of first parts and of broken streams under bidirectional streaming alone, so
    that the time of the answer takes a slow version back wherever those stay empty. Source:
    SageMaker developer guide, monitoring-cloudwatch.
    """
    slo = deployment.spec.slo
    answer = slo.ttft_p95_ms + deployment.spec.context.output_p95 * slo.itl_p95_ms
    times = [("first-token", "ModelLatency", "model latency", answer)]
    if slo.streaming:
        times = [
            ("first-token", "FirstChunkModelLatency", "time to the first part", slo.ttft_p95_ms),
            ("latency", "ModelLatency", "model latency", answer),
        ]
    for kind, name, noun, milliseconds in times:
        metric, limit = partial(of.invocations, name), milliseconds * MICROSECONDS_A_MILLISECOND
        watched = MetricMath(
            expression=f"IF(requests >= {FEW_GENERATIONS}, p95, 0)",
            label=f"{noun}, microseconds: p95 of {FEW_GENERATIONS} requests or more",
            metrics={"requests": metric("SampleCount"), "p95": metric("p95")},
        )
        explanation = f"p95 {noun} is over the SLO of {milliseconds:g} ms"
        yield _alarm(of, kind, watched, explanation, threshold=limit, rolls_back=True)


def _copies(deployment: GenerationDeployment, of: VariantMetrics) -> Iterator[Alarm]:
    """Yield alarms on missing instances, refused requests, and copies with too many of them.

    Requests may find no copy for three minutes, or for a start from zero.
    """
    seconds = sizes.start_seconds(deployment)
    if deployment.spec.endpoint.copies.min > 0:
        yield _no_instances(of)
        seconds = FULL_SECONDS
    yield _no_capacity(of, seconds)
    known = sizes.concurrency(deployment)
    watched = of.component("ConcurrentRequestsPerCopy", "Average")
    explanation = (
        f"a copy has more than {known.requests} requests at once, the most within the "
        f"SLO ({known.origin})"
    )
    yield _alarm(of, "saturation", watched, explanation, threshold=known.requests, **LASTING)
