"""Graphs of requests, and of instances: how many, what they cost, what they use."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from onboarding.metrics import HOST, INVOCATIONS, Graph, Line, Metric, MetricMath, VariantMetrics
from stacks.alarms.request_alarms import COUNT
from stacks.dashboards.lines import Prices, instance_prices

Curves = dict[str, Metric | MetricMath]
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
EACH_VARIANT = "${PROP('Dim.VariantName')}"
"""A label that CloudWatch fills in for each metric that a search finds."""


def latency(
    of: VariantMetrics, lines: Sequence[Line] = (), *, overhead: bool = True, whole: bool = False
) -> Graph:
    """Model latency, and SageMaker's overhead, of which CloudWatch keeps no percentiles.

    `whole` adds the sum of both averages: what InvokeEndpoint takes inside SageMaker.
    """
    curves = percentiles(of, "ModelLatency")
    if overhead:
        added = {"overhead_us": of.invocations("OverheadLatency", "Average")}
        curves["SageMaker's overhead, average"] = _math("overhead_us / 1000", **added)
        if whole:
            added["model_us"] = of.invocations("ModelLatency", "Average")
            curves["end to end, average"] = _math("(model_us + overhead_us) / 1000", **added)
    return Graph(title="Latency of the model, ms", curves=curves, unit="ms", lines=lines)


def percentiles(of: VariantMetrics, metric: str) -> Curves:
    """A latency's percentiles in milliseconds."""
    return {
        name: _math(f"{name}_us / 1000", **{f"{name}_us": of.invocations(metric, name)})
        for name in ("p50", "p95", "p99")
    }


def failed_share(of: VariantMetrics, errors: Sequence[tuple[str, str]] = ERRORS) -> Graph:
    """The metrics are 0 or 1 for each request, so their averages are shares."""
    curves = _averages(of, errors, "* 100", "share")
    return Graph(title="Failed requests, %", curves=curves, unit="%")


def failed_count(of: VariantMetrics, errors: Sequence[tuple[str, str]] = ERRORS) -> Graph:
    """A minute."""
    curves = {label: of.invocations(metric, "Sum") for metric, label in errors}
    return Graph(title="Failed requests a minute", curves=curves, unit="requests")


def requests(of: VariantMetrics) -> Graph:
    """A minute."""
    curves = {"requests": of.invocations("Invocations", "Sum")}
    return Graph(title="Requests a minute", curves=curves, unit="requests")


def requests_of_each(of: VariantMetrics, lines: Sequence[Line] = ()) -> Graph:
    """What target tracking follows."""
    return Graph(
        title="Requests of each instance a minute",
        curves={"requests of each instance": of.invocations("InvocationsPerInstance", "Sum")},
        unit="requests",
        lines=lines,
    )


def cache_graphs(of: VariantMetrics) -> list[Graph]:
    """Hits, loaded models with loads and unloads, and what a request waits for."""
    hits = _math("hits * 100", hits=of.invocations("ModelCacheHit", "Average"))
    models: Curves = {
        "models loaded, each instance": of.host("LoadedModelCount", "Average"),
        "loads a minute": of.invocations("ModelLoadingTime", "SampleCount"),
        "unloads a minute": of.invocations("ModelUnloadingTime", "SampleCount"),
    }
    share: Curves = {"requests whose model is in memory": hits}
    times = _averages(of, LOADING, "/ 1000", "wait")
    return [
        Graph(title="Cache hits, %", curves=share, unit="%", most=100),
        Graph(title="Models loaded, loads and unloads a minute", curves=models, unit="models"),
        Graph(title="Loading, ms on average", curves=times, unit="ms"),
    ]


def queue_graphs(
    of: VariantMetrics, backlog: Sequence[Line] = (), waits: Sequence[Line] = ()
) -> list[Graph]:
    """What waits, for how long, and what comes of it; `backlog` and `waits` are lines."""
    waiting = {
        "waiting": of.queue("ApproximateBacklogSize", "Average"),
        "waiting for each instance": of.queue("ApproximateBacklogSizePerInstance", "Average"),
    }
    oldest = {"oldest request": of.queue("ApproximateAgeOfOldestRequest", "Maximum")}
    outcomes = {
        "processed": of.invocations("InvocationsProcessed", "Sum"),
        "failed": of.invocations("InvocationFailures", "Sum"),
        "expired": of.invocations("ExpiredRequests", "Sum"),
    }
    times = _averages(of, QUEUE_TIMES, "/ 1000000", "time")
    return [
        Graph(title="Backlog", curves=waiting, unit="requests", lines=backlog),
        Graph(title="Age of the oldest request, s", curves=oldest, unit="s", lines=waits),
        Graph(title="Requests of the queue a minute", curves=outcomes, unit="requests"),
        Graph(title="Time of a request, average, s", curves=times, unit="s"),
    ]


def variant_graphs(endpoint: str, slo: Sequence[Line] = ()) -> list[Graph]:
    """Latency, requests, failures and instances of each variant, shadows too.

    Of those that published in the last two weeks, which a search finds.
    """

    def graph(title: str, unit: str, namespace: str, found: str, change: str = "") -> Graph:
        name, statistic = found.split()
        search = (
            f"SEARCH('{{{namespace},EndpointName,VariantName}} "
            f'MetricName="{name}" EndpointName="{endpoint}"\', \'{statistic}\', 60){change}'
        )
        lines = slo if unit == "ms" else ()
        curves = {EACH_VARIANT: _math(search)}
        return Graph(title=f"Variants: {title}", curves=curves, unit=unit, lines=lines)

    errors = "InvocationModelErrors Average"
    return [
        graph("p99 of the model, ms", "ms", INVOCATIONS, "ModelLatency p99", " / 1000"),
        graph("requests a minute", "requests", INVOCATIONS, "Invocations Sum"),
        graph("failed requests, %", "%", INVOCATIONS, errors, " * 100"),
        graph("instances that reported", "instances", HOST, "MemoryUtilization SampleCount"),
    ]


