"""The report of a load test as one HTML file that loads nothing, in the engine card's style."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from pathlib import Path

from engine_build.card.render import milliseconds, per_second, render
from roundhouse.load_test.measurement import Measurement, Outcome, Second, percentiles_text
from roundhouse.load_test.options import Loop
from roundhouse.load_test.result import LoadResult, outcome_of
from roundhouse.reports.charts import Axis, Frame, Line, Mark, Points, axis, line_chart, scale
from roundhouse.text import quantity

TEMPLATES = Path(__file__).parent / "templates"
FRAME = Frame(width=460, height=250, left=52, right=446, top=24, bottom=208)
MAX_CURVES = 6
PERCENTILES = ((50, "low"), (95, "middle"), (99, "high"))
NINES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
NOTHING = milliseconds(None)
TEXT_COLUMNS = ("phase", "SLO")
Chart = tuple[str, str, Sequence[Line]]
"""A caption, the drawing and the lines of its legend."""


def load_page(result: LoadResult) -> bytes:
    """Return UTF-8 HTML."""
    cells, chief = [_cells(measurement) for measurement in result.phases], result.chief
    heads = [head for head in (cells or [{}])[0] if any(row[head] != NOTHING for row in cells)]

    def rows(badge: Callable[..., str]) -> list[tuple[list[str], bool]]:
        for measurement, row in zip(result.phases, cells, strict=True):
            if (verdict := measurement.verdict) is not None:
                row["SLO"] = badge(verdict.outcome, verdict.reason)
        return [
            ([row[head] for head in heads], measurement is chief)
            for measurement, row in zip(result.phases, cells, strict=True)
        ]

    values = {
        "result": result,
        "is_open": any(measurement.phase.loop is Loop.open for measurement in result.phases),
        "chips": _chips(result),
        "tiles": [] if chief is None else _tiles(result, chief),
        "columns": [(head, "" if head in TEXT_COLUMNS else "number") for head in heads],
        "rows": rows,
        "charts": charts(result),
        "errors": [
            ((measurement.phase.name, reason, f"{count:,}"), False)
            for measurement in result.phases
            for reason, count in measurement.errors.most_common()
        ],
        "circumstances": lambda code: _circumstances(result, code),
    }
    filters = {"numbers": percentiles_text}
    return render("load_report.html.j2", values, folder=TEMPLATES, filters=filters).encode()


def _chips(result: LoadResult) -> list[str]:
    inputs, slo_ms = result.test.inputs, result.test.slo_ms
    slo = [] if slo_ms is None else [f"SLO p99 ≤ {slo_ms:g} ms"]
    rows = quantity(inputs.rows_per_request, inputs.rows.removesuffix("s"))
    return [result.kind, *slo, f"{rows} a request", result.circumstances.date]


def _tiles(result: LoadResult, chief: Measurement) -> list[tuple[str, str, str]]:
    inputs, saturation = result.test.inputs, result.saturation
    is_saturated = saturation is not None and saturation.rate is not None
    rate = chief.phase.start if is_saturated else chief.answered_per_second
    is_offered = chief.phase.loop is Loop.open and not is_saturated
    load = per_second(chief.offered_per_second if is_offered else rate)
    note = f"at {load} requests a second{' offered' if is_offered else ''}"
    rows = f"requests; {per_second(rate * inputs.rows_per_request)} {inputs.rows}/s"
    latencies = [(f"p{p}", milliseconds(chief.latency.percentile(p)), note) for p, _ in PERCENTILES]
    return [
        ("Saturation" if is_saturated else "Throughput", f"{per_second(rate)}/s", rows),
        *latencies,
        ("Errors", f"{chief.failed:,}", f"of {chief.answered + chief.failed:,} requests"),
    ]


def _cells(measurement: Measurement) -> dict[str, str]:
    """Return a row's cells by column; a column that has nothing in any row is left out."""
    phase, latency = measurement.phase, measurement.latency
    is_open = phase.loop is Loop.open
    users = max((second.users for second in measurement.sending_seconds), default=0)
    return {
        "phase": f"{phase.name} · {measurement.seconds:.0f} s",
        "offered/s": per_second(measurement.offered_per_second) if is_open else NOTHING,
        "answered/s": per_second(measurement.answered_per_second),
        "users": NOTHING if is_open else f"{users:,}",
        **{f"p{p:g}": milliseconds(latency.percentile(p)) for p in (50, 95, 99, 99.9)},
        "errors": f"{measurement.failed:,}",
        "SLO": outcome_of(measurement) or measurement.ended_early or NOTHING,
        "longest": milliseconds(latency.longest_ms),
        "tool's lag": milliseconds(measurement.lag.percentile(99)),
        "its CPU": f"{measurement.cpu_share:.0%}",
    }


