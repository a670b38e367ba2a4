"""The report of a load test as one HTML file that loads nothing, in the engine card's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine_build.card.charts import Axis, Frame, Line, Mark, Points, axis, line_chart, scale
from engine_build.card.render import milliseconds, per_second, render
from roundhouse.load_test.headline import percentiles_text
from roundhouse.load_test.result import LoadResult, PhaseResult, SecondResult
from roundhouse.text import quantity

TEMPLATES = Path(__file__).parent / "templates"
FRAME = Frame(width=460, height=250, left=52, right=446, top=24, bottom=208)
MAX_CURVES = 6
PERCENTILES = (("p50", "low"), ("p95", "middle"), ("p99", "high"))
NINES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
NOTHING = milliseconds(None)
TEXT_COLUMNS = ("phase", "SLO")
Chart = tuple[str, str, Sequence[Line]]
"""A caption, the drawing and the lines of its legend."""


def load_page(result: LoadResult) -> bytes:
    """Return UTF-8 HTML."""
    cells = [_cells(phase) for phase in result.phases]
    heads = (
        [head for head in cells[0] if any(row[head] != NOTHING for row in cells)] if cells else []
    )

    def rows(badge: Callable[..., str]) -> list[tuple[list[str], bool]]:
        found = []
        for phase, row in zip(result.phases, cells, strict=True):
            slo = row["SLO"] if phase.outcome is None else badge(phase.outcome, phase.reason)
            texts = [{**row, "SLO": slo}[head] for head in heads]
            found.append((texts, phase is result.chief))
        return found

    values = {
        "result": result,
        "chips": _chips(result),
        "tiles": _tiles(result),
        "columns": [(head, "" if head in TEXT_COLUMNS else "number") for head in heads],
        "rows": rows,
        "charts": charts(result),
        "errors": [
            ((phase.name, reason, f"{count:,}"), False)
            for phase in result.phases
            for reason, count in phase.errors.items()
        ],
        "circumstances": lambda code: _circumstances(result, code),
    }
    filters = {"numbers": percentiles_text}
    return render("load_report.html.j2", values, folder=TEMPLATES, filters=filters).encode()


def _chips(result: LoadResult) -> list[str]:
    slo = [] if result.slo_ms is None else [f"SLO p99 ≤ {result.slo_ms:g} ms"]
    rows = quantity(result.inputs["rows_per_request"], result.inputs["rows"].removesuffix("s"))
    return [result.kind, *slo, f"{rows} a request", result.circumstances.date]


def _tiles(result: LoadResult) -> list[tuple[str, str, str]]:
    chief = result.chief
    if chief is None:
        return []
    saturated = result.saturation is not None and result.saturation.rate is not None
    rate = chief.start if saturated else chief.answered_per_second
    rows = f"{per_second(rate * result.inputs['rows_per_request'])} {result.inputs['rows']}/s"
    is_offered = chief.loop == "open" and not saturated
    load = per_second(chief.offered_per_second if is_offered else rate)
    note = f"at {load} requests a second{' offered' if is_offered else ''}"
    errors = f"of {chief.answered + chief.failed:,} requests"
    return [
        (
            "Saturation" if saturated else "Throughput",
            f"{per_second(rate)}/s",
            f"requests; {rows}",
        ),
        *((name, milliseconds(chief.latency_ms[name]), note) for name, _ in PERCENTILES),
        ("Errors", f"{chief.failed:,}", errors),
    ]


def _cells(phase: PhaseResult) -> dict[str, str]:
    """Return a row's cells by column; a column that has nothing in any row is left out."""
    is_open = phase.loop == "open"
    users = max((second.users for second in phase.by_second), default=0)
    return {
        "phase": f"{phase.name} · {phase.seconds:.0f} s",
        "offered/s": per_second(phase.offered_per_second) if is_open else NOTHING,
        "answered/s": per_second(phase.answered_per_second),
        "users": NOTHING if is_open else f"{users:,}",
        **{name: milliseconds(phase.latency_ms[name]) for name in ("p50", "p95", "p99", "p99.9")},
        "errors": f"{phase.failed:,}",
        "SLO": phase.outcome or phase.ended_early or NOTHING,
        "longest": milliseconds(phase.longest_ms),
        "tool's lag": milliseconds(phase.lag_ms["p99"]),
        "its CPU": f"{phase.cpu_share:.0%}",
    }