def instances(of: VariantMetrics, lines: Sequence[Line] = ()) -> Graph:
    """Instances that answer, as `COUNT` derives them, and those that reported."""
    curves = {"instances that answer": _math(ANSWERING, **_invocations(of)), **_reported(of)}
    return Graph(title="Instances", curves=curves, unit="instances", lines=lines)


def reported_instances(of: VariantMetrics, lines: Sequence[Line] = ()) -> Graph:
    """Of an endpoint that has no invocations."""
    return Graph(title="Instances", curves=_reported(of), unit="instances", lines=lines)


def cost(of: VariantMetrics, prices: Prices, lines: Sequence[Line] = ()) -> Graph:
    """Instances times the price of the dearest type, as no metric tells several apart."""
    several = "" if prices.least == prices.most else ", if all are of the dearest type"
    return Graph(
        title=f"Estimated cost, USD an hour (prices of {prices.region})",
        curves={
            f"estimated cost{several}": _math(f"{ANSWERING} * {prices.most:g}", **_invocations(of))
        },
        unit="USD an hour",
        lines=lines,
    )


def cost_of_all(deployments: Sequence[Deployment]) -> Graph:
    """Of every variant whose price is known, one on the other: those not selected, too.

    Those of a queue, which counts no invocations, are the instances that reported.
    """
    curves: Curves = {}
    for deployment in deployments:
        endpoint = names.endpoint_name(deployment.environment, deployment.name)
        for variant in deployment.variants:
            prices, number = instance_prices(deployment, variant), len(curves)
            if prices is None:
                continue
            of = VariantMetrics(endpoint, variant.name)
            if deployment.endpoint.asynchronous is None:
                metrics = _invocations(of, number)
                count = ANSWERING.replace("requests", f"requests{number}")
                count = count.replace("each", f"each{number}")
            else:
                count = f"reported{number}"
                metrics = {count: of.host("MemoryUtilization", "SampleCount")}
            label = endpoint if variant.name == VARIANT else f"{endpoint}, {variant.name}"
            curves[label] = _math(f"{count} * {prices.most:g}", **metrics)
    region = deployments[0].environment.region
    title = f"Estimated cost of all endpoints, USD an hour (prices of {region})"
    return Graph(title=title, curves=curves, unit="USD an hour", stacked=True)


def gpu_use(of: VariantMetrics, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU; the metric counts 100 for each of an instance's."""
    curves = _of_one_gpu(of.host("GPUUtilization", "Average"), gpu_counts, "average")
    return Graph(title="GPU use, % of each GPU", curves=curves, unit="%", lines=lines)


def gpu_memory(of: VariantMetrics, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU, on the fullest instance."""
    memory = of.host("GPUMemoryUtilization", "Maximum")
    curves = _of_one_gpu(memory, gpu_counts, "fullest instance")
    return Graph(title="GPU memory, % of each GPU", curves=curves, unit="%", lines=lines)


def cpu(of: VariantMetrics, vcpus: int | None = None, lines: Sequence[Line] = ()) -> Graph:
    """Of one core; where the cores are not known, the metric itself, which counts 100 for each."""
    use = of.host("CPUUtilization", "Average")
    if vcpus is None:
        return Graph(title="CPU, % (100 for each core)", curves={"average": use}, unit="%")
    curves: Curves = {f"average of {vcpus} cores": _math(f"cores / {vcpus}", cores=use)}
    return Graph(title="CPU, % of each core", curves=curves, unit="%", lines=lines)


def memory_and_disk(of: VariantMetrics, lines: Sequence[Line] = ()) -> Graph:
    """Of the fullest instance."""
    return Graph(
        title="Host memory and disk, % of the fullest instance",
        curves={
            "memory": of.host("MemoryUtilization", "Maximum"),
            "disk": of.host("DiskUtilization", "Maximum"),
        },
        unit="%",
        lines=lines,
        most=100,
    )


def _math(expression: str, **metrics: Metric) -> MetricMath:
    return MetricMath(expression=expression, metrics=metrics)


def _averages(
    of: VariantMetrics, metrics: Sequence[tuple[str, str]], change: str, name: str
) -> Curves:
    """Averages of (metric, label) pairs in another unit; their ids are numbered."""
    return {
        label: _math(
            f"{name}{number} {change}", **{f"{name}{number}": of.invocations(metric, "Average")}
        )
        for number, (metric, label) in enumerate(metrics)
    }


def _invocations(of: VariantMetrics, number: int | str = "") -> dict[str, Metric]:
    return {
        f"requests{number}": of.invocations("Invocations", "Sum"),
        f"each{number}": of.invocations("InvocationsPerInstance", "Sum"),
    }


def _reported(of: VariantMetrics) -> Curves:
    """Each instance publishes its memory once a minute."""
    return {"instances that reported": of.host("MemoryUtilization", "SampleCount")}


def _of_one_gpu(metric: Metric, gpu_counts: Sequence[int], label: str) -> Curves:
    """Several counts are told apart by their labels."""
    if list(gpu_counts) == [1]:
        return {label: metric}
    several = len(gpu_counts) > 1
    return {
        f"{label}, if it has {count} GPU{'s' if count > 1 else ''}" if several else label: _math(
            f"gpus / {count}", gpus=metric
        )
        for count in gpu_counts
    }
