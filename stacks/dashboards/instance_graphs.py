"""Graphs of instances: how many, what they cost, what they use."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from stacks.alarms.request_alarms import COUNT
from stacks.dashboards.lines import Line, Prices, instance_prices
from stacks.dashboards.widget import Graph, Row, Shown, computed, hidden

ANSWERING = f"FILL({COUNT}, REPEAT)"
"""SageMaker publishes no count: this one repeats through minutes without a request."""


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
