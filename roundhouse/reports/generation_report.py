"""The report of a load test of a text generator as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine_build.card.render import milliseconds, per_second, render
from roundhouse.load_test.generation.measurement import (
    GenerationMeasurement,
    p95,
)
from roundhouse.load_test.generation.result import (
    COLUMNS,
    NOTHING,
    GenerationResult,
    cells_of,
)
from roundhouse.load_test.measurement import percentile
from roundhouse.load_test.options import Loop
from roundhouse.reports.charts import Line, Mark, Scale, axis, line_chart, scale
from roundhouse.reports.load_report import (
    FRAME,
    PERCENTILES,
    TEMPLATES,
    Chart,
    logarithmic,
    nines,
)

CURVE = (0, 25, 50, 75, 90, 95, 97.5, 99)
TEXT_COLUMNS = ("phase", "SLO")


def generation_page(result: GenerationResult) -> bytes:
    """Return UTF-8 HTML."""
    rows = [cells_of(phase) for phase in result.phases]
    kept = [place for place in range(len(COLUMNS)) if any(row[place] != NOTHING for row in rows)]

    def table_rows(badge: Callable[..., str]) -> list[tuple[list[str], bool]]:
        shown = []
        for phase, row in zip(result.phases, rows, strict=True):
            cells = list(row)
            if phase.verdict is not None:
                cells[-1] = badge(phase.verdict.outcome, phase.verdict.reason)
            shown.append(([cells[place] for place in kept], phase is result.chief))
        return shown

    values = {
        "result": result,
        "chips": _chips(result),
        "tiles": _tiles(result),
        "columns": [
            (COLUMNS[place], "" if COLUMNS[place] in TEXT_COLUMNS else "number") for place in kept
        ],
        "rows": table_rows,
        "charts": charts(result),
        "errors": [
            ((phase.phase.name, reason, f"{count:,}"), False)
            for phase in result.phases
            for reason, count in phase.errors.most_common()
        ],
        "circumstances": lambda code: _circumstances(result, code),
    }
    return render("generation_report.html.j2", values, folder=TEMPLATES).encode()


def _chips(result: GenerationResult) -> list[str]:
    slo = [] if result.test.slo is None else [str(result.test.slo)]
    kind = "load" if result.test.phases else "search for the knee"
    return [kind, *slo, result.circumstances.date]


def _tiles(result: GenerationResult) -> list[tuple[str, str, str]]:
    chief, knee = result.chief, result.knee
    if chief is None:
        return []
    note = f"{'knee: ' if knee is not None else ''}{chief.phase.name}"
    goodput = [] if chief.goodput is None else [
        ("Goodput", f"{per_second(chief.goodput)}/s", "requests within the SLO")
    ]  # fmt: skip
    return [
        *goodput,
        ("Output tokens", f"{per_second(chief.output_tokens_per_second)}/s", note),
        ("TTFT p95", milliseconds(p95(chief.ttfts_ms)), note),
        ("ITL p95", milliseconds(p95(chief.gaps_ms)), note),
        ("Errors", f"{chief.failed:,}", f"of {chief.answered + chief.failed:,} requests"),
    ]


def _circumstances(result: GenerationResult, code: Callable[[str], str]) -> list[tuple[str, str]]:
    test, where = result.test, result.circumstances
    seed, target, workload = test.client.seed, test.target, test.workload
    is_open = any(phase.phase.loop is Loop.open for phase in result.phases)
    path = "HTTP, streamed"
    if target.is_framed:
        path = "InvokeEndpointWithResponseStream, signed with SigV4"
    facts = (
        ("Path", path),
        ("Destination", code(target.destination.url)),
        ("Arrivals", f"Poisson, seed {seed}" if is_open else "each request after an answer"),
        ("Requests", workload.description or str(workload.lengths)),
        ("Their digest", None if workload.sha256 is None else code(workload.sha256)),
        ("Seed", str(seed)),
        ("Warm-up", f"{test.options.warm_up:g} s, not counted"),
        ("Machine", f"{where.machine}; Python {where.python}: that of the load tool"),
        ("Date", where.date),
    )
    return [(name, value) for name, value in facts if value is not None]


def charts(result: GenerationResult) -> list[Chart]:
    """Return the charts that there is data for."""
    kinds = (_throughput, _ttft, _gaps, _by_percentile)
    return [chart for draw in kinds if (chart := draw(result)) is not None]


def _loads(result: GenerationResult) -> list[tuple[float, GenerationMeasurement]]:
    """Return the last phase of each load, by the load."""
    chosen = {phase.phase.start: phase for phase in result.phases if phase.answers}
    return sorted(chosen.items(), key=lambda pair: pair[0])


def _across(result: GenerationResult, highest: float) -> tuple[str, Scale]:
    is_open = any(phase.phase.loop is Loop.open for phase in result.phases)
    title = "requests a second offered" if is_open else "requests at once"
    return title, scale(0.0, highest, FRAME.left, FRAME.right, ticks=5)


def _throughput(result: GenerationResult) -> Chart | None:
    loads = _loads(result)
    if len(loads) < 2:
        return None
    lines = [
        Line(
            name="requests/s",
            kind="plain",
            radius=3,
            points=[(load, phase.requests_per_second) for load, phase in loads],
        )
    ]
    if result.test.slo is not None:
        points = [(load, phase.goodput or 0.0) for load, phase in loads]
        lines.append(Line(name="goodput: within the SLO", kind="low", radius=3, points=points))
    highest = max(value for line in lines for _, value in line.points)
    up = axis(scale(0.0, max(highest, 1e-3), FRAME.bottom, FRAME.top, ticks=5), "a second")
    title, across = _across(result, loads[-1][0])
    drawing = line_chart("Goodput", lines, FRAME, axis(across, title), up, _knee_marks(result))
    return "Requests and goodput by load", drawing, lines


def _ttft(result: GenerationResult) -> Chart | None:
    limit = None if result.test.slo is None else result.test.slo.ttft_ms
    return _times(result, "Time to the first token", lambda phase: phase.ttfts_ms, limit)


def _gaps(result: GenerationResult) -> Chart | None:
    limit = None if result.test.slo is None else result.test.slo.itl_ms
    return _times(result, "Time between tokens", lambda phase: phase.gaps_ms, limit)


def _times(
    result: GenerationResult,
    title: str,
    values: Callable[[GenerationMeasurement], Sequence[float]],
    limit: float | None,
) -> Chart | None:
    loads = _loads(result)
    lines = []
    for percent, kind in PERCENTILES:
        points = [(load, percentile(values(phase), percent)) for load, phase in loads]
        known = [(load, value) for load, value in points if value]
        lines.append(Line(name=f"p{percent}", kind=kind, radius=3, points=known))
    lines = [line for line in lines if line.points]
    if len(loads) < 2 or not lines:
        return None
    marks = list(_knee_marks(result))
    heights = [value for line in lines for _, value in line.points]
    if limit is not None:
        heights.append(limit)
        marks.append(Mark(value=limit, label=f"SLO {limit:g} ms", kind="slo"))
    name, across = _across(result, loads[-1][0])
    drawing = line_chart(title, lines, FRAME, axis(across, name), logarithmic(heights), marks)
    return f"{title} by load", drawing, lines


def _by_percentile(result: GenerationResult) -> Chart | None:
    """The distributions of the report's own phase."""
    chief = result.chief
    if chief is None or len(chief.answers) < 20:
        return None
    sources = (("TTFT", "high", chief.ttfts_ms), ("ITL", "low", chief.gaps_ms))
    lines = [
        Line(
            name=name,
            kind=kind,
            points=[(float(p), percentile(values, p) or 1e-3) for p in CURVE],
        )
        for name, kind, values in sources
        if values
    ]
    heights = [max(value, 1e-3) for line in lines for _, value in line.points]
    across = nines(99.0)
    drawing = line_chart("Distribution", lines, FRAME, across, logarithmic(heights), [])
    return f"Times by percentile: {chief.phase.name}", drawing, lines


def _knee_marks(result: GenerationResult) -> list[Mark]:
    knee = result.knee
    if knee is None:
        return []
    label = f"knee: {knee.concurrency}"
    return [Mark(value=float(knee.concurrency), label=label, kind="point", upright=True)]
