"""The report as one HTML file that loads nothing, in the engine card's dress."""

from __future__ import annotations

from engine_build.card.markup import Markup, element, joined
from engine_build.card.page import POLICY
from engine_build.card.style import STYLE
from engine_build.card.table import Column, Line, code, pairs, section, table
from roundhouse.load_test.numbers import milliseconds
from roundhouse.load_test.numbers import per_second as rate
from roundhouse.load_test.result import LoadResult, PhaseResult, percentiles_text
from roundhouse.reports.plots import plots
from roundhouse.text import quantity

COLOURS = """
main { max-width: 1120px; }
.charts { grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); }
figure { max-width: none; }
.scroll + .note { margin-top: 12px; }
svg .line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
svg .line.high { stroke: var(--accent); stroke-width: 2.25; } svg .dot.high { fill: var(--accent); stroke: none; }
svg .line.middle { stroke: var(--whisker); stroke-dasharray: 5 3; } svg .dot.middle { fill: var(--whisker); stroke: none; }
svg .line.low { stroke: var(--good); } svg .dot.low { fill: var(--good); stroke: none; }
svg .line.plain { stroke: var(--other); } svg .dot.plain { fill: var(--other); stroke: none; }
svg .mark.slo { stroke: var(--warm); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .word { font-size: 12px; paint-order: stroke; stroke: var(--sheet); stroke-width: 4px; }
svg .word.slo { fill: var(--warm); } svg .word.point { fill: var(--accent); font-weight: 650; }
svg .mark.point { stroke: var(--accent); stroke-width: 1.5; stroke-dasharray: 2 3; }
svg .mark.border { stroke: var(--other); stroke-width: 1; stroke-dasharray: 1 3; }
.keys { color: var(--muted); font-size: 12.5px; margin: 2px 0 0; display: flex; flex-wrap: wrap; gap: 4px 16px; }
.key::before {
  content: ""; display: inline-block; width: 16px; height: 0; border-top: 2.5px solid; margin-right: 6px; vertical-align: 4px;
}
.key.high::before { border-color: var(--accent); } .key.middle::before { border-color: var(--whisker); border-top-style: dashed; }
.key.low::before { border-color: var(--good); } .key.plain::before { border-color: var(--other); }
.badge.good, .badge.bad, .badge.unsure { display: inline-block; }
"""
NOTHING = milliseconds(None)
BADGES = {"held": "good", "missed": "bad", "too few samples": "unsure", "tool's limit": "unsure"}
OPEN_NOTE = (
    "Latency counts from the moment a request was due, whether or not the tool could send it then: a slow spell delays no "
    "later request's clock (no coordinated omission). A percentile is shown when at least ten requests lie beyond it. The last "
    "columns are the load tool's own: p99 of how late it came to sending, and its busiest process's share of a core."
)
CLOSED_NOTE = (
    "A closed loop: each user waits for an answer before invocation again, so latency counts from sending on and a slow spell holds "
    "fewer requests than open traffic would (coordinated omission)."
)


def count(value: float) -> str:
    """Format a number of things."""
    return f"{value:,.0f}"


