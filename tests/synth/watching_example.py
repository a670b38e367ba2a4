"""The table of docs/watching.md, made by the code it explains: `python -m
tests.synth.watching_example --write`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from onboarding.deployment import Deployment
from onboarding.hosting_spec import AsynchronousSpec
from onboarding.metrics import AT_LEAST, OVER, Alarm, Metric, MetricMath
from stacks.alarms import endpoint_alarms
from tests.synth.deployments import ROOT, one, with_endpoint

DOCUMENT = ROOT / "docs" / "watching.md"
BLOCK = re.compile(r"(<!-- made: alarms -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)
SIGNS = {OVER: ">", AT_LEAST: "≥"}
HEADS = ("Alarm", "Watches", "Trips when", "Rolls back", "Example")


def examples() -> tuple[Deployment, ...]:
    """A Triton endpoint of one model, a multi-model one, a Python server's, and a queue."""
    queue = with_endpoint(one("dev", "sentence-embedder"), asynchronous=AsynchronousSpec())
    return (
        one("dev", "sentence-embedder"),
        one("dev", "text-shared"),
        one("local", "sentence-embedder"),
        queue,
    )


def table() -> str:
    """A row for each kind of alarm, with the first example that has it."""
    found: dict[str, Alarm] = {}
    back: dict[str, set[bool]] = {}
    for alarm in (item for deployment in examples() for item in endpoint_alarms(deployment)):
        found.setdefault(alarm.kind, alarm)
        back.setdefault(alarm.kind, set()).add(alarm.rolls_back)
    rows = [_row(found[kind], back[kind]) for kind in found]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEADS, ["---"] * len(HEADS), *rows))


def document_text(text: str) -> str:
    """The document with the table as the code makes it now."""
    return BLOCK.sub(lambda block: f"{block[1]}{table()}\n{block[3]}", text)


def _row(alarm: Alarm, back: set[bool]) -> tuple[str, ...]:
    sign = SIGNS.get(alarm.comparison, "<")
    missing = ", or not there," if alarm.missing == "breaching" else ""
    trips = f"{sign} {alarm.threshold:,.10g}{missing} in {alarm.points} of {alarm.periods}"
    takes = {frozenset({True}): "yes", frozenset({False}): "no"}.get(
        frozenset(back), "of Triton's multi-model endpoints"
    )
    return (
        f"`{alarm.kind}`",
        _subject(alarm.watched),
        f"{trips} x {_period(alarm.watched)} s",
        takes,
        alarm.explanation,
    )


def _metrics(watched: Metric | MetricMath) -> list[Metric]:
    """The metrics, of which the example says what metric math makes of them."""
    return [watched] if isinstance(watched, Metric) else list(watched.metrics.values())


def _subject(watched: Metric | MetricMath) -> str:
    """The metrics, each with its statistics."""
    statistics: dict[str, list[str]] = {}
    for metric in _metrics(watched):
        statistics.setdefault(metric.name, []).append(metric.statistic)
    return "; ".join(f"{name}: {', '.join(found)}" for name, found in statistics.items())


def _period(watched: Metric | MetricMath) -> int:
    return max(metric.period for metric in _metrics(watched))


def main(path: Path = DOCUMENT) -> None:
    """Writes the table into the document."""
    path.write_text(document_text(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("python -m tests.synth.watching_example --write")
    main()
