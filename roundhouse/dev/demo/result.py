"""The demo's two tables: what the search found, and what was built, measured and deployed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rich.table import Table

from onboarding.manifest import Manifest
from roundhouse.dev.demo.answers import DOCUMENTS, QUESTIONS, Answer, scores

COLUMNS = (
    "Model", "Engine", "Built in", "Accuracy\nmean / worst", "1 row\np50 ms", "Rows/s",
    "Endpoint", "15 texts\nms", "Worst vs\nPyTorch",
)  # fmt: skip
TEXT_COLUMNS = ("Model", "Engine", "Endpoint")
NEAREST = 2


def search_table(answers: Sequence[Answer]) -> Table:
    """Return each question with its nearest sentences, and the score that every model gives."""
    title = "Semantic search through both endpoints: nearest sentences, by cosine"
    table = Table(title=title, title_justify="left")
    table.add_column("Question and nearest sentences", overflow="fold")
    for answer in answers:
        table.add_column(f"{answer.model}\n{answer.server}", justify="right")
    for position, question in enumerate(QUESTIONS):
        table.add_row(f"[bold]{question}[/bold]", *("" for _ in answers))
        rows = [scores(answer.vectors, position) for answer in answers]
        for sentence in itertools.islice(rows[0], NEAREST):
            table.add_row(f"   {DOCUMENTS[sentence]}", *(f"{row[sentence]:.3f}" for row in rows))
    return table


def summary_table(
    answers: Sequence[Answer], build_seconds: Mapping[str, float], caption: str
) -> Table:
    """Return one row per model: what was built, what was measured, where it answers."""
    title = "Built, measured, deployed"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for column in COLUMNS:
        is_text = column in TEXT_COLUMNS
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    for answer in answers:
        seconds = build_seconds.get(answer.model)
        table.add_row(
            answer.model,
            f"{answer.manifest.precision} {answer.manifest.engine_key[:8]}",
            "kept" if seconds is None else f"{seconds:.1f} s",
            _accuracy(answer.manifest),
            *_speed(answer.manifest),
            f"{answer.endpoint}\n{answer.server}",
            f"{answer.milliseconds:.0f}",
            f"{answer.worst:.5f}",
        )
    return table


def _accuracy(manifest: Manifest) -> str:
    passed = [record for record in manifest.accuracy_records if record.verdict == "pass"]
    if not passed:
        return "-"
    last = passed[-1]
    return f"{last.mean:.4f} / {last.worst:.4f}\nof {last.samples}"


def _speed(manifest: Manifest) -> tuple[str, str]:
    """Return the median latency of one row and the best throughput, of the chosen precision."""
    own = [record for record in manifest.benchmark if record.precision == manifest.precision]
    if not own:
        return "-", "-"
    single = min(own, key=lambda record: (record.batch, record.sequence or 0))
    return f"{single.p50_ms:.1f}", f"{max(record.rows_per_second for record in own):.0f}"
