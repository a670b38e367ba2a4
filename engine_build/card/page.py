"""The engine card as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine_build.card.charts import ROW_WIDTH, Row, row_chart, scale
from engine_build.card.facts import CardFacts
from engine_build.card.formats import (
    Cells,
    Markup,
    columns,
    device,
    mebibytes,
    percent,
    runtime_name,
    score,
    shape,
    size,
    source_pin,
)
from engine_build.card.int8 import int8_values
from engine_build.card.render import milliseconds, per_second, render
from onboarding.manifest import AccuracyRecord, BenchmarkRecord, RuntimeRecord, SpeedupRecord

METRICS = {
    "cosine": "cosine to the source model's output",
    "agreement": "agreement with the source model's class",
    "accuracy": "share of the source model's accuracy that is kept",
    "relative_error": "1 less the relative error to the source model's output",
}
TASKS = {
    "text-embedding": "text embedding",
    "text-classification": "text classification",
    "tensors": "tensors in, tensors out",
}


def card_page(facts: CardFacts) -> bytes:
    """Return UTF-8 HTML: the same facts give the same bytes."""
    manifest = facts.manifest
    values = {
        "manifest": manifest,
        "entry": facts.entry,
        "source": facts.source,
        "at_opt": facts.at_opt,
        "frontier": facts.frontier,
        "layers": facts.layers,
        "commands": commands(facts),
        **_accuracy(manifest.accuracy),
        **_latency(facts),
        **int8_values(facts),
        **_record(facts),
    }
    filters: dict[str, Callable[..., Any]] = {
        "device": device,
        "metric": lambda name: METRICS.get(name, name),
        "mib": mebibytes,
        "ms": milliseconds,
        "pin": source_pin,
        "rate": per_second,
        "runtime": runtime_name,
        "shape": lambda record: shape(record.batch, record.sequence),
        "size": size,
        "task": lambda name: TASKS.get(name, name),
    }
    return render("card.html.j2", values, filters=filters).encode()


def commands(facts: CardFacts) -> tuple[str, ...]:
    """Return the commands from the builder's commit to the engine and a check of its archive."""
    manifest, archive = facts.manifest, facts.entry.archive
    commit, name = manifest.builder.source_commit, manifest.model
    checkout = (
        "# no source commit was recorded: use the commit that holds this lock entry"
        if commit is None
        else f"git checkout {commit}   # the builder's code"
    )
    return (
        checkout,
        f"# --root: the tree with models/{name}.yaml and its source as they were then",
        f"python -m engine_build --root . --environment {facts.environment} --model {name} "
        f"--out build/{name}",
        f"bash build/{name}/reproduce.sh   # its processes, one by one",
        f'echo "{archive.sha256}  {archive.path.rpartition("/")[2]}" | sha256sum --check'
        "   # of the published archive",
    )


def _accuracy(records: Sequence[AccuracyRecord]) -> dict[str, Any]:
    def rows(badge: Markup) -> list[tuple[Cells, bool]]:
        return [(_accuracy_cells(record, badge), record is records[-1]) for record in records]

    heads = "mean|95 % interval|worst|same nearest neighbour|samples"
    return {
        "accuracy_charts": _accuracy_charts(records) if records else [],
        "accuracy_columns": columns("network or engine", heads, "budget|verdict"),
        "accuracy_rows": rows,
    }


def _accuracy_charts(records: Sequence[AccuracyRecord]) -> list[tuple[str, str]]:
    own = records[-1]
    means = [
        Row(
            name=record.subject,
            value=record.mean,
            label=score(record.mean),
            low=None if record.mean_interval is None else record.mean_interval[0],
            high=None if record.mean_interval is None else record.mean_interval[1],
            own=record is own,
        )
        for record in records
    ]
    worsts = [
        Row(name=r.subject, value=r.worst, label=score(r.worst), own=r is own) for r in records
    ]
    neighbours = [
        Row(name=record.subject, value=share, label=percent(share), own=record is own)
        for record in records
        if (share := record.nearest_neighbour_agreement) is not None
    ]
    charts = [("Mean", _points("Mean accuracy", means, own.budget_mean))]
    if own.metric not in ("agreement", "accuracy"):
        charts.append(("Worst sample", _points("Worst sample", worsts, own.budget_worst)))
    if neighbours:
        title = "Same nearest neighbour"
        charts.append((title, _points(title, neighbours, None, highest=1.0)))
    return charts


def _points(
    title: str, rows: Sequence[Row], budget: float | None, highest: float | None = None
) -> str:
    values = [end for row in rows for end in (row.value, row.low, row.high) if end is not None]
    values += [end for end in (budget, highest) if end is not None]
    along = scale(min(values), max(values), 8, ROW_WIDTH - 8, most=1.0)
    return row_chart(title, rows, along, bars=False, budget=budget)


