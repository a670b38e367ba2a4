"""Memory, latency and accuracy of each precision, as one build measured them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine_build.card.facts import CardFacts
from engine_build.card.formats import DASH, Column, mebibytes, score, size
from engine_build.card.render import milliseconds, per_second
from onboarding.manifest import BenchmarkRecord, Manifest

PRECISIONS = ("fp32", "fp16", "int8", "fp8")
PUBLISHED, MEASURED, LEFT_OUT = "published", "measured", "not tried, or refused"
NOT_RECORDED = "the build kept no record of it"


@dataclass(frozen=True, kw_only=True)
class PrecisionRow:
    """One precision; None: not measured."""

    precision: str
    state: str
    engine_bytes: int | None
    weights_bytes: int | None
    host_memory_mib: float | None
    device_memory_mib: float | None
    p50_ms: float | None
    """At the first profile's opt size, where it was measured."""
    rows_per_second: float | None
    accuracy_metric: str | None
    accuracy_mean: float | None
    accuracy_worst: float | None
    verdict: str | None
    reason: str | None
    """Why there is no engine, or what speaks against it."""


def precision_rows(facts: CardFacts) -> tuple[PrecisionRow, ...]:
    """Return FP32, FP16, INT8 and FP8, and others that were measured; nothing is estimated."""
    names = dict.fromkeys((*PRECISIONS, *facts.manifest.left_out, facts.manifest.precision))
    return tuple(_row(facts.manifest, name, facts.at_opt) for name in names)


def _row(manifest: Manifest, precision: str, opt: BenchmarkRecord | None) -> PrecisionRow:
    engine = (manifest.runtime.name, precision)
    memory = next((r for r in manifest.runtimes if (r.runtime, r.precision) == engine), None)
    speed = next(
        (
            r
            for r in manifest.benchmark
            if opt is not None
            and (r.runtime, r.precision) == engine
            and (r.batch, r.sequence) == (opt.batch, opt.sequence)
        ),
        None,
    )
    accuracy = next((r for r in manifest.accuracy if r.subject == f"{precision} engine"), None)
    is_measured = any(record is not None for record in (memory, speed, accuracy))
    state = MEASURED if is_measured else LEFT_OUT
    return PrecisionRow(
        precision=precision,
        state=PUBLISHED if precision == manifest.precision else state,
        engine_bytes=None if memory is None else memory.engine_bytes,
        weights_bytes=None if memory is None else memory.weights_bytes,
        host_memory_mib=None if memory is None else memory.host_memory_mib,
        device_memory_mib=None if memory is None else memory.device_memory_mib,
        p50_ms=None if speed is None else speed.p50_ms,
        rows_per_second=None if speed is None else speed.rows_per_second,
        accuracy_metric=None if accuracy is None else accuracy.metric,
        accuracy_mean=None if accuracy is None else accuracy.mean,
        accuracy_worst=None if accuracy is None else accuracy.worst,
        verdict=None if accuracy is None else accuracy.verdict,
        reason=next(
            (text for name, text in manifest.left_out.items() if name == precision),
            None if is_measured else NOT_RECORDED,
        ),
    )


COLUMNS: tuple[Column, ...] = (
    ("precision", "", lambda r: r.precision.upper()),
    ("state", "", lambda r: r.state),
    ("engine file", "number", lambda r: size(r.engine_bytes)),
    ("weights", "number", lambda r: size(r.weights_bytes)),
    ("device memory", "number", lambda r: mebibytes(r.device_memory_mib)),
    ("host memory", "number", lambda r: mebibytes(r.host_memory_mib)),
    ("median latency", "number", lambda r: milliseconds(r.p50_ms)),
    (
        "rows/s",
        "number",
        lambda r: DASH if r.rows_per_second is None else per_second(r.rows_per_second),
    ),
    ("accuracy, mean", "number", lambda r: score(r.accuracy_mean)),
    ("worst", "number", lambda r: score(r.accuracy_worst)),
    ("verdict", "", lambda r: DASH if r.verdict is None else r.verdict),
    ("reason", "words", lambda r: "" if r.reason is None else r.reason),
)


def precisions_markdown(rows: Sequence[PrecisionRow]) -> str:
    """Return the table as Markdown."""
    heads = [head for head, _, _ in COLUMNS]
    rules = ["---:" if kind == "number" else "---" for _, kind, _ in COLUMNS]
    cells = [[str(cell(row)).replace("|", "\\|") for _, _, cell in COLUMNS] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, rules, *cells))