def _circumstances(result: LoadResult, code: Callable[[str], str]) -> list[tuple[str, str]]:
    test, where, probe = result.test, result.circumstances, result.probe_per_second
    inputs, client = test.inputs, test.client
    signed = "not signed" if test.destination.region is None else "signed with SigV4"
    is_open = any(measurement.phase.loop is Loop.open for measurement in result.phases)
    bodies = f"{len(inputs.bodies):,} bodies of {inputs.mean_bytes:,} bytes in the mean"
    reached = f"closed loops reached {per_second(probe or 0)} answers a second within the SLO"
    connections = f"HTTP/1.1 over kept-alive connections, at most {client.connections}"
    facts = (
        ("Tool", f"roundhouse bench: {connections}; {signed}"),
        ("Arrivals", f"Poisson, seed {client.seed}" if is_open else "each user by its own answers"),
        ("Destination", code(test.destination.url)),
        ("Inputs", f"{inputs.description}; {bodies}, {inputs.content_type}"),
        ("Their digest", code(inputs.sha256)),
        ("Warm-up", f"{test.options.warm_up:g} s, not counted"),
        ("Probe", None if probe is None else reached),
        ("Machine", f"{where.machine}; Python {where.python}: that of the load tool"),
        ("Date", where.date),
    )
    return [(name, value) for name, value in facts if value is not None]


def charts(result: LoadResult) -> list[Chart]:
    """Return the charts that there is data for."""
    kinds = (_against_rate, _throughput, _over_time, _by_percentile, _users)
    return [chart for draw in kinds if (chart := draw(result)) is not None]


def _latency_chart(
    caption: str, result: LoadResult, lines: Sequence[Line], across: Axis, marks: Sequence[Mark]
) -> Chart:
    """Return a chart on a logarithmic axis of milliseconds, with the SLO."""
    values, slo_ms = [value for line in lines for _, value in line.points], result.test.slo_ms
    if slo_ms is not None:
        values.append(slo_ms)
        marks = [*marks, Mark(value=slo_ms, label=f"SLO {slo_ms:g} ms", kind="slo")]
    return caption, line_chart("Latency", lines, FRAME, across, logarithmic(values), marks), lines


def _count_chart(title: str, result: LoadResult, unit: str, lines: Sequence[Line]) -> Chart:
    highest = max(value for line in lines for _, value in line.points)
    high = scale(0.0, max(highest, 1e-3), FRAME.bottom, FRAME.top, ticks=5)
    across, up = _seconds(lines), axis(high, unit, "{:,g}".format)
    drawing = line_chart(title, lines, FRAME, across, up, _borders(result))
    return f"{title} over time", drawing, lines


def _seconds(lines: Sequence[Line]) -> Axis:
    longest = max(second for line in lines for second, _ in line.points)
    return axis(scale(0.0, longest, FRAME.left, FRAME.right, ticks=5), "seconds", "{:,g}".format)


