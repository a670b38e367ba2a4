"""The return on investment of a text generator as a table, as lines and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine_build.card.render import per_second, render
from onboarding.prices import HOURS_A_MONTH
from roundhouse.savings.generation import GenerationReturn, Side

TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = (
    "", "output tokens/s of an instance", "instances", "USD/month", "USD/million tokens",
)  # fmt: skip
RIGHT = (COLUMNS[1], *COLUMNS[3:])
UNKNOWN = "unknown"


def rows(result: GenerationReturn) -> list[tuple[str, ...]]:
    """Return the rows of both sides, by COLUMNS."""
    return [_cells(side) for side in (result.baseline, result.plan)]


def _cells(side: Side) -> tuple[str, ...]:
    rate, hourly = side.tokens_per_second, side.usd_an_hour
    return (
        side.name,
        UNKNOWN if rate is None else per_second(rate),
        UNKNOWN if side.instances is None else f"{side.instances} x {side.instance_type}",
        _usd(None if hourly is None else hourly * HOURS_A_MONTH),
        _usd(side.usd_a_million_tokens),
    )


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def headline(result: GenerationReturn) -> str:
    """Return what a reader takes away, in a sentence or two."""
    speed = result.speed_up
    begin = "" if speed is None else f"An instance of the plan makes {speed:.1f} x the tokens. "
    months = result.months
    end = "" if months is None else f" That is {months:.2f} months."
    return f"{begin}{result.model}: {result.investment.outcome}.{end}"


def lines(result: GenerationReturn) -> Iterator[str]:
    """Yield what the numbers rest on."""
    yield f"Both for {per_second(result.demand)} output tokens/s."
    for side in (result.baseline, result.plan):
        note = f": {side.note}" if side.note and side.note != side.origin else ""
        yield f"{side.name}: {side.origin}{note}."
    build = UNKNOWN if result.build_usd is None else f"{result.build_usd:,.2f} USD"
    yield f"Build of the checkpoint: {build}."


def savings_page(result: GenerationReturn, command: str, date: str) -> bytes:
    """Return UTF-8 HTML."""
    values = {
        "result": result,
        "headline": headline(result),
        "columns": [(name, "number" if name in RIGHT else "") for name in COLUMNS],
        "rows": [(row, side is result.plan) for row, side in
                 zip(rows(result), (result.baseline, result.plan), strict=True)],
        "lines": list(lines(result)),
        "command": command,
        "date": date,
    }  # fmt: skip
    return render("generation_savings.html.j2", values, folder=TEMPLATES).encode()
