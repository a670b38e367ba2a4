"""Which charts a result gives: over time, by percentile, against the offered rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from engine_build.card.markup import Markup
from engine_build.card.table import figure
from roundhouse.load_test.numbers import per_second as rate
from roundhouse.load_test.result import LoadResult, PhaseResult, SecondResult
from roundhouse.reports.charts import Line, Mark, chart, logarithmic, percentiles, straight

MOST_CURVES = 6
SHOWN = (("p50", "low"), ("p95", "middle"), ("p99", "high"))


def plots(result: LoadResult) -> list[Markup]:
    """The figures that there is data for."""
    made = (
        against_rate(result),
        throughput(result),
        percentiles_over_time(result),
        by_percentile(result),
        users(result),
    )
    return [each for each in made if each is not None]


def against_rate(result: LoadResult) -> Markup | None:
    """Latency against the offered rate, with the SLO and the saturation point."""
    if result.saturation is None:
        return None
    steps = _deciding(result)
    lines = [
        Line(
            name=name,
            kind=kind,
            dots=True,
            points=[(s.start, v) for s in steps if (v := s.latency_ms[name])],
        )
        for name, kind in SHOWN
    ]
    lines = [line for line in lines if line.points]
    if not lines or len(steps) < 2:
        return None
    marks = (
        []
        if result.slo_ms is None
        else [Mark(value=result.slo_ms, word=f"SLO {result.slo_ms:g} ms", kind="slo")]
    )
    if result.saturation.rate is not None:
        word = f"{rate(result.saturation.rate)}/s" + ("" if result.saturation.exact else " or more")
        marks.append(Mark(value=result.saturation.rate, word=word, kind="point", upright=True))
    values = [y for line in lines for _, y in line.points] + (
        [] if result.slo_ms is None else [result.slo_ms]
    )
    across = straight(
        [0.0, *(each.start for each in steps)], "requests a second offered", upward=False
    )
    return figure(
        "Latency against offered rate",
        chart("Latency", lines, across, logarithmic(values, "ms"), marks),
    )


def _deciding(result: LoadResult) -> list[PhaseResult]:
    """One step for each rate, in order: that which held, else the last."""
    chosen: dict[float, PhaseResult] = {}
    for each in result.phases:
        if each.answered and (each.start not in chosen or chosen[each.start].outcome != "held"):
            chosen[each.start] = each
    return [chosen[each] for each in sorted(chosen)]


def throughput(result: LoadResult) -> Markup | None:
    """Offered and answered requests, second by second."""
    whole = _timeline(result, lambda each: each.answered)
    if len(whole) < 2:
        return None
    lines = [Line(name="answered", kind="low", points=whole)]
    if any(phase.loop == "open" for phase in result.phases):
        lines.insert(
            0,
            Line(name="offered", kind="plain", points=_timeline(result, lambda each: each.offered)),
        )
    faults = _timeline(result, lambda each: each.errors)
    if any(y for _, y in faults):
        lines.append(Line(name="errors", kind="high", points=faults))
    across = straight([x for x, _ in whole], "seconds", upward=False, low=0.0)
    up = straight([y for line in lines for _, y in line.points], "a second", upward=True, low=0.0)
    return figure("Throughput over time", chart("Throughput", lines, across, up, _borders(result)))


def percentiles_over_time(result: LoadResult) -> Markup | None:
    """Percentiles of each second's answers; a second with too few for one has none."""
    chosen = (
        ("p50", "low", lambda s: s.p50_ms),
        ("p95", "middle", lambda s: s.p95_ms),
        ("p99", "high", lambda s: s.p99_ms),
    )
    lines = [
        Line(name=name, kind=kind, points=_timeline(result, of), longest_gap=1.01)
        for name, kind, of in chosen
    ]
    lines = [line for line in lines if len(line.points) > 1]
    if not lines:
        return None
    values = [y for line in lines for _, y in line.points]
    marks = _borders(result)
    if result.slo_ms is not None:
        values.append(result.slo_ms)
        marks = [*marks, Mark(value=result.slo_ms, word=f"SLO {result.slo_ms:g} ms", kind="slo")]
    across = straight(
        [x for line in lines for x, _ in line.points], "seconds", upward=False, low=0.0
    )
    return figure(
        "Latency over time", chart("Latency", lines, across, logarithmic(values, "ms"), marks)
    )


def by_percentile(result: LoadResult) -> Markup | None:
    """The distribution of latency, the report's own phase before the others."""
    chief = result.chief
    others = [each for each in result.phases if each is not chief and len(each.curve) > 2]
    if chief is None or len(chief.curve) < 3:
        return None
    lines = [Line(name=chief.name, kind="high", points=chief.curve)]
    if result.saturation is None:
        kinds = ("low", "middle", "plain")
        lines += [
            Line(name=each.name, kind=kinds[place % 3], points=each.curve)
            for place, each in enumerate(others[-MOST_CURVES:])
        ]
    else:
        lines += _neighbours(result, chief, others)
    if chief.corrected_ms is not None:
        fixed = [
            (float(name.removeprefix("p")), value)
            for name, value in chief.corrected_ms.items()
            if value is not None
        ]
        lines.append(Line(name="corrected", kind="middle", dots=True, points=fixed))
    values = [y for line in lines for _, y in line.points]
    marks = (
        []
        if result.slo_ms is None
        else [Mark(value=result.slo_ms, word=f"SLO {result.slo_ms:g} ms", kind="slo")]
    )
    if result.slo_ms is not None:
        values.append(result.slo_ms)
    across = percentiles(max(x for line in lines for x, _ in line.points))
    return figure(
        "Latency by percentile", chart("Latency", lines, across, logarithmic(values, "ms"), marks)
    )


def users(result: LoadResult) -> Markup | None:
    """How many users a closed loop had, where that changed."""
    points = _timeline(result, lambda each: each.users)
    if len({y for _, y in points}) < 2:
        return None
    across = straight([x for x, _ in points], "seconds", upward=False, low=0.0)
    up = straight([y for _, y in points], "users", upward=True, low=0.0)
    return figure(
        "Users over time",
        chart(
            "Users", [Line(name="users", kind="plain", points=points)], across, up, _borders(result)
        ),
    )


def _neighbours(
    result: LoadResult, chief: PhaseResult, others: Sequence[PhaseResult]
) -> list[Line]:
    """The next rate that was missed, and the lowest that was tried."""
    above = sorted(
        (each for each in others if each.start > chief.start), key=lambda each: each.start
    )[:1]
    below = sorted(
        (each for each in others if each.start < chief.start), key=lambda each: each.start
    )[:1]
    pairs = ((above, "plain"), (below, "low"))
    return [
        Line(name=each.name, kind=kind, points=each.curve)
        for group, kind in pairs
        for each in group
    ]


def _timeline(
    result: LoadResult, of: Callable[[SecondResult], float | None]
) -> list[tuple[float, float]]:
    """Phases one after the other."""
    points, begin = [], 0.0
    for phase in result.phases:
        for second in phase.by_second:
            value = of(second)
            if value is not None and second.second + 1 <= max(phase.seconds, 1):
                points.append((begin + second.second + 0.5, float(value)))
        begin += math.ceil(phase.seconds)
    return points


def _borders(result: LoadResult) -> list[Mark]:
    """Where phases meet."""
    marks, begin = [], 0.0
    for phase in result.phases[:-1]:
        begin += math.ceil(phase.seconds)
        marks.append(Mark(value=begin, word="", kind="border", upright=True))
    return marks
