"""The report of a model's lengths, as tables, Markdown and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onboarding.manifest import ProfileRecord
from roundhouse.lengths.costs import Cost, total, usd
from roundhouse.lengths.measurement import Counted, Timed
from roundhouse.lengths.padding import DESCRIPTIONS, Padding
from roundhouse.lengths.proposal import Proposal
from roundhouse.lengths.saving import MeasuredSaving, Times
from roundhouse.report import markdown_rows
from roundhouse.text import quantity

COLUMNS = (
    "texts up to", "profile", "texts", "useful tokens", "padded tokens", "padding", "engine ms",
    "padding ms", "padding USD",
)  # fmt: skip
RIGHT = COLUMNS[:1] + COLUMNS[2:]
MILLION = 1_000_000
NOTHING = "–"
UNKNOWN = "unknown"
PRESENT, PROPOSED = "it is", "proposed"
"""Ways of padding, as replays name them."""


@dataclass(frozen=True, kw_only=True)
class LengthsReport:
    """Lengths of one file, what padding and truncation cost, and what would cost less."""

    model: str
    environment: str
    instance_type: str
    usd_an_hour: float | None
    prices_date: str | None
    file: str
    found: Counted
    timed: Timed
    timing_notes: tuple[str, ...]
    """Why milliseconds do not come from where they would by default."""
    padding: Padding
    profiles: tuple[ProfileRecord, ...]
    costs: tuple[Cost, ...]
    """None of them: every request was refused."""
    proposal: Proposal | None
    replayed: int
    """Sampled requests that were run again."""
    replays: Mapping[str, Times]
    measured: MeasuredSaving | None
    """Of the replayed requests; None where they were not run as proposed."""
    predicted: Mapping[str, float]
    """Milliseconds of the sampled requests by the table, by the name of the replay."""
    write_command: str
    machine: str
    date: str

    @property
    def saving(self) -> float | None:
        """Share of the engine's time that the proposal saves by the sizes' times; else None."""
        if self.proposal is None:
            return None
        return 1 - total(self.proposal.costs).ms / total(self.costs).ms

    @property
    def saving_of_replayed(self) -> float | None:
        """The same of the replayed requests alone."""
        if self.measured is None:
            return None
        return 1 - self.predicted[PROPOSED] / self.predicted[PRESENT]

    @property
    def overrides(self) -> dict[str, Any] | None:
        """The proposal as keys of the model file."""
        if self.proposal is None:
            return None
        profiles = [
            {"batch": list(profile.batch), "sequence": list(profile.sequence or ())}
            for profile in self.proposal.profiles
        ]
        return {"engine": {"optimization_profiles": profiles}}


def cells_of(cost: Cost, hourly: float | None, name: str | None = None) -> tuple[str, ...]:
    """Return a row's cells, by COLUMNS."""
    dollars = usd(cost.padding_ms, hourly)
    return (
        f"{cost.tokens:,}" if name is None else name,
        NOTHING if cost.profile is None else str(cost.profile),
        f"{cost.texts:,}",
        f"{cost.useful:,}",
        f"{cost.padded:,}",
        f"{cost.padding:.1%}",
        f"{cost.ms:,.0f}",
        f"{cost.padding_ms:,.0f}",
        UNKNOWN if dollars is None else f"{dollars:.3g}",
    )


def rows_of(costs: Sequence[Cost], hourly: float | None) -> list[tuple[str, ...]]:
    """Return a row for each bucket, and one for all."""
    return [*(cells_of(cost, hourly) for cost in costs), cells_of(total(costs), hourly, "all")]


def note_lines(report: LengthsReport) -> list[str]:
    """Return what the tables do not say, one idea each."""
    found = report.found
    tokens = ", ".join(f"{name} {value:g}" for name, value in found.percentiles.items())
    lines = [
        f"{found.requests:,} requests, {found.texts:,} texts; tokens of a text: {tokens}.",
        _truncation(report),
        f"Milliseconds: {report.timed.source}.",
        *report.timing_notes,
        f"Padding: {DESCRIPTIONS[report.padding.pad_as]}.",
        "Each request counts as a batch of its own.",
    ]
    lines += [
        f"{count:,} requests are refused: {reason}." for reason, count in found.refused.items()
    ]
    lines += [
        f"{count:,} captures were skipped: {reason}." for reason, count in found.skipped.items()
    ]
    if report.costs:
        lines.append(_price(report))
        lines += _replayed(report)
        lines.append(_outcome(report))
    return lines


def _truncation(report: LengthsReport) -> str:
    found = report.found
    if not found.truncated_requests:
        return "No request is truncated."
    return (
        f"{found.truncated_requests / found.requests:.2%} of the requests are truncated "
        f"({found.truncated_requests:,} requests, {found.truncated_texts:,} texts): "
        f"{found.lost_tokens:,} tokens, {found.lost_tokens / found.tokens:.2%} of all, are lost."
    )


def _price(report: LengthsReport) -> str:
    cost, requests = total(report.costs), report.found.requests
    hourly = report.usd_an_hour
    if hourly is None:
        return f"The price of {report.instance_type} is not known, so padding's cost is not."
    whole, wasted = (usd(ms, hourly) or 0.0 for ms in (cost.ms, cost.padding_ms))
    scale = MILLION / requests
    return (
        f"On {report.instance_type} ({hourly:g} USD an hour, {report.prices_date}) a million such "
        f"requests take {whole * scale:.3g} USD of an engine's time, {wasted * scale:.3g} of it "
        "for padding."
    )


