"""Graphs of instances: how many, what they cost, what they use."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from stacks.alarms.request_alarms import COUNT
from stacks.dashboards.lines import WHERE, Line, Prices, instance_prices
from stacks.dashboards.widget import Graph, Row, Shown, computed, hidden

REPORTED = "instances that reported"


def instances(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """SageMaker publishes no count.

    Every request adds 1 to Invocations, and 1/instances to InvocationsPerInstance.

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


def cost(shown: Shown, prices: Prices, lines: Sequence[Line] = ()) -> Graph:
    """Instances times the price of one.

    Of several instance types the dearest's, as no metric tells them apart.
    """
    expression = f"FILL({COUNT}, REPEAT) * {prices.most:g}"
    rows = [*_quotient(shown), computed(expression, shown.label(_cost_word(prices)), "cost")]
    return Graph(
        title=f"Estimated cost, USD an hour ({WHERE})", rows=rows, unit="USD an hour", lines=lines
    )


def cost_of_all(deployments: Sequence[Deployment]) -> Graph:
    """Of every variant whose price is known, one on the other: those not selected, too.

    Those of a queue, which counts no invocations, are the instances that reported.
    """
    rows: list[Row] = []
    for deployment in deployments:
        endpoint, waits = (
            names.endpoint_name(deployment.environment, deployment.name),
            deployment.endpoint.asynchronous is not None,
        )
        for variant in deployment.variants:
            prices, number = instance_prices(variant), len(rows)
            if prices is not None:
                shown = Shown(endpoint=endpoint, variant=variant.name)
                counted, count = (_reported_count if waits else _answering_count)(shown, number)
                label = endpoint if variant.name == VARIANT else f"{endpoint}, {variant.name}"
                rows += [*counted, computed(f"{count} * {prices.most:g}", label, f"cost{number}")]
    title = f"Estimated cost of all endpoints, USD an hour ({WHERE})"
    return Graph(title=title, rows=rows, unit="USD an hour", stacked=True)


def gpu_use(shown: Shown, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU; the metric counts 100 for each of an instance's.

    Several counts are told apart by their labels.
    """
    rows = _each_gpu(shown, "GPUUtilization", "Average", gpu_counts, "average")
    return Graph(title="GPU use, % of each GPU", rows=rows, unit="%", lines=lines)


def gpu_memory(shown: Shown, gpu_counts: Sequence[int], lines: Sequence[Line] = ()) -> Graph:
    """Of one GPU, on the fullest instance."""
    rows = _each_gpu(shown, "GPUMemoryUtilization", "Maximum", gpu_counts, "fullest instance")
    return Graph(title="GPU memory, % of each GPU", rows=rows, unit="%", lines=lines)


def cpu(shown: Shown, vcpus: int | None = None) -> Graph:
    """Of one core; where the cores are not known, the metric itself, which counts 100 for each."""
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
    return Graph(
        title="Host memory and disk, % of the fullest instance",
        rows=rows,
        unit="%",
        lines=lines,
        most=100,
    )


def _cost_word(prices: Prices) -> str:
    return (
        "estimated cost"
        if prices.least == prices.most
        else "estimated cost, if all are of the dearest type"
    )


def _answering_count(shown: Shown, number: int) -> tuple[list[Row], str]:
    rows = [
        shown.invocations("Invocations", "Sum", **hidden(f"requests{number}")),
        shown.invocations("InvocationsPerInstance", "Sum", **hidden(f"each{number}")),
    ]
    count = COUNT.replace("requests", f"requests{number}").replace("each", f"each{number}")
    return rows, f"FILL({count}, REPEAT)"


def _reported_count(shown: Shown, number: int) -> tuple[list[Row], str]:
    return [
        shown.host("MemoryUtilization", "SampleCount", **hidden(f"reported{number}"))
    ], f"reported{number}"


def _quotient(shown: Shown) -> list[Row]:
    return [
        shown.invocations("Invocations", "Sum", **hidden("requests")),
        shown.invocations("InvocationsPerInstance", "Sum", **hidden("each")),
    ]


def _reported(shown: Shown) -> Row:
    return shown.host("MemoryUtilization", "SampleCount", label=shown.label(REPORTED))


def _each_gpu(
    shown: Shown, metric: str, stat: str, gpu_counts: Sequence[int], word: str
) -> list[Row]:
    if list(gpu_counts) == [1]:
        return [shown.host(metric, stat, label=shown.label(word))]
    rows = [shown.host(metric, stat, **hidden("gpus"))]
    for count in gpu_counts:
        explanation = (
            word
            if len(gpu_counts) == 1
            else f"{word}, if it has {count} GPU{'s' if count > 1 else ''}"
        )
        rows.append(computed(f"gpus / {count}", shown.label(explanation), f"gpu{count}"))
    return rows