def _circumstances(result: LoadResult, code: Callable[[str], str]) -> list[tuple[str, str]]:
    settings, inputs, where = result.settings, result.inputs, result.circumstances
    is_open = any(phase.loop == "open" for phase in result.phases)
    arrivals = {"poisson": f"Poisson, seed {settings['seed']}", "even": "even"}
    signed = "signed with SigV4" if settings["signed"] else "not signed"
    bodies = f"{inputs['bodies']:,} bodies of {inputs['mean_bytes']:,} bytes in the mean"
    probe = settings["probe_per_second"]
    facts = [
        (
            "Tool",
            "roundhouse bench: HTTP/1.1 over kept-alive connections, "
            f"at most {settings['connections']}; {signed}",
        ),
        (
            "Arrivals",
            arrivals[settings["arrivals"]] if is_open else "each user by its own answers",
        ),
        ("Destination", code(settings["url"])),
        ("Inputs", f"{inputs['description']}; {bodies}, {inputs['content_type']}"),
        ("Their digest", code(inputs["sha256"])),
        ("Warm-up", f"{settings['warm_up_seconds']:g} s, not counted"),
    ]
    if probe is not None:
        reached = f"a closed loop of 32 users reached {per_second(probe)} answers a second"
        facts.append(("Probe", reached))
    if settings["stop"] is not None:
        facts.append(("Stopping condition", settings["stop"]))
    machine = f"{where.machine}; Python {where.python}: that of the load tool"
    return [*facts, ("Machine", machine), ("Date", where.date)]


def charts(result: LoadResult) -> list[Chart]:
    """Return the charts that there is data for."""
    drawn = (
        _against_rate(result),
        _throughput(result),
        _over_time(result),
        _by_percentile(result),
        _users(result),
    )
    return [chart for chart in drawn if chart is not None]


def _latency_chart(
    caption: str, result: LoadResult, lines: Sequence[Line], across: Axis, marks: Sequence[Mark]
) -> Chart:
    """Return a chart on a logarithmic axis of milliseconds, with the SLO."""
    values = [value for line in lines for _, value in line.points]
    if result.slo_ms is not None:
        values.append(result.slo_ms)
        label = f"SLO {result.slo_ms:g} ms"
        marks = [*marks, Mark(value=result.slo_ms, label=label, kind="slo")]
    return caption, line_chart("Latency", lines, FRAME, across, _logarithmic(values), marks), lines


def _count_chart(
    caption: str, result: LoadResult, title: str, unit: str, lines: Sequence[Line]
) -> Chart:
    values = [value for line in lines for _, value in line.points]
    high = scale(0.0, max(*values, 1e-3), FRAME.bottom, FRAME.top, ticks=5)
    across, up = _seconds(lines), axis(high, unit, "{:,g}".format)
    return caption, line_chart(title, lines, FRAME, across, up, _borders(result)), lines


def _seconds(lines: Sequence[Line]) -> Axis:
    longest = max(second for line in lines for second, _ in line.points)
    return axis(scale(0.0, longest, FRAME.left, FRAME.right, ticks=5), "seconds", "{:,g}".format)


def _logarithmic(values: Sequence[float]) -> Axis:
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


def _nines(highest: float) -> Axis:
    """Return an axis of percentiles on which every nine more takes the same room."""

    def nines(value: float) -> float:
        return -math.log10(1 - min(value, 99.9995) / 100)

    width = (FRAME.right - FRAME.left) / max(nines(highest), 0.3)
    ticks = [(value, f"{value:g} %") for value in NINES if value <= highest + 1e-9]
    return Axis(
        position=lambda value: FRAME.left + nines(value) * width,
        ticks=ticks,
        title="percentile of requests",
    )