def logarithmic(values: Sequence[float]) -> Axis:
    """Return an axis of powers of ten, with 1, 2 and 5 marked where there is room."""
    low, high = min(values), max(values)
    low = low if low < high else low / 2
    bottom, top = math.log10(low) - 0.04, math.log10(high) + 0.06
    steps = (1.0, 2.0, 5.0) if top - bottom < 2.4 else (1.0,)
    powers = range(math.floor(bottom), math.ceil(top) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    ticks = [tick for tick in ticks if bottom <= math.log10(tick) <= top]
    ticks = ticks if len(ticks) > 1 else [10**bottom, 10**top]

    def position(value: float) -> float:
        share = (math.log10(max(value, 1e-9)) - bottom) / (top - bottom)
        return FRAME.bottom - share * (FRAME.bottom - FRAME.top)

    labels = [(tick, f"{float(f'{tick:.3g}'):,g}") for tick in ticks]
    return Axis(position=position, ticks=labels, title="ms")


def nines(highest: float) -> Axis:
    """Return an axis of percentiles on which every nine more takes the same room."""

    def height(value: float) -> float:
        return -math.log10(1 - min(value, 99.9995) / 100)

    width = (FRAME.right - FRAME.left) / max(height(highest), 0.3)
    return Axis(
        position=lambda value: FRAME.left + height(value) * width,
        ticks=[(value, f"{value:g} %") for value in NINES if value <= highest + 1e-9],
        title="percentile of requests",
    )


def _against_rate(result: LoadResult) -> Chart | None:
    """Latency against the offered rate: for each rate the step that held, else the last."""
    saturation = result.saturation
    chosen: dict[float, Measurement] = {}
    for measurement in result.phases if saturation is not None else ():
        known = chosen.get(measurement.phase.start)
        if measurement.answered and (known is None or outcome_of(known) is not Outcome.held):
            chosen[measurement.phase.start] = measurement
    steps = sorted(chosen.items())
    lines = []
    for percentile, kind in PERCENTILES:
        points = [(rate, step.latency.percentile(percentile)) for rate, step in steps]
        known_points = [(rate, value) for rate, value in points if value]
        lines.append(Line(name=f"p{percentile}", kind=kind, radius=3, points=known_points))
    lines = [line for line in lines if line.points]
    if saturation is None or not lines or len(steps) < 2:
        return None
    marks = []
    if saturation.rate is not None:
        label = f"{per_second(saturation.rate)}/s" + ("" if saturation.exact else " or more")
        marks.append(Mark(value=saturation.rate, label=label, kind="point", upright=True))
    rates = scale(0.0, steps[-1][0], FRAME.left, FRAME.right, ticks=5)
    across = axis(rates, "requests a second offered", "{:,g}".format)
    return _latency_chart("Latency against offered rate", result, lines, across, marks)


def _throughput(result: LoadResult) -> Chart | None:
    answered = _timeline(result, attrgetter("answered"))
    errors = _timeline(result, attrgetter("errors"))
    if len(answered) < 2:
        return None
    lines = [Line(name="answered", kind="low", points=answered)]
    if any(measurement.phase.loop is Loop.open for measurement in result.phases):
        offered = _timeline(result, attrgetter("offered"))
        lines.insert(0, Line(name="offered", kind="plain", points=offered))
    if any(value for _, value in errors):
        lines.append(Line(name="errors", kind="high", points=errors))
    return _count_chart("Throughput", result, "a second", lines)


def _over_time(result: LoadResult) -> Chart | None:
    timelines = [
        (f"p{percentile}", kind, _timeline(result, methodcaller("percentile", percentile)))
        for percentile, kind in PERCENTILES
    ]
    lines = [
        Line(name=name, kind=kind, points=points, longest_gap=1.01)
        for name, kind, points in timelines
        if len(points) > 1
    ]
    if not lines:
        return None
    return _latency_chart("Latency over time", result, lines, _seconds(lines), _borders(result))


def _by_percentile(result: LoadResult) -> Chart | None:
    """The distribution of latency, the report's own phase before the others."""
    chief = result.chief
    if chief is None or len(chief.latency.curve()) < 3:
        return None
    others = [m for m in result.phases if m is not chief and len(m.latency.curve()) > 2]
    if result.saturation is None:
        kinds = ("low", "middle", "plain")
        pairs = [(other, kinds[index % 3]) for index, other in enumerate(others[-MAX_CURVES:])]
    else:
        others.sort(key=lambda measurement: measurement.phase.start)
        above = [(other, "plain") for other in others if other.phase.start > chief.phase.start]
        below = [(other, "low") for other in others if other.phase.start < chief.phase.start]
        pairs = above[:1] + below[:1]
    lines = [
        Line(name=measurement.phase.name, kind=kind, points=measurement.latency.curve())
        for measurement, kind in [(chief, "high"), *pairs]
    ]
    across = nines(max(x for line in lines for x, _ in line.points))
    return _latency_chart("Latency by percentile", result, lines, across, [])


def _users(result: LoadResult) -> Chart | None:
    points = _timeline(result, attrgetter("users"))
    if len({value for _, value in points}) < 2:
        return None
    return _count_chart("Users", result, "users", [Line(name="users", kind="plain", points=points)])


def _timeline(result: LoadResult, value: Callable[[Second], float | None]) -> Points:
    """Return a value of every second, phases one after the other."""
    points, begin = [], 0.0
    for measurement in result.phases:
        for second in measurement.sending_seconds:
            number = value(second)
            if number is not None and second.second + 1 <= max(measurement.seconds, 1):
                points.append((begin + second.second + 0.5, float(number)))
        begin += math.ceil(measurement.seconds)
    return points


def _borders(result: LoadResult) -> list[Mark]:
    """Return a mark where phases meet."""
    ends = itertools.accumulate(math.ceil(m.seconds) for m in result.phases[:-1])
    return [Mark(value=end, label="", kind="border", upright=True) for end in ends]
