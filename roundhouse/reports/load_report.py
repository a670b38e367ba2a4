"""The report of a load test as one HTML file that loads nothing, in the engine card's style."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from engine_build.card.render import milliseconds, per_second, render
from roundhouse.measure.generation import GenerationResult
from roundhouse.measure.measurement import Measurement, Outcome, Second, proven_percentile
from roundhouse.measure.options import Loop
from roundhouse.measure.result import EngineResult, Result, outcome_of
from roundhouse.measure.slo import ITL, TTFT
from roundhouse.measure.streams import StreamMeasurement, p95
from roundhouse.reports.charts import Axis, Frame, Line, Mark, Points, axis, line_chart, scale
from roundhouse.text import quantity

TEMPLATES = Path(__file__).parent / "templates"
FRAME = Frame(width=460, height=250, left=52, right=446, top=24, bottom=208)
PERCENTILES = ((50, "low"), (95, "middle"), (99, "high"))
PROVEN_NOTE = "A percentile is shown when at least ten values lie beyond it."
OPEN_NOTE = (
    "Latency counts from the moment a request was due, whether or not the tool could send it then: "
    "a slow spell delays no later request's clock (no coordinated omission). The last columns are "
    "the load tool's own: p99 of how late it came to sending, and its share of a core."
)
CLOSED_NOTE = (
    "A closed loop: each user waits for an answer before asking again, so latency counts from "
    "sending on and a slow spell holds fewer requests than open traffic would (coordinated "
    "omission)."
)
STREAM_NOTE = (
    "TTFT: from the moment a request was due to its first token. ITL: between two chunks of one "
    "answer (AIPerf: inter_chunk_latency). TPOT: the mean of an answer's tokens after the first "
    "(AIPerf: inter_token_latency). E2E: to the last token. Goodput: whole answers a second whose "
    "TTFT and TPOT are within the SLO."
)
CAPTIONS = {"": "Latency", TTFT: "Time to the first token", ITL: "Time between tokens"}
Chart = tuple[str, str, Sequence[Line]]
"""A caption, the drawing and the lines of its legend."""
Facts = Iterable[tuple[str, str | None]]


def load_page(result: Result) -> bytes:
    """Return UTF-8 HTML."""
    is_text = isinstance(result, GenerationResult)
    shown = result.full_table()

    def rows(badge: Callable[..., str]) -> list[tuple[list[str], bool]]:
        found = shown.markup()
        for phase, (cells, _) in zip(result.phases, found, strict=True):
            if (verdict := phase.verdict) is not None:
                cells[shown.columns.index("SLO")] = badge(verdict.outcome, verdict.reason)
        return found

    def circumstances(code: Callable[[str], str]) -> list[tuple[str, str]]:
        where, test = result.circumstances, result.test
        poisson = f"Poisson, seed {test.client.seed}"
        facts = (
            *_facts(result, code),
            ("Destination", code(test.destination.url)),
            ("Arrivals", poisson if _is_open(result) else "each user by its own answers"),
            ("Warm-up", f"{test.options.warm_up_seconds:g} s, not counted"),
            ("Machine", f"{where.machine}; Python {where.python}: that of the load tool"),
            ("Date", where.date),
        )
        return [(name, value) for name, value in facts if value is not None]

    note = STREAM_NOTE if is_text else OPEN_NOTE if _is_open(result) else CLOSED_NOTE
    values = {
        "result": result,
        "title": f"Load test{' of a text generator' if is_text else ''}",
        "note": f"{note} {PROVEN_NOTE}",
        "chips": [*_chips(result), result.date],
        "tiles": list(_tiles(result)),
        "columns": shown.heads,
        "rows": rows,
        "charts": charts(result),
        "errors": [
            ((phase.phase.name, reason, f"{count:,}"), False)
            for phase in result.phases
            for reason, count in phase.errors.most_common()
        ],
        "circumstances": circumstances,
    }
    return render("load_report.html.j2", values, folder=TEMPLATES).encode()


def _is_open(result: Result) -> bool:
    return any(phase.phase.loop is Loop.open for phase in result.phases)


def _chips(result: Result) -> list[str]:
    if isinstance(result, GenerationResult):
        kind = "search for the knee" if result.is_search else "load"
        return [kind, *([] if result.test.slo is None else [str(result.test.slo)])]
    assert isinstance(result, EngineResult)
    inputs = result.test.inputs
    slo = [] if result.test.slo is None else [f"SLO {result.test.slo}"]
    rows = quantity(inputs.rows_per_request, inputs.rows.removesuffix("s"))
    return [result.kind, *slo, f"{rows} a request"]


def _errors_tile(chief: Measurement) -> tuple[str, str, str]:
    return "Errors", f"{chief.failed:,}", f"of {chief.answered + chief.failed:,} requests"


def _tiles(result: Result) -> Iterable[tuple[str, str, str]]:
    if isinstance(result, GenerationResult):
        yield from _stream_tiles(result)
        return
    assert isinstance(result, EngineResult)
    inputs, highest, chief = result.test.inputs, result.highest, result.chief
    if chief is None:
        return
    rate = chief.answered_per_second if highest is None else highest.load
    is_offered = chief.phase.loop is Loop.open and highest is None
    load = per_second(chief.offered_per_second if is_offered else rate)
    note = f"at {load} requests a second{' offered' if is_offered else ''}"
    rows = f"requests; {per_second(rate * inputs.rows_per_request)} {inputs.rows}/s"
    yield "Throughput" if highest is None else "Saturation", f"{per_second(rate)}/s", rows
    for percent, _ in PERCENTILES:
        yield f"p{percent}", milliseconds(proven_percentile(chief.latency, percent)), note
    yield _errors_tile(chief)


def _stream_tiles(result: GenerationResult) -> Iterable[tuple[str, str, str]]:
    chief = result.chief
    if chief is None:
        return
    note = f"{'' if result.highest is None else 'knee: '}{chief.phase.name}"
    if chief.goodput is not None:
        yield "Goodput", f"{per_second(chief.goodput)}/s", "requests within the SLO"
    yield "Output tokens", f"{per_second(chief.output_tokens_per_second)}/s", note
    yield "TTFT p95", milliseconds(p95(chief.ttfts_ms)), note
    yield "ITL p95", milliseconds(p95(chief.gaps_ms)), note
    yield _errors_tile(chief)


def _facts(result: Result, code: Callable[[str], str]) -> Facts:
    if isinstance(result, GenerationResult):
        yield from _stream_facts(result, code)
        return
    assert isinstance(result, EngineResult)
    test, probe, inputs = result.test, result.probe_per_second, result.test.inputs
    signed = "not signed" if test.destination.region is None else "signed with SigV4"
    bodies = f"{len(inputs.bodies):,} bodies of {inputs.mean_bytes:,} bytes in the mean"
    reached = f"closed loops reached {per_second(probe or 0)} answers a second within the SLO"
    connections = f"HTTP/1.1 over kept-alive connections, at most {test.client.connections}"
    yield "Tool", f"roundhouse bench: {connections}; {signed}"
    yield "Inputs", f"{inputs.description}; {bodies}, {inputs.content_type}"
    yield "Their digest", code(inputs.sha256)
    yield "Probe", None if probe is None else reached


def _stream_facts(result: GenerationResult, code: Callable[[str], str]) -> Facts:
    test, workload = result.test, result.test.workload
    signed = "InvokeEndpointWithResponseStream, signed with SigV4"
    yield "Path", signed if test.destination.is_framed else "HTTP, streamed"
    yield "Requests", workload.description or str(workload.lengths)
    yield "Their digest", None if workload.sha256 is None else code(workload.sha256)
    yield "Seed", str(test.client.seed)


def charts(result: Result) -> list[Chart]:
    """Return the charts that there is data for."""
    over_time = [] if isinstance(result, GenerationResult) else [_throughput, _latency_over_time]
    found = (*_charts_by_load(result), *(chart(result) for chart in over_time))
    return [chart for chart in found if chart is not None]


def _charts_by_load(result: Result) -> Iterator[Chart | None]:
    """Yield charts over the loads: of a load the phase that held, else the last one."""
    loads: dict[float, Measurement] = {}
    for phase in result.phases:
        known = loads.get(phase.phase.start)
        if phase.answered and (known is None or outcome_of(known) is not Outcome.held):
            loads[phase.phase.start] = phase
    if len(loads) < 2:
        return
    ordered = sorted(loads.items())
    title = "requests a second offered" if _is_open(result) else "requests at once"
    across = axis(scale(0.0, ordered[-1][0], FRAME.left, FRAME.right, ticks=5), title)
    highest, marks = result.highest, []
    if highest is not None:
        more = "" if highest.is_exact else " or more"
        label = f"{highest.load:,.0f}{'/s' if _is_open(result) else ' at once'}{more}"
        marks = [Mark(value=highest.load, label=label, kind="point", upright=True)]
    streams = [(load, phase) for load, phase in ordered if isinstance(phase, StreamMeasurement)]
    if streams:
        rates = [(load, phase.requests_per_second) for load, phase in streams]
        good = [(load, phase.goodput) for load, phase in streams if phase.goodput is not None]
        lines = [
            Line(name="requests/s", kind="plain", radius=3, points=rates),
            *(
                [Line(name="goodput: within the SLO", kind="low", radius=3, points=good)]
                * bool(good)
            ),
        ]
        drawing = line_chart("Goodput", lines, FRAME, across, _straight(lines, "a second"), marks)
        yield "Requests and goodput by load", drawing, lines
    for name in ordered[0][1].times:
        lines = []
        for percent, kind in PERCENTILES:
            values = [(load, proven_percentile(p.times[name], percent)) for load, p in ordered]
            points = [(load, value) for load, value in values if value]
            lines.append(Line(name=f"p{percent}", kind=kind, radius=3, points=points))
        yield _latency_chart(
            f"{CAPTIONS[name]} by load", lines, across, _slo_ms(result, name), marks
        )


def _slo_ms(result: Result, name: str = "") -> float | None:
    return None if result.test.slo is None else result.test.slo.limits[name]


def _latency_chart(
    caption: str, lines: Sequence[Line], across: Axis, slo_ms: float | None, marks: Sequence[Mark]
) -> Chart | None:
    """Return a chart on a logarithmic axis of milliseconds, with the SLO."""
    lines = [line for line in lines if line.points]
    values = [value for line in lines for _, value in line.points]
    if not values:
        return None
    if slo_ms is not None:
        values.append(slo_ms)
        marks = [*marks, Mark(value=slo_ms, label=f"SLO {slo_ms:g} ms", kind="slo")]
    return caption, line_chart("Latency", lines, FRAME, across, logarithmic(values), marks), lines


def _straight(lines: Sequence[Line], title: str, *, across: bool = False) -> Axis:
    """Return an axis from zero to the greatest value of lines."""
    highest = max(point[0 if across else 1] for line in lines for point in line.points)
    ends = (FRAME.left, FRAME.right) if across else (FRAME.bottom, FRAME.top)
    return axis(scale(0.0, max(highest, 1e-3), *ends, ticks=5), title)


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


def _throughput(result: Result) -> Chart | None:
    answered = _timeline(result, attrgetter("answered"))
    errors = _timeline(result, attrgetter("errors"))
    if len(answered) < 2:
        return None
    lines = [Line(name="answered", kind="low", points=answered)]
    if _is_open(result):
        offered = _timeline(result, attrgetter("offered"))
        lines.insert(0, Line(name="offered", kind="plain", points=offered))
    if any(value for _, value in errors):
        lines.append(Line(name="errors", kind="high", points=errors))
    across, up = _straight(lines, "seconds", across=True), _straight(lines, "a second")
    drawing = line_chart("Throughput", lines, FRAME, across, up, _borders(result))
    return "Throughput over time", drawing, lines


def _latency_over_time(result: Result) -> Chart | None:
    lines = []
    for percent, kind in PERCENTILES:
        value = partial(_second_percentile, percent=percent)
        points = _timeline(result, value)
        if len(points) > 1:
            lines.append(Line(name=f"p{percent}", kind=kind, points=points, longest_gap=1.01))
    if not lines:
        return None
    across = _straight(lines, "seconds", across=True)
    return _latency_chart("Latency over time", lines, across, _slo_ms(result), _borders(result))


def _second_percentile(second: Second, percent: float) -> float | None:
    return proven_percentile(second.milliseconds, percent)


def _timeline(result: Result, value: Callable[[Second], float | None]) -> Points:
    """Return a value of every second, phases one after the other."""
    points, begin = [], 0.0
    for measurement in result.phases:
        for second in measurement.sending_seconds:
            number = value(second)
            if number is not None and second.second + 1 <= max(measurement.seconds, 1):
                points.append((begin + second.second + 0.5, float(number)))
        begin += math.ceil(measurement.seconds)
    return points


def _borders(result: Result) -> list[Mark]:
    """Return a mark where phases meet."""
    ends = itertools.accumulate(math.ceil(m.seconds) for m in result.phases[:-1])
    return [Mark(value=end, label="", kind="border", upright=True) for end in ends]