def _accuracy_cells(record: AccuracyRecord, badge: Markup) -> Cells:
    interval, share = record.mean_interval, record.nearest_neighbour_agreement
    worst = "" if record.budget_worst is None else f", worst {record.budget_worst:g}"
    return (
        record.subject,
        score(record.mean),
        "–" if interval is None else f"{score(interval[0])} to {score(interval[1])}",
        score(record.worst),
        "–" if share is None else percent(share),
        record.samples,
        f"mean {record.budget_mean:g}{worst}",
        badge(record.verdict),
    )


def _latency(facts: CardFacts) -> dict[str, Any]:
    manifest = facts.manifest
    records = sorted(manifest.benchmark, key=lambda r: (r.batch, r.sequence or 0, r.p50_ms))
    shapes = dict.fromkeys((record.batch, record.sequence) for record in records)
    return {
        "latency_charts": [_latency_chart(facts, records, *at) for at in shapes],
        "benchmark_columns": columns("shape|runtime", "average ms|p50|p95|p99|rows/s|repetitions"),
        "benchmark_rows": [(_benchmark_cells(r), _is_own(facts, r)) for r in records],
        "speedup_columns": columns("shape|compared", "ratio|95 % interval|control"),
        "speedup_rows": [(_speedup_cells(record), False) for record in manifest.speedups],
        "runtime_columns": columns("runtime", "load time|host memory|device memory"),
        "runtime_rows": [(_runtime_cells(r), _is_own(facts, r)) for r in manifest.runtimes],
    }


def _latency_chart(
    facts: CardFacts, records: Sequence[BenchmarkRecord], batch: int, sequence: int | None
) -> tuple[str, str]:
    rows = [
        Row(
            name=_runtime_precision(record),
            value=record.p50_ms,
            label=milliseconds(record.p50_ms),
            mark=record.p95_ms,
            high=record.p99_ms,
            own=_is_own(facts, record),
        )
        for record in records
        if (record.batch, record.sequence) == (batch, sequence)
    ]
    along = scale(0, max(row.high or row.value for row in rows), 0, ROW_WIDTH)
    title = shape(batch, sequence)
    return f"{title}, milliseconds", row_chart(f"Latency at {title}", rows, along, bars=True)


def _runtime_precision(record: BenchmarkRecord | RuntimeRecord) -> str:
    return f"{runtime_name(record.runtime)} {record.precision}"


def _is_own(facts: CardFacts, record: BenchmarkRecord | RuntimeRecord) -> bool:
    return (record.runtime, record.precision) == facts.subject


def _benchmark_cells(record: BenchmarkRecord) -> Cells:
    latencies = (record.average_ms, record.p50_ms, record.p95_ms, record.p99_ms)
    return (
        shape(record.batch, record.sequence),
        _runtime_precision(record),
        *(milliseconds(latency).removesuffix(" ms") for latency in latencies),
        per_second(record.rows_per_second),
        record.repetitions,
    )


def _speedup_cells(record: SpeedupRecord) -> Cells:
    return (
        shape(record.batch, record.sequence),
        f"{record.candidate} against {record.baseline}",
        f"{record.ratio:.2f} ×",
        f"{record.low:.2f} to {record.high:.2f}",
        f"{record.control_low:.2f} to {record.control_high:.2f}",
    )


def _runtime_cells(record: RuntimeRecord) -> Cells:
    return (
        _runtime_precision(record),
        f"{record.load_seconds:.2f} s",
        mebibytes(record.host_memory_mib),
        mebibytes(record.device_memory_mib),
    )


def _record(facts: CardFacts) -> dict[str, Any]:
    manifest, archive = facts.manifest, facts.entry.archive
    tensors = [("input", record) for record in manifest.inputs]
    tensors += [("output", record) for record in manifest.outputs]
    serving = [("Largest batch", str(manifest.max_batch_size))]
    for index, profile in enumerate(manifest.optimization_profiles):
        text = "batch {} / {} / {}".format(*profile.batch)
        if profile.sequence is not None:
            text += ", sequence {} / {} / {} (min / opt / max)".format(*profile.sequence)
        serving.append((f"Optimization profile {index}", text))
    if manifest.labels is not None:
        serving.append(("Classes", ", ".join(manifest.labels)))
    return {
        "serving_facts": serving,
        "tensor_rows": lambda code: [
            ((kind, code(t.name), t.datatype, f"[{', '.join(map(str, t.shape))}]"), False)
            for kind, t in tensors
        ],
        "check_rows": lambda badge: [
            (
                (
                    f"{check.tool} {check.version}",
                    check.network,
                    f"{check.seconds:.1f}",
                    badge(check.verdict),
                    "" if check.reason is None else check.reason,
                ),
                False,
            )
            for check in manifest.compile_checks
        ],
        "digests": lambda code: [
            ("Engine key", code(manifest.engine_key)),
            *((f"{n} network key", code(k)) for n, k in sorted(manifest.network_keys.items())),
            ("Archive", code(archive.path) + f", {size(archive.size_bytes)}"),
            ("Archive sha256", code(archive.sha256)),
            ("manifest.json sha256", code(archive.manifest_sha256)),
        ],
        "file_rows": lambda code: [
            ((code(name), code(digest)), False) for name, digest in sorted(manifest.files.items())
        ],
    }
