"""Graphs of instances: how many, what they cost, what they use."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from stacks.alarms.load_alarms import COUNT, usd_per_hour
from stacks.dashboards.lines import Line
from stacks.dashboards.rows import Row, Shown, computed, hidden
from stacks.dashboards.widget import Graph

REPORTED = "instances that reported"


def instances(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """SageMaker publishes no count: every request adds 1 to Invocations, and 1/instances to InvocationsPerInstance.

    A minute without a request repeats the count before it.
    """
    rows = [
        *_quotient(shown),
        computed(f"FILL({COUNT}, REPEAT)", shown.label("instances that answer"), "count"),
        _reported(shown),
    ]
    return Graph(title="Instances", rows=rows, unit="instances", lines=lines)


def reported_instances(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """Of an endpoint that has no invocations: each instance reports its memory once a minute."""
    return Graph(title="Instances", rows=[_reported(shown)], unit="instances", lines=lines)


def cost(shown: Shown, price: float, lines: Sequence[Line] = ()) -> Graph:
    """Instances times the price of one."""
    expression = f"FILL({COUNT}, REPEAT) * {price:g}"
    rows = [*_quotient(shown), computed(expression, shown.label("estimated cost"), "cost")]
    return Graph(title="Estimated cost, USD an hour", rows=rows, unit="USD an hour", lines=lines)


def cost_of_all(deployments: Sequence[Deployment]) -> Graph:
    """Of every variant whose price is known and whose instances can be counted, one on the other: those not selected, too."""
    rows: list[Row] = []
    for deployment in deployments:
        for variant in deployment.variants if deployment.endpoint.asynchronous is None else ():
            price, number = usd_per_hour(variant), len(rows)
            if price is not None:
                endpoint = names.endpoint_name(deployment.environment, deployment.name)
                shown = Shown(endpoint=endpoint, variant=variant.name)
                rows.append(shown.invocations("Invocations", "Sum", **hidden(f"requests{number}")))
                rows.append(shown.invocations("InvocationsPerInstance", "Sum", **hidden(f"each{number}")))
                count = COUNT.replace("requests", f"requests{number}").replace("each", f"each{number}")
                label = endpoint if variant.name == VARIANT else f"{endpoint}, {variant.name}"
                rows.append(computed(f"FILL({count}, REPEAT) * {price:g}", label, f"cost{number}"))
    return Graph(title="Estimated cost of all endpoints, USD an hour", rows=rows, unit="USD an hour", stacked=True)


def gpu_use(shown: Shown, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU; the metric counts 100 for each of an instance's. Several counts are told apart by their labels."""
    rows = _each_gpu(shown, "GPUUtilization", "Average", gpu_counts, "average")
    return Graph(title="GPU use, % of each GPU", rows=rows, unit="%", lines=lines)


def gpu_memory(shown: Shown, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU, on the fullest instance."""
    rows = _each_gpu(shown, "GPUMemoryUtilization", "Maximum", gpu_counts, "fullest instance")
    return Graph(title="GPU memory, % of each GPU", rows=rows, unit="%", lines=lines)


def cpu(shown: Shown, vcpus: int | None = None) -> Graph:
    """Of one core; where the cores are not known, the metric as it is, which counts 100 for each."""
    if vcpus is None:
        row = shown.host("CPUUtilization", "Average", label=shown.label("average"))
        return Graph(title="CPU, % (100 for each core)", rows=[row], unit="%")
    rows = [
        shown.host("CPUUtilization", "Average", **hidden("cores")),
        computed(f"cores / {vcpus}", shown.label(f"average of {vcpus} cores"), "cpu"),
    ]
    return Graph(title="CPU, % of each core", rows=rows, unit="%")


def memory_and_disk(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """Of the fullest instance."""
    rows = [
        shown.host("MemoryUtilization", "Maximum", label=shown.label("memory")),
        shown.host("DiskUtilization", "Maximum", label=shown.label("disk")),
    ]
    return Graph(title="Host memory and disk, % of the fullest instance", rows=rows, unit="%", lines=lines, most=100)


def _quotient(shown: Shown) -> list[Row]:
    return [
        shown.invocations("Invocations", "Sum", **hidden("requests")),
        shown.invocations("InvocationsPerInstance", "Sum", **hidden("each")),
    ]


def _reported(shown: Shown) -> Row:
    return shown.host("MemoryUtilization", "SampleCount", label=shown.label(REPORTED))


def _each_gpu(shown: Shown, metric: str, stat: str, gpu_counts: Sequence[int], word: str) -> list[Row]:
    if list(gpu_counts) == [1]:
        return [shown.host(metric, stat, label=shown.label(word))]
    rows = [shown.host(metric, stat, **hidden("gpus"))]
    for count in gpu_counts:
        told = word if len(gpu_counts) == 1 else f"{word}, if it has {count} GPU{'s' if count > 1 else ''}"
        rows.append(computed(f"gpus / {count}", shown.label(told), f"gpu{count}"))
    return rows
