"""A recommendation job beside our measurements: rows of tables, Markdown and plain JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from engine_build.card.render import milliseconds
from roundhouse.recommendation.comparison import MILLION, ComparedJob, ComparedRow
from roundhouse.report import markdown_rows

NOTHING = "–"
COLUMNS = (
    "benchmark", "requests/min", "latency", "within the SLO", "USD/hour", "USD/million",
    "ours: requests/min", "job by ours", "ours: USD/million",
)  # fmt: skip
RIGHT = COLUMNS[1:]
SCALING_COLUMNS = (
    "benchmark", "job: target", "job: capacity", "ours: target", "ours: derivation",
)  # fmt: skip
SCALING_RIGHT = SCALING_COLUMNS[1:4]
EXPLANATION = (
    "The job's users wait for each answer, and its numbers are of the moment when more users bring "
    "no more answers; ours is the highest open-loop rate with p99 within the SLO. The job's target "
    "knows the CPU of an instance and no GPU: scaling keeps ours."
)


def cells_of(row: ComparedRow) -> tuple[str, ...]:
    """Return a row's cells, by COLUMNS."""
    item, own, ratio = row.recommendation, row.own, row.throughput_ratio
    held = {None: NOTHING, True: "yes", False: "no"}[row.holds_slo]
    return (
        item.name,
        _count(item.invocations_per_minute),
        milliseconds(item.latency_ms),
        held,
        _usd(item.usd_per_hour),
        _usd(_million(item.usd_per_inference)),
        NOTHING if own is None else _count(own.invocations_per_minute) + _mark(row),
        NOTHING if ratio is None else f"{ratio:.2f}",
        NOTHING if own is None else _usd(_million(own.usd_per_inference)),
    )


def _mark(row: ComparedRow) -> str:
    return "" if row.own is None or row.own.is_served else " (derived)"


def scaling_cells(job: ComparedJob) -> Iterator[tuple[str, ...]]:
    """Yield what both sides say of scaling, by SCALING_COLUMNS, of rows with advice."""
    for row in job.rows:
        advice, own = row.recommendation.scaling, row.own
        if advice is None:
            continue
        counts = [
            NOTHING if count is None else str(count)
            for count in (advice.min_capacity, advice.max_capacity)
        ]
        theirs = NOTHING if advice.target is None else f"{advice.target:,.10g}"
        metric = "" if advice.metric is None else f" {advice.metric}"
        yield (
            row.recommendation.name,
            f"{theirs}{metric}",
            " to ".join(counts),
            NOTHING if own is None or own.target is None else f"{own.target:,.10g}",
            NOTHING if own is None or own.target_derivation is None else own.target_derivation,
        )


def notes(job: ComparedJob) -> list[str]:
    """Return where job and we disagree, and why a benchmark has no metric, a sentence each."""
    found = []
    for row in job.rows:
        name = row.recommendation.name
        if row.recommendation.reason is not None:
            found.append(f"{name}: {row.recommendation.reason}")
        found += [f"{name}: {text}." for text in row.disagreements]
    if not any(row.own is not None for row in job.rows):
        found.append(
            "Nothing of ours to compare with: `roundhouse bench --record` measures an endpoint."
        )
    return found


def markdown(job: ComparedJob) -> str:
    """Return the job as Markdown, to be pasted into a pull request."""
    scaling = list(scaling_cells(job))
    advice = markdown_rows(SCALING_COLUMNS, scaling, right=SCALING_RIGHT)
    lines = [
        f"# {job.model} in {job.record.environment}: Inference Recommender",
        "",
        job.headline,
        "",
        *markdown_rows(COLUMNS, map(cells_of, job.rows), right=RIGHT),
        "",
        *(f"- {text}" for text in notes(job)),
        "",
        *([*advice, ""] if scaling else []),
        f"{EXPLANATION} {origin(job)}",
        "",
    ]
    return "\n".join(lines)


def origin(job: ComparedJob) -> str:
    """Return which job the numbers are of."""
    record = job.record
    return (
        f"{record.job_type} job {record.job} in {record.region}, {record.completed} UTC, "
        f"{record.requests} sample requests, engine {record.engine_key}."
    )


def document(job: ComparedJob) -> dict[str, Any]:
    """Return the job for JSON."""
    return {
        "version": 1,
        "model": job.model,
        "slo_ms": job.slo_ms,
        "headline": job.headline,
        "job": {**asdict(job.record), "recommendations": [_row(row) for row in job.rows]},
        "notes": notes(job),
    }


def _row(row: ComparedRow) -> dict[str, Any]:
    own = None
    if row.own is not None:
        own = {**asdict(row.own), "usd_per_inference": row.own.usd_per_inference}
    return {
        **asdict(row.recommendation),
        "own": own,
        "throughput_ratio": row.throughput_ratio,
        "within_slo": row.holds_slo,
        "disagreements": list(row.disagreements),
    }


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _million(value: float | None) -> float | None:
    return None if value is None else value * MILLION


def _usd(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.4g}"