def _against_rate(result: LoadResult) -> Chart | None:
    """Latency against the offered rate: for each rate the step that held, else the last."""
    if result.saturation is None:
        return None
    chosen: dict[float, PhaseResult] = {}
    for phase in result.phases:
        known = chosen.get(phase.start)
        if phase.answered and (known is None or known.outcome != "held"):
            chosen[phase.start] = phase
    steps = [chosen[start] for start in sorted(chosen)]
    lines = [
        Line(
            name=name,
            kind=kind,
            radius=3,
            points=[(step.start, value) for step in steps if (value := step.latency_ms[name])],
        )
        for name, kind in PERCENTILES
    ]
    lines = [line for line in lines if line.points]
    if not lines or len(steps) < 2:
        return None
    marks, saturation = [], result.saturation
    if saturation.rate is not None:
        label = f"{per_second(saturation.rate)}/s" + ("" if saturation.exact else " or more")
        marks.append(Mark(value=saturation.rate, label=label, kind="point", upright=True))
    rates = scale(0.0, steps[-1].start, FRAME.left, FRAME.right, ticks=5)
    across = axis(rates, "requests a second offered", "{:,g}".format)
    return _latency_chart("Latency against offered rate", result, lines, across, marks)


def _throughput(result: LoadResult) -> Chart | None:
    answered = _timeline(result, lambda second: second.answered)
    errors = _timeline(result, lambda second: second.errors)
    if len(answered) < 2:
        return None
    lines = [Line(name="answered", kind="low", points=answered)]
    if any(phase.loop == "open" for phase in result.phases):
        offered = _timeline(result, lambda second: second.offered)
        lines.insert(0, Line(name="offered", kind="plain", points=offered))
    if any(value for _, value in errors):
        lines.append(Line(name="errors", kind="high", points=errors))
    return _count_chart("Throughput over time", result, "Throughput", "a second", lines)


def _over_time(result: LoadResult) -> Chart | None:
    values: dict[str, Callable[[SecondResult], float | None]] = {
        "p50": lambda second: second.p50_ms,
        "p95": lambda second: second.p95_ms,
        "p99": lambda second: second.p99_ms,
    }
    lines = [
        Line(name=name, kind=kind, points=_timeline(result, values[name]), longest_gap=1.01)
        for name, kind in PERCENTILES
    ]
    lines = [line for line in lines if len(line.points) > 1]
    if not lines:
        return None
    return _latency_chart("Latency over time", result, lines, _seconds(lines), _borders(result))


def _by_percentile(result: LoadResult) -> Chart | None:
    """The distribution of latency, the report's own phase before the others."""
    chief = result.chief
    others = [phase for phase in result.phases if phase is not chief and len(phase.curve) > 2]
    if chief is None or len(chief.curve) < 3:
        return None
    if result.saturation is None:
        kinds = ("low", "middle", "plain")
        pairs = [(phase, kinds[index % 3]) for index, phase in enumerate(others[-MAX_CURVES:])]
    else:
        above = [(phase, "plain") for phase in others if phase.start > chief.start]
        below = [(phase, "low") for phase in others if phase.start < chief.start]
        lowest = [sorted(group, key=lambda pair: pair[0].start)[:1] for group in (above, below)]
        pairs = lowest[0] + lowest[1]
    lines = [Line(name=phase.name, kind=kind, points=phase.curve) for phase, kind in pairs]
    lines.insert(0, Line(name=chief.name, kind="high", points=chief.curve))
    if chief.corrected_ms is not None:
        known = [(name, value) for name, value in chief.corrected_ms.items() if value is not None]
        points = [(float(name.removeprefix("p")), value) for name, value in known]
        lines.append(Line(name="corrected", kind="middle", radius=3, points=points))
    across = _nines(max(x for line in lines for x, _ in line.points))
    return _latency_chart("Latency by percentile", result, lines, across, [])


def _users(result: LoadResult) -> Chart | None:
    points = _timeline(result, lambda second: second.users)
    if len({value for _, value in points}) < 2:
        return None
    line = Line(name="users", kind="plain", points=points)
    return _count_chart("Users over time", result, "Users", "users", [line])


def _timeline(result: LoadResult, value: Callable[[SecondResult], float | None]) -> Points:
    """Return a value of every second, phases one after the other."""
    points, begin = [], 0.0
    for phase in result.phases:
        for second in phase.by_second:
            number = value(second)
            if number is not None and second.second + 1 <= max(phase.seconds, 1):
                points.append((begin + second.second + 0.5, float(number)))
        begin += math.ceil(phase.seconds)
    return points


def _borders(result: LoadResult) -> list[Mark]:
    """Return a mark where phases meet."""
    ends, border = 0.0, Mark(value=0.0, label="", kind="border", upright=True)
    marks = []
    for phase in result.phases[:-1]:
        ends += math.ceil(phase.seconds)
        marks.append(replace(border, value=ends))
    return marks