def load_page(result: LoadResult) -> bytes:
    """UTF-8 HTML."""
    body = element(
        "main",
        _head(result),
        _tiles(result),
        _phases(result),
        _plots(result),
        _faults(result),
        _how(result),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"{result.subject}: load test"),
        element("style", Markup(STYLE + COLOURS)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n".encode()


def _head(result: LoadResult) -> Markup:
    chips = [result.kind, *([] if result.slo_ms is None else [f"SLO p99 ≤ {result.slo_ms:g} ms"])]
    rows = quantity(result.inputs["rows_per_request"], result.inputs["rows"].removesuffix("s"))
    chips += [f"{rows} a request", result.circumstances.date]
    return element(
        "header",
        element("p", "Load test", class_="over"),
        element("h1", result.subject),
        element("ul", [element("li", each, class_="chip") for each in chips], class_="chips"),
        element("p", result.headline, class_="decision"),
    )


def _tiles(result: LoadResult) -> Markup:
    chief = result.chief
    if chief is None:
        return Markup("")
    saturated = result.saturation is not None and result.saturation.rate is not None
    per_second = chief.start if saturated else chief.answered_per_second
    rows = f"{rate(per_second * result.inputs['rows_per_request'])} {result.inputs['rows']}/s"
    is_offered = chief.loop == "open" and not saturated
    at = f"at {rate(chief.offered_per_second if is_offered else per_second)} requests a second{' offered' if is_offered else ''}"
    tiles = [
        _tile(
            "Saturation" if saturated else "Throughput",
            f"{rate(per_second)}/s",
            f"requests; {rows}",
        ),
        *(_tile(name, milliseconds(chief.latency_ms[name]), at) for name in ("p50", "p95", "p99")),
        _tile("Errors", count(chief.failed), f"of {count(chief.answered + chief.failed)} requests"),
    ]
    return element("dl", tiles, class_="tiles")


def _phases(result: LoadResult) -> Markup:
    """The table; a column that no phase has anything for is left out."""
    rows = [_cells(each) for each in result.phases]
    kept = [head for head in HEADS if any(row[head] != NOTHING for row in rows)]
    columns = [
        Column(head=head, kind=None if head in ("phase", "SLO") else "number") for head in kept
    ]
    lines = [
        Line(cells=[row[head] for head in kept], own=each is result.chief)
        for row, each in zip(rows, result.phases, strict=True)
    ]
    note = OPEN_NOTE if any(each.loop == "open" for each in result.phases) else CLOSED_NOTE
    corrected = [
        element(
            "p",
            f"{each.name}, corrected for an expected interval: {percentiles_text(each.corrected_ms)}.",
            class_="note",
        )
        for each in result.phases
        if each.corrected_ms is not None
    ]
    return section("Phases", table(columns, lines), corrected, note=note)


HEADS = (
    "phase",
    "offered/s",
    "answered/s",
    "users",
    "p50",
    "p95",
    "p99",
    "p99.9",
    "errors",
    "SLO",
    "longest",
    "tool's lag",
    "its CPU",
)


def _cells(phase: PhaseResult) -> dict[str, str | Markup]:
    is_open = phase.loop == "open"
    return {
        "phase": f"{phase.name} · {phase.seconds:.0f} s",
        "offered/s": rate(phase.offered_per_second) if is_open else NOTHING,
        "answered/s": rate(phase.answered_per_second),
        "users": NOTHING
        if is_open
        else count(max((each.users for each in phase.by_second), default=0)),
        **{name: milliseconds(phase.latency_ms[name]) for name in ("p50", "p95", "p99", "p99.9")},
        "errors": count(phase.failed),
        "SLO": _badge(phase),
        "longest": milliseconds(phase.longest_ms),
        "tool's lag": milliseconds(phase.lag_ms["p99"]),
        "its CPU": f"{phase.cpu_share:.0%}",
    }


def _badge(phase: PhaseResult) -> Markup | str:
    if phase.outcome is None:
        return NOTHING if phase.ended_early is None else phase.ended_early
    return element(
        "span", phase.outcome, class_=f"badge {BADGES[phase.outcome]}", title=phase.reason
    )


def _plots(result: LoadResult) -> Markup:
    made = plots(result)
    return section("Plots", element("div", made, class_="charts")) if made else Markup("")


def _faults(result: LoadResult) -> Markup:
    found = [
        (phase.name, reason, number)
        for phase in result.phases
        for reason, number in phase.errors.items()
    ]
    limits = element("p", "; ".join(f"{k}: {v}" for k, v in result.tool_limits.items()) + ".")
    parts = []
    if found:
        columns = [
            Column(head="phase", kind=None),
            Column(head="what the server said", kind="words"),
            Column(head="times"),
        ]
        lines = [Line(cells=(name, reason, count(number))) for name, reason, number in found]
        parts.append(section("Errors", table(columns, lines)))
    if result.tool_limits:
        parts.append(section("Where the load tool was the limit", limits, note=TOOL_NOTE))
    return joined(parts)


TOOL_NOTE = "These phases' numbers hold the tool's own lateness. Run it on another machine than the server's."


def _how(result: LoadResult) -> Markup:
    asked, inputs, where = result.settings, result.inputs, result.circumstances
    sent = "signed with SigV4" if asked["signed"] else "not signed"
    arrivals = {"poisson": f"Poisson, seed {asked['seed']}", "even": "even"}[asked["arrivals"]]
    probe = asked["probe_per_second"]
    bodies = f"{inputs['bodies']:,} bodies of {inputs['mean_bytes']:,} bytes in the mean"
    items = [
        (
            "Tool",
            f"roundhouse bench: HTTP/1.1 over kept-alive connections, at most {asked['connections']}; {sent}",
        ),
        (
            "Arrivals",
            arrivals
            if any(each.loop == "open" for each in result.phases)
            else "each user by its own answers",
        ),
        ("Destination", code(asked["url"])),
        ("Inputs", f"{inputs['description']}; {bodies}, {inputs['content_type']}"),
        ("Their digest", code(inputs["sha256"])),
        ("Warm-up", f"{asked['warm_up_seconds']:g} s, not counted"),
        *(
            []
            if probe is None
            else [("Probe", f"a closed loop of 32 users reached {rate(probe)} answers a second")]
        ),
        *([] if asked["stop"] is None else [("Stopping condition", asked["stop"])]),
        ("Machine", f"{where.machine}; Python {where.python}: that of the load tool"),
        ("Date", where.date),
    ]
    return section("How it was measured", pairs(items), element("pre", asked["command"]))


def _tile(name: str, value: str, note: str) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", joined(value, element("small", note))),
        class_="tile",
    )
