"""The demo's two tables: what the search found, and what was built, measured and deployed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from onboarding.manifest import Manifest
from roundhouse.dev.demo.answers import DOCUMENTS, QUESTIONS, Answer, hits

COLUMNS = (
    "Model", "Engine", "Built in", "Accuracy\nmean / worst", "1 row\np50 ms",
    "Rows/s", "Endpoint", "15 texts\nms",
    "Worst vs\nPyTorch",
)  # fmt: skip


def search_table(answers: Sequence[Answer]) -> Table:
    """Each question with its nearest sentences, and the score that every model gives them."""
    table = Table(
        title="Semantic search through both endpoints: nearest sentences, by cosine",
        title_justify="left",
    )
    table.add_column("Question and nearest sentences", overflow="fold")
    for answer in answers:
        table.add_column(f"{answer.model}\n{answer.server}", justify="right")
    for place, question in enumerate(QUESTIONS):
        table.add_row(f"[bold]{question}[/bold]", *("" for _ in answers))
        for hit in hits(answers[0].vectors, place):
            scores = (_score(answer, place, hit.sentence) for answer in answers)
            table.add_row(f"   {DOCUMENTS[hit.sentence]}", *scores)
    return table


def summary_table(
    answers: Sequence[Answer], build_seconds: Mapping[str, float], caption: str
) -> Table:
    """One row per model: what was built, what was measured, where it answers."""
    table = Table(
        title="Built, measured, deployed",
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    for column in COLUMNS:
        table.add_column(
            column,
            justify="left" if column in ("Model", "Engine", "Endpoint") else "right",
            overflow="fold",
        )
    for answer in answers:
        seconds = build_seconds.get(answer.model)
        built = "kept" if seconds is None else f"{seconds:.1f} s"
        engine, endpoint = (
            f"{answer.manifest.precision} {answer.manifest.engine_key[:8]}",
            f"{answer.endpoint}\n{answer.server}",
        )
        measured = (f"{answer.milliseconds:.0f}", f"{answer.worst:.5f}")
        table.add_row(
            answer.model,
            engine,
            built,
            _accuracy(answer.manifest),
            *_speed(answer.manifest),
            endpoint,
            *measured,
        )
    return table


def _score(answer: Answer, question: int, sentence: int) -> str:
    found = {hit.sentence: hit.score for hit in hits(answer.vectors, question, len(DOCUMENTS))}
    return f"{found[sentence]:.3f}"


def _accuracy(manifest: Manifest) -> str:
    passed = [record for record in manifest.accuracy if record.verdict == "pass"]
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
