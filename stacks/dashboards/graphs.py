"""Graphs of requests, and of instances: how many, what they cost, what they use."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from onboarding.metrics import HOST, INVOCATIONS
from stacks.alarms.request_alarms import COUNT
from stacks.dashboards.lines import Line, Prices, instance_prices
from stacks.dashboards.widget import (
    Graph,
    Row,
    Shown,
    computed,
    every_variant,
    hidden,
    of_endpoint,
)

ERRORS = (
    ("InvocationModelErrors", "all, without an answer too"),
    ("Invocation4XXErrors", "4XX"),
    ("Invocation5XXErrors", "5XX"),
)
"""Model errors are whatever was not answered with 200 to 299; a queue publishes none."""
LOADING = (
    ("ModelLoadingWaitTime", "wait of a request"),
    ("ModelDownloadingTime", "download"),
    ("ModelLoadingTime", "load"),
    ("ModelUnloadingTime", "unload"),
)
QUEUE_TIMES = (("TimeInBacklog", "in the queue"), ("ModelLatency", "in the model"))
"""In microseconds; CloudWatch keeps no percentiles of the first.

Source: SageMaker developer guide, "Monitor asynchronous endpoints".
"""
ANSWERING = f"FILL({COUNT}, REPEAT)"
"""SageMaker publishes no count: this one repeats through minutes without a request."""


def latency(
    shown: Shown, lines: Sequence[Line] = (), *, overhead: bool = True, end_to_end: bool = False
) -> Graph:
    """Model latency, and SageMaker's overhead, of which CloudWatch keeps no percentiles.

    `end_to_end` adds the sum of both averages: what InvokeEndpoint takes inside SageMaker.
    """
    rows = percentiles(shown, "ModelLatency")
    if overhead:
        label, ids = "SageMaker's overhead, average", ("overhead_us", "overhead")
        rows += shown.converted("OverheadLatency", "Average", "/ 1000", label=label, ids=ids)
    if overhead and end_to_end:
        rows.append(shown.invocations("ModelLatency", "Average", **hidden("model_us")))
        total = "(model_us + overhead_us) / 1000"
        rows.append(computed(total, "end to end, average", "end_to_end"))
    return Graph(title="Latency of the model, ms", rows=rows, unit="ms", lines=lines)


def percentiles(shown: Shown, metric: str) -> list[Row]:
    """A latency's percentiles in milliseconds."""
    return [
        row
        for name in ("p50", "p95", "p99")
        for row in shown.converted(metric, name, "/ 1000", label=name, ids=(f"{name}_us", name))
    ]


def failed_share(shown: Shown, errors: Sequence[tuple[str, str]] = ERRORS) -> Graph:
    """The metrics are 0 or 1 for each request, so their averages are shares."""
    rows = _averages(shown, errors, "* 100", ids=("share", "percent"))
    return Graph(title="Failed requests, %", rows=rows, unit="%")


def failed_count(shown: Shown, errors: Sequence[tuple[str, str]] = ERRORS) -> Graph:
    """A minute."""
    rows = [shown.invocations(metric, "Sum", label=label) for metric, label in errors]
    return Graph(title="Failed requests a minute", rows=rows, unit="requests")


def requests(shown: Shown) -> Graph:
    """A minute."""
    rows = [shown.invocations("Invocations", "Sum", label="requests")]
    return Graph(title="Requests a minute", rows=rows, unit="requests")


