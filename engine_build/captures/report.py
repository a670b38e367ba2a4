"""A comparison as JSON, Markdown and CloudWatch metrics; none holds a text or value of a user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_build.captures.comparison import Comparison
from engine_build.evaluation.accuracy_report import format_record
from engine_build.request import ENOUGH_SAMPLES
from onboarding.names import (
    CAPTURE_ACCURACY,
    CAPTURE_ACCURACY_UPPER,
    CAPTURE_INPUT_DRIFT,
    CAPTURE_ROWS,
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """One variant's comparison, with its place and time."""

    endpoint: str
    """As SageMaker knows it."""
    variant: str
    model: str
    begin: str
    end: str
    """ISO 8601, UTC."""
    dataset: str
    """What the inputs are compared with."""
    objects: int
    """Capture files that were read."""
    objects_left: int
    """Those of the window that were not, where it has more requests than are read."""
    comparison: Comparison

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        found = self.comparison
        return {
            "endpoint": self.endpoint,
            "variant": self.variant,
            "model": self.model,
            "window": [self.begin, self.end],
            "capture_files": {"read": self.objects, "left": self.objects_left},
            "requests": found.requests,
            "rows": found.rows,
            "unread": found.unread,
            "inputs": {
                "compared_with": self.dataset,
                "enough_data": found.rows >= ENOUGH_SAMPLES,
                "distances": [item.as_dict() for item in found.distances],
            },
            "accuracy": {
                "verdict": found.verdict,
                "record": None if found.accuracy is None else found.accuracy.model_dump(),
                "not_compared": found.not_compared,
                "broken_answers": found.broken,
            },
            "metrics": metric_values(found),
        }

    def as_markdown(self) -> str:
        """Return the report for people."""
        return "".join(f"{line}\n" for line in _lines(self))


def metric_values(comparison: Comparison) -> dict[str, float]:
    """Return CloudWatch's values by metric; what too few samples cannot say is absent."""
    values = {CAPTURE_ROWS: float(comparison.rows)}
    record = comparison.accuracy
    if record is not None and record.samples >= ENOUGH_SAMPLES:
        values[CAPTURE_ACCURACY] = record.mean
        interval = record.mean_interval
        values[CAPTURE_ACCURACY_UPPER] = record.mean if interval is None else interval[1]
    if comparison.rows >= ENOUGH_SAMPLES and comparison.distances:
        above = [item.index for item in comparison.distances if item.index > item.noise]
        values[CAPTURE_INPUT_DRIFT] = max(above, default=0.0)
    return values


def _lines(report: Report) -> list[str]:
    found = report.comparison
    lines = [
        f"# {report.endpoint}, variant {report.variant}: captures of {report.model}",
        "",
        f"{report.begin} to {report.end}: {found.requests} requests with {found.rows} rows, of"
        f" {report.objects} capture files.",
    ]
    if report.objects_left:
        lines.append(f"{report.objects_left} more files of the window were not read.")
    lines += ["", "## Accuracy", "", _accuracy_line(found)]
    if found.broken:
        lines.append(f"{found.broken} answers have NaN or infinite values; they are left out.")
    lines += _counts("requests not compared", found.not_compared)
    lines += ["", "## Inputs", ""]
    if found.rows < ENOUGH_SAMPLES:
        lines.append(f"Not enough data: {found.rows} rows, {ENOUGH_SAMPLES} at least are needed.")
    else:
        lines += [
            f"Against {report.dataset}, as population stability index.",
            "",
            "| property | index | chance alone | captured | data | |",
            "|---|---|---|---|---|---|",
            *(
                f"| {item.name} | {item.index:.3f} | {item.noise:.3f} | {item.captured} |"
                f" {item.data} | {'drifted' if item.has_drifted else ''} |"
                for item in found.distances
            ),
        ]
    lines += _counts("captured invocations not read", found.unread)
    return lines


def _accuracy_line(found: Comparison) -> str:
    if found.accuracy is None:
        return "Not enough data: no captured answer could be compared with the source model."
    line = format_record(found.accuracy)
    if found.accuracy.samples < ENOUGH_SAMPLES:
        line += f" (fewer than {ENOUGH_SAMPLES} samples judge nothing)"
    return line


def _counts(what: str, counts: Mapping[str, int]) -> list[str]:
    return [f"- {count} {what}: {reason}" for reason, count in sorted(counts.items())]