def _replayed(report: LengthsReport) -> list[str]:
    lines = []
    for name, times in report.replays.items():
        known = replay_times(times)
        lines.append(
            f"Replayed, padded as {name}: {report.replayed} sampled requests took "
            f"{known['ms']:,.1f} ms ({known['least_ms']:,.1f} to {known['most_ms']:,.1f} in "
            f"{known['rounds']} rounds); the sizes' times add up to "
            f"{report.predicted[name]:,.1f} ms."
        )
    return lines


def replay_times(times: Times) -> dict[str, float]:
    """Return the milliseconds of all requests together: median and extremes of the rounds."""
    rounds = [sum(column) for column in zip(*times, strict=True)]
    return {
        "ms": statistics.median(rounds),
        "least_ms": min(rounds),
        "most_ms": max(rounds),
        "rounds": len(rounds),
    }


def _outcome(report: LengthsReport) -> str:
    if report.proposal is None or report.saving is None:
        return "No other optimization profiles would save a hundredth of the engine's time."
    profiles, measured = quantity(len(report.proposal.profiles), "profile"), report.measured
    if measured is None:
        return (
            f"{profiles} would save {report.saving:.1%} of the engine's time by the sizes' times"
            f"{_worth(report, report.saving)}; no request was run in both ways of padding."
        )
    interval = f"95 % interval {measured.low:.1%} to {measured.high:.1%}"
    many = f"{quantity(measured.requests, 'request')} in {quantity(measured.rounds, 'round')}"
    by_sizes = (
        f"By the sizes' times it is {report.saving_of_replayed:.1%} of these requests' time, and "
        f"{report.saving:.1%} of all requests'."
    )
    if not measured.is_shown:
        return (
            f"No saving is shown: {profiles} saved {measured.share:.1%} of the engine's time "
            f"({interval}), measured on {many}; give more --seconds. {by_sizes}"
        )
    return (
        f"{profiles} would save {measured.share:.1%} of the engine's time ({interval}), measured "
        f"on {many}{_worth(report, measured.share)}, if a new engine takes as long at each size "
        f"as this one. {by_sizes}"
    )


def _worth(report: LengthsReport, share: float) -> str:
    """Return what a share of the engine's time costs; nothing where the price is not known."""
    dollars = usd(share * total(report.costs).ms, report.usd_an_hour)
    if dollars is None:
        return ""
    return f": {dollars * MILLION / report.found.requests:.3g} USD a million requests"


def profile_lines(report: LengthsReport) -> list[str]:
    """Return the proposal as lines of the model file."""
    if report.proposal is None:
        return []
    return ["engine:", "  optimization_profiles:"] + [
        f"    - {{batch: {list(profile.batch)}, sequence: {list(profile.sequence or ())}}}"
        for profile in report.proposal.profiles
    ]


def markdown(report: LengthsReport) -> str:
    """Return the report as Markdown."""
    lines = [f"# Lengths of {report.model} in {report.environment}", "", f"`{report.file}`", ""]
    lines += [f"- {line}" for line in note_lines(report)]
    tables = [("As it is", report.costs)]
    if report.proposal is not None:
        tables.append(("As proposed", report.proposal.costs))
    for title, costs in tables:
        if costs:
            rows = rows_of(costs, report.usd_an_hour)
            lines += ["", f"## {title}", "", *markdown_rows(COLUMNS, rows, right=RIGHT)]
    if report.proposal is not None:
        lines += ["", "```yaml", *profile_lines(report), "```", "", f"`{report.write_command}`"]
    return "\n".join([*lines, "", f"{report.machine}, {report.date}.", ""])


def document(report: LengthsReport) -> dict[str, Any]:
    """Return the report for JSON."""
    found, hourly = report.found, report.usd_an_hour
    counts = {
        name: value
        for name, value in asdict(found).items()
        if name not in ("parts", "sample", "words")
    }
    proposal = report.proposal
    return {
        "version": 2,
        "model": report.model,
        "environment": report.environment,
        "file": report.file,
        "counts": counts,
        "timed_by": report.timed.by.value,
        "timed": report.timed.source,
        "notes": list(report.timing_notes),
        "sizes": [
            {"rows": rows, "tokens": tokens, "ms": ms}
            for (rows, tokens), ms in sorted(report.timed.table.measured.items())
        ],
        "pad_as": report.padding.pad_as.value,
        "instance_type": report.instance_type,
        "usd_an_hour": hourly,
        "present": _costs(report.profiles, report.costs, hourly),
        "proposed": None if proposal is None else _costs(proposal.profiles, proposal.costs, hourly),
        "predicted_saving": report.saving,
        "predicted_saving_of_replayed": report.saving_of_replayed,
        "measured_saving": None if report.measured is None else asdict(report.measured),
        "replayed": report.replayed,
        "replays": {
            name: {**replay_times(times), "predicted_ms": report.predicted[name]}
            for name, times in report.replays.items()
        },
        "overrides": report.overrides,
        "machine": report.machine,
        "date": report.date,
    }


def _costs(
    profiles: Sequence[ProfileRecord], costs: Sequence[Cost], hourly: float | None
) -> dict[str, Any]:
    def row(cost: Cost) -> dict[str, Any]:
        extra = {"padding": cost.padding, "padding_ms": cost.padding_ms}
        return {**asdict(cost), **extra, "padding_usd": usd(cost.padding_ms, hourly)}

    return {
        "optimization_profiles": [profile.model_dump(mode="json") for profile in profiles],
        "buckets": [row(cost) for cost in costs],
        "all": row(total(costs)) if costs else None,
    }