def requests_of_each(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """What target tracking follows."""
    rows = [shown.invocations("InvocationsPerInstance", "Sum", label="requests of each instance")]
    title = "Requests of each instance a minute"
    return Graph(title=title, rows=rows, unit="requests", lines=lines)


def cache_graphs(shown: Shown) -> list[Graph]:
    """Hits, loaded models with loads and unloads, and what a request waits for."""
    label, ids = "requests whose model is in memory", ("hits", "percent")
    hits = shown.converted("ModelCacheHit", "Average", "* 100", label=label, ids=ids)
    models = [
        shown.host("LoadedModelCount", "Average", label="models loaded, each instance"),
        shown.invocations("ModelLoadingTime", "SampleCount", label="loads a minute"),
        shown.invocations("ModelUnloadingTime", "SampleCount", label="unloads a minute"),
    ]
    times = _averages(shown, LOADING, "/ 1000", ids=("wait", "ms"))
    return [
        Graph(title="Cache hits, %", rows=hits, unit="%", most=100),
        Graph(title="Models loaded, loads and unloads a minute", rows=models, unit="models"),
        Graph(title="Loading, ms on average", rows=times, unit="ms"),
    ]


def queue_graphs(
    shown: Shown, backlog: Sequence[Line] = (), waits: Sequence[Line] = ()
) -> list[Graph]:
    """What waits, for how long, and what comes of it; `backlog` and `waits` are lines."""
    size, age = "ApproximateBacklogSize", "ApproximateAgeOfOldestRequest"
    waiting = [
        of_endpoint(shown.endpoint, size, "Average", "waiting"),
        of_endpoint(shown.endpoint, f"{size}PerInstance", "Average", "waiting for each instance"),
    ]
    oldest = [of_endpoint(shown.endpoint, age, "Maximum", "oldest request")]
    outcomes = [
        shown.invocations("InvocationsProcessed", "Sum", label="processed"),
        shown.invocations("InvocationFailures", "Sum", label="failed"),
        shown.invocations("ExpiredRequests", "Sum", label="expired"),
    ]
    times = _averages(shown, QUEUE_TIMES, "/ 1000000", ids=("time", "seconds"))
    return [
        Graph(title="Backlog", rows=waiting, unit="requests", lines=backlog),
        Graph(title="Age of the oldest request, s", rows=oldest, unit="s", lines=waits),
        Graph(title="Requests of the queue a minute", rows=outcomes, unit="requests"),
        Graph(title="Time of a request, average, s", rows=times, unit="s"),
    ]


def variant_graphs(endpoint: str, slo: Sequence[Line] = ()) -> list[Graph]:
    """Latency, requests, failures and instances of each variant, shadows too."""
    latency = every_variant(endpoint, INVOCATIONS, "ModelLatency", "p99", " / 1000")
    count = every_variant(endpoint, INVOCATIONS, "Invocations", "Sum")
    failed = every_variant(endpoint, INVOCATIONS, "InvocationModelErrors", "Average", " * 100")
    reported = every_variant(endpoint, HOST, "MemoryUtilization", "SampleCount")
    return [
        Graph(title="Variants: p99 of the model, ms", rows=[latency], unit="ms", lines=slo),
        Graph(title="Variants: requests a minute", rows=[count], unit="requests"),
        Graph(title="Variants: failed requests, %", rows=[failed], unit="%"),
        Graph(title="Variants: instances that reported", rows=[reported], unit="instances"),
    ]


def _averages(
    shown: Shown, metrics: Sequence[tuple[str, str]], change: str, *, ids: tuple[str, str]
) -> list[Row]:
    """Averages of (metric, label) pairs in another unit; their ids are numbered."""
    raw, result = ids
    return [
        row
        for number, (metric, label) in enumerate(metrics)
        for row in shown.converted(
            metric, "Average", change, label=label, ids=(f"{raw}{number}", f"{result}{number}")
        )
    ]


def instances(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """Instances that answer, as `COUNT` derives them, and those that reported."""
    answering = computed(ANSWERING, "instances that answer", "count")
    rows = [*_invocations(shown), answering, *_reported(shown)]
    return Graph(title="Instances", rows=rows, unit="instances", lines=lines)


def reported_instances(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """Of an endpoint that has no invocations: each instance reports its memory once a minute."""
    return Graph(title="Instances", rows=_reported(shown), unit="instances", lines=lines)


def cost(shown: Shown, prices: Prices, lines: Sequence[Line] = ()) -> Graph:
    """Instances times the price of the dearest type, as no metric tells several apart."""
    several = "" if prices.least == prices.most else ", if all are of the dearest type"
    total = computed(f"{ANSWERING} * {prices.most:g}", f"estimated cost{several}", "cost")
    rows, title = (
        [*_invocations(shown), total],
        f"Estimated cost, USD an hour (prices of {prices.region})",
    )
    return Graph(title=title, rows=rows, unit="USD an hour", lines=lines)


def cost_of_all(deployments: Sequence[Deployment]) -> Graph:
    """Of every variant whose price is known, one on the other: those not selected, too.

    Those of a queue, which counts no invocations, are the instances that reported.
    """
    rows: list[Row] = []
    for deployment in deployments:
        endpoint = names.endpoint_name(deployment.environment, deployment.name)
        for variant in deployment.variants:
            prices, number = instance_prices(deployment, variant), len(rows)
            if prices is None:
                continue
            shown = Shown(endpoint=endpoint, variant=variant.name)
            if deployment.endpoint.asynchronous is None:
                rows += _invocations(shown, number)
                count = ANSWERING.replace("requests", f"requests{number}")
                count = count.replace("each", f"each{number}")
            else:
                count = f"reported{number}"
                rows.append(shown.host("MemoryUtilization", "SampleCount", **hidden(count)))
            label = endpoint if variant.name == VARIANT else f"{endpoint}, {variant.name}"
            rows.append(computed(f"{count} * {prices.most:g}", label, f"cost{number}"))
    region = deployments[0].environment.region
    title = f"Estimated cost of all endpoints, USD an hour (prices of {region})"
    return Graph(title=title, rows=rows, unit="USD an hour", stacked=True)


def gpu_use(shown: Shown, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU; the metric counts 100 for each of an instance's."""
    rows = _of_one_gpu(shown, "GPUUtilization", "Average", gpu_counts, "average")
    return Graph(title="GPU use, % of each GPU", rows=rows, unit="%", lines=lines)


def gpu_memory(shown: Shown, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU, on the fullest instance."""
    rows = _of_one_gpu(shown, "GPUMemoryUtilization", "Maximum", gpu_counts, "fullest instance")
    return Graph(title="GPU memory, % of each GPU", rows=rows, unit="%", lines=lines)


def cpu(shown: Shown, vcpus: int | None = None, lines: Sequence[Line] = ()) -> Graph:
    """Of one core; where the cores are not known, the metric itself, which counts 100 for each."""
    if vcpus is None:
        row = shown.host("CPUUtilization", "Average", label="average")
        return Graph(title="CPU, % (100 for each core)", rows=[row], unit="%")
    rows = [
        shown.host("CPUUtilization", "Average", **hidden("cores")),
        computed(f"cores / {vcpus}", f"average of {vcpus} cores", "cpu"),
    ]
    return Graph(title="CPU, % of each core", rows=rows, unit="%", lines=lines)


def memory_and_disk(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """Of the fullest instance."""
    rows = [
        shown.host("MemoryUtilization", "Maximum", label="memory"),
        shown.host("DiskUtilization", "Maximum", label="disk"),
    ]
    title = "Host memory and disk, % of the fullest instance"
    return Graph(title=title, rows=rows, unit="%", lines=lines, most=100)


def _invocations(shown: Shown, number: int | str = "") -> list[Row]:
    return [
        shown.invocations("Invocations", "Sum", **hidden(f"requests{number}")),
        shown.invocations("InvocationsPerInstance", "Sum", **hidden(f"each{number}")),
    ]


def _reported(shown: Shown) -> list[Row]:
    """Each instance publishes its memory once a minute."""
    return [shown.host("MemoryUtilization", "SampleCount", label="instances that reported")]


def _of_one_gpu(
    shown: Shown, metric: str, stat: str, gpu_counts: Sequence[int], label: str
) -> list[Row]:
    """Several counts are told apart by their labels."""
    if list(gpu_counts) == [1]:
        return [shown.host(metric, stat, label=label)]
    rows = [shown.host(metric, stat, **hidden("gpus"))]
    for count in gpu_counts:
        several = f", if it has {count} GPU{'s' if count > 1 else ''}"
        own = label + (several if len(gpu_counts) > 1 else "")
        rows.append(computed(f"gpus / {count}", own, f"gpu{count}"))
    return rows
