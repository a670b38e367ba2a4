"""The engine card as one HTML file that loads nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from engine_build.card.charts import ROW_WIDTH, Row, row_chart, scale
from engine_build.card.facts import CardFacts
from engine_build.card.formats import (
    DASH,
    Column,
    device,
    mebibytes,
    percent,
    runtime_name,
    score,
    shape,
    size,
    source_pin,
    table,
)
from engine_build.card.int8 import int8_values
from engine_build.card.precisions import COLUMNS as PRECISION_COLUMNS
from engine_build.card.precisions import PUBLISHED, precision_data, precision_rows
from engine_build.card.render import macro, milliseconds, per_second, render
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    CompileCheckRecord,
    RuntimeRecord,
)

VERSION = 1
"""Of the JSON's layout."""
METRICS = {
    "cosine": "cosine to the source model's output",
    "agreement": "agreement with the source model's class",
    "accuracy": "share of the source model's accuracy that is kept",
    "order": "pairs of a query's texts in the source model's order",
    "relative_error": "1 less the relative error to the source model's output",
}
TASKS = {
    "text-embedding": "text embedding",
    "text-classification": "text classification",
    "text-ranking": "text ranking",
    "token-classification": "token classification",
    "tensors": "tensors in, tensors out",
}
FILTERS: dict[str, Callable[..., Any]] = {
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
badge, code = macro("badge"), macro("code")


def card_page(facts: CardFacts) -> bytes:
    """Return UTF-8 HTML: the same facts give the same bytes."""
    manifest = facts.manifest
    accuracy = manifest.accuracy_records
    values = {
        "manifest": manifest,
        "entry": facts.entry,
        "source": facts.source,
        "opset": facts.networks.get("float", {}).get("opset"),
        "at_opt": facts.at_opt,
        "frontier": facts.frontier,
        "layers": facts.layers,
        "commands": commands(facts),
        "accuracy_charts": _accuracy_charts(accuracy) if accuracy else [],
        "accuracy": table(ACCURACY, accuracy, lambda r: r is accuracy[-1]),
        "precisions": table(
            PRECISION_COLUMNS, precision_rows(facts), lambda r: r.state == PUBLISHED
        ),
        "checks": table(CHECKS, manifest.compile_checks),
        "tensors": table(TENSORS, _tensors(input=manifest.inputs, output=manifest.outputs)),
        "files": table(FILES, sorted(manifest.files.items())),
        "serving": _serving(facts),
        "digests": _digests(facts),
        **_latency(facts),
        **int8_values(facts),
    }
    return render("card.html.j2", values, filters=FILTERS).encode()


def card_data(facts: CardFacts) -> bytes:
    """All that the card shows, as JSON: the same facts give the same bytes."""
    document = {
        "version": VERSION,
        "environment": facts.environment,
        "source": facts.source.model_dump(mode="json", exclude_none=True),
        "entry": facts.entry.model_dump(mode="json"),
        "precisions": precision_data(facts),
        "networks": {name: dict(item) for name, item in facts.networks.items()},
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def commands(facts: CardFacts) -> tuple[str, ...]:
    """Return the commands from the builder's commit to the engine and a check of its archive."""
    manifest, archive = facts.manifest, facts.entry.archive
    record, name = facts.entry.repackaged, manifest.model
    commit = (manifest if record is None else record).builder.source_commit
    reused = "" if record is None else f" --plan-from {record.engine_key}:{record.archive_sha256}"
    checkout = (
        "# no source commit was recorded: use the commit that holds this lock entry"
        if commit is None
        else f"git checkout {commit}   # the builder's code"
    )
    return (
        checkout,
        f"# --root: the tree with models/{name}.yaml and its source as they were then",
        f"python -m engine_build --root . --environment {facts.environment} --model {name} "
        f"--out build/{name}{reused}",
        f"bash build/{name}/reproduce.sh   # its processes, one by one",
        f'echo "{archive.sha256}  {archive.path.rpartition("/")[2]}" | sha256sum --check'
        "   # of the published archive",
    )


def _budget(record: AccuracyRecord) -> str:
    worst = "" if record.budget_worst is None else f", worst {record.budget_worst:g}"
    neighbours = record.budget_neighbours
    same = "" if neighbours is None else f", same nearest neighbour {percent(neighbours)}"
    return f"mean {record.budget_mean:g}{worst}{same}"


def _interval(interval: tuple[float, float] | None) -> str:
    return DASH if interval is None else f"{score(interval[0])} to {score(interval[1])}"


def _shape(record: Any) -> str:
    return shape(record.batch, record.sequence)


def _int8_products(record: CompileCheckRecord) -> str:
    layers = record.layers
    return DASH if layers is None else f"{layers.int8_products} of {layers.products}"


def _activations(record: CompileCheckRecord) -> str:
    return mebibytes(None if record.layers is None else record.layers.activation_mib)


def _runtime(record: BenchmarkRecord | RuntimeRecord) -> str:
    return f"{runtime_name(record.runtime)} {record.precision}"


def _ms(name: str) -> Callable[[BenchmarkRecord], str]:
    return lambda record: milliseconds(getattr(record, name)).removesuffix(" ms")


ACCURACY: tuple[Column, ...] = (
    ("network or engine", "", lambda r: r.subject),
    ("mean", "number", lambda r: score(r.mean)),
    ("95 % interval", "number", lambda r: _interval(r.mean_interval)),
    ("worst", "number", lambda r: score(r.worst)),
    ("same nearest neighbour", "number", lambda r: percent(r.nearest_neighbour_agreement)),
    ("samples", "number", lambda r: r.samples),
    ("budget", "", _budget),
    ("verdict", "", lambda r: badge(r.verdict)),
)
BENCHMARK: tuple[Column, ...] = (
    ("shape", "", _shape),
    ("runtime", "", _runtime),
    ("average ms", "number", _ms("average_ms")),
    ("p50", "number", _ms("p50_ms")),
    ("p95", "number", _ms("p95_ms")),
    ("p99", "number", _ms("p99_ms")),
    ("rows/s", "number", lambda r: per_second(r.rows_per_second)),
    ("repetitions", "number", lambda r: r.repetitions),
)
SPEEDUPS: tuple[Column, ...] = (
    ("shape", "", _shape),
    ("compared", "", lambda r: f"{r.candidate} against {r.baseline}"),
    ("ratio", "number", lambda r: f"{r.ratio:.2f} ×"),
    ("95 % interval", "number", lambda r: f"{r.low:.2f} to {r.high:.2f}"),
    ("control", "number", lambda r: f"{r.control_low:.2f} to {r.control_high:.2f}"),
)
FOOTPRINTS: tuple[Column, ...] = (
    ("runtime", "", _runtime),
    ("load time", "number", lambda r: f"{r.load_seconds:.2f} s"),
    ("host memory", "number", lambda r: mebibytes(r.host_memory_mib)),
    ("device memory", "number", lambda r: mebibytes(r.device_memory_mib)),
)
CHECKS: tuple[Column, ...] = (
    ("check with no GPU", "", lambda r: f"{r.tool} {r.version}"),
    ("network", "", lambda r: r.network),
    ("seconds", "number", lambda r: f"{r.seconds:.1f}"),
    ("verdict", "", lambda r: badge(r.verdict)),
    ("layers", "number", lambda r: DASH if r.layers is None else str(r.layers.layers)),
    ("products in INT8", "number", _int8_products),
    ("reformat", "number", lambda r: DASH if r.layers is None else str(r.layers.reformats)),
    ("activations", "number", _activations),
    ("reason", "words", lambda r: "" if r.reason is None else r.reason),
)
TENSORS: tuple[Column, ...] = (
    ("", "", lambda row: row[0]),
    ("name", "", lambda row: code(row[1].name)),
    ("datatype", "", lambda row: row[1].datatype),
    ("shape", "", lambda row: f"[{', '.join(map(str, row[1].shape))}]"),
)
FILES: tuple[Column, ...] = (
    ("file of the archive", "", lambda row: code(row[0])),
    ("sha256", "", lambda row: code(row[1])),
)


def _tensors(**groups: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(name, record) for name, records in groups.items() for record in records]


def _accuracy_charts(records: Sequence[AccuracyRecord]) -> list[tuple[str, str]]:
    own, nowhere = records[-1], (None, None)
    means, worsts, neighbours = [], [], []
    for record in records:
        name, is_own = record.subject, record is own
        mean, worst, share = record.mean, record.worst, record.nearest_neighbour_agreement
        low, high = nowhere if record.mean_interval is None else record.mean_interval
        means.append(Row(name=name, value=mean, label=score(mean), low=low, high=high, own=is_own))
        worsts.append(Row(name=name, value=worst, label=score(worst), own=is_own))
        if share is not None:
            ends = record.nearest_neighbour_interval
            low, high = nowhere if ends is None else ends
            row = Row(name=name, value=share, label=percent(share), low=low, high=high, own=is_own)
            neighbours.append(row)
    charts = [("Mean", _points("Mean accuracy", means, own.budget_mean))]
    if own.metric not in ("agreement", "accuracy", "order"):
        charts.append(("Worst sample", _points("Worst sample", worsts, own.budget_worst)))
    if neighbours:
        title = "Same nearest neighbour"
        charts.append((title, _points(title, neighbours, own.budget_neighbours, highest=1.0)))
    return charts


def _points(
    title: str, rows: Sequence[Row], budget: float | None, highest: float | None = None
) -> str:
    ends = [end for row in rows for end in (row.value, row.low, row.high)]
    values = [end for end in (*ends, budget, highest) if end is not None]
    along = scale(min(values), max(values), 8, ROW_WIDTH - 8, most=1.0)
    return row_chart(title, rows, along, bars=False, budget=budget)


def _latency(facts: CardFacts) -> dict[str, Any]:
    def is_own(record: BenchmarkRecord | RuntimeRecord) -> bool:
        return (record.runtime, record.precision) == facts.subject

    manifest, charts = facts.manifest, []
    records = sorted(manifest.benchmark, key=lambda r: (r.batch, r.sequence or 0, r.p50_ms))
    for title in dict.fromkeys(map(_shape, records)):
        rows = [
            Row(
                name=_runtime(record),
                value=record.p50_ms,
                label=milliseconds(record.p50_ms),
                mark=record.p95_ms,
                high=record.p99_ms,
                own=is_own(record),
            )
            for record in records
            if _shape(record) == title
        ]
        along = scale(0, max(row.high or row.value for row in rows), 0, ROW_WIDTH)
        chart = row_chart(f"Latency at {title}", rows, along, bars=True)
        charts.append((f"{title}, milliseconds", chart))
    return {
        "latency_charts": charts,
        "benchmark": table(BENCHMARK, records, is_own),
        "speedups": table(SPEEDUPS, manifest.speedups),
        "runtimes": table(FOOTPRINTS, manifest.runtimes, is_own),
    }


def _serving(facts: CardFacts) -> list[tuple[str, str]]:
    manifest = facts.manifest
    pairs = [("Largest batch", str(manifest.max_batch_size))]
    for index, profile in enumerate(manifest.optimization_profiles):
        text = "batch {} / {} / {}".format(*profile.batch)
        if profile.sequence is not None:
            text += ", sequence {} / {} / {} (min / opt / max)".format(*profile.sequence)
        pairs.append((f"Optimization profile {index}", text))
    if manifest.labels is not None:
        pairs.append(("Classes", ", ".join(manifest.labels)))
    if manifest.activation is not None:
        pairs.append(("Scores", f"{manifest.activation} of the logits"))
    return pairs


def _digests(facts: CardFacts) -> list[tuple[str, str]]:
    manifest, archive = facts.manifest, facts.entry.archive
    keys = sorted(manifest.network_keys.items())
    return [
        ("Engine key", code(manifest.engine_key)),
        *((f"{name} network key", code(key)) for name, key in keys),
        ("Archive", code(archive.path) + f", {size(archive.size_bytes)}"),
        ("Archive sha256", code(archive.sha256)),
        ("manifest.json sha256", code(archive.manifest_sha256)),
    ]
