"""The engine card as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine_build.card.charts import (
    ROW_WIDTH,
    Axis,
    Frame,
    Line,
    Mark,
    Row,
    axis,
    line_chart,
    row_chart,
    scale,
)
from engine_build.card.facts import CardFacts
from engine_build.card.render import milliseconds, per_second, render
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    Manifest,
    QuantizationRecord,
    RuntimeRecord,
    SpeedupRecord,
)
from onboarding.model_spec import SourceSpec

SEARCH = "search"
"""The split of samples that the charts of the sensitivity search are of."""
FRONTIER_SCORES = {
    "mean": "Mean score",
    "worst": "Worst sample",
    "nearest_neighbour_agreement": "Nearest neighbour",
}
FRONTIER = Frame(width=360, height=236, left=44, right=352, top=14, bottom=192)
METRICS = {
    "cosine": "cosine to the source model's output",
    "agreement": "agreement with the source model's class",
    "accuracy": "share of the source model's accuracy that is kept",
    "relative_error": "1 less the relative error to the source model's output",
}
RUNTIMES = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "pytorch": "PyTorch"}
TASKS = {
    "text-embedding": "text embedding",
    "text-classification": "text classification",
    "tensors": "tensors in, tensors out",
}
Cells = Sequence[object]
Markup = Callable[[str], str]
"""A macro of the templates: `badge` or `code`."""


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
        **_int8(facts),
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


def score(value: float) -> str:
    """Format an accuracy."""
    return f"{value:.5f}"


def percent(value: float) -> str:
    """Format a share."""
    return f"{value * 100:.1f}\N{NO-BREAK SPACE}%"


def mebibytes(value: float | None) -> str:
    """Format memory; a dash where it was not measured."""
    return "–" if value is None else f"{value:,.0f} MiB" if value >= 10 else f"{value:.1f} MiB"


def size(count: int) -> str:
    """Format bytes."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"


def shape(batch: int, sequence: int | None) -> str:
    """Format rows, and the tokens of each where there are any."""
    rows = f"{batch} row" if batch == 1 else f"{batch} rows"
    return rows if sequence is None else f"{rows} × {sequence} tokens"


def runtime_name(name: str) -> str:
    """Return a runtime's name as its makers write it."""
    return RUNTIMES.get(name, name)


def device(manifest: Manifest) -> str:
    """Return what the engine runs on."""
    if manifest.compute_capability == "cpu":
        return "CPU"
    gpu = "GPU" if manifest.builder.gpu is None else manifest.builder.gpu
    return f"{gpu}, compute capability {manifest.compute_capability}"


def source_pin(source: SourceSpec) -> str:
    """Return the pinned source in one line."""
    kinds = (source.python_package, source.huggingface, source.checkpoint, source.onnx)
    name = next((kind for kind in kinds if kind is not None), "not recorded")
    folder = "" if source.path is None else f", folder {source.path}"
    return f"{name}{folder}" + ("" if source.sha256 is None else f", sha256 {source.sha256}")


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


def _columns(left: str, numbers: str, right: str = "") -> list[tuple[str, str]]:
    """Return table columns from their heads, which are separated by |; numbers stand right."""
    return [
        (head, kind)
        for heads, kind in ((left, ""), (numbers, "number"), (right, ""))
        for head in (heads.split("|") if heads else ())
    ]


def _accuracy(records: Sequence[AccuracyRecord]) -> dict[str, Any]:
    def rows(badge: Markup) -> list[tuple[Cells, bool]]:
        return [(_accuracy_cells(record, badge), record is records[-1]) for record in records]

    heads = "mean|95 % interval|worst|same nearest neighbour|samples"
    return {
        "accuracy_charts": _accuracy_charts(records) if records else [],
        "accuracy_columns": _columns("network or engine", heads, "budget|verdict"),
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
        "benchmark_columns": _columns("shape|runtime", "average ms|p50|p95|p99|rows/s|repetitions"),
        "benchmark_rows": [(_benchmark_cells(r), _is_own(facts, r)) for r in records],
        "speedup_columns": _columns("shape|compared", "ratio|95 % interval|control"),
        "speedup_rows": [(_speedup_cells(record), False) for record in manifest.speedups],
        "runtime_columns": _columns("runtime", "load time|host memory|device memory"),
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


def _int8(facts: CardFacts) -> dict[str, Any]:
    record = facts.manifest.quantization
    if record is None:
        return {}
    named = {str(layer["node"]) for layer in facts.layers}
    has_costs = any(layer.get("drift") is not None for layer in facts.layers)

    def layer_tables(badge: Markup, code: Markup) -> list[tuple[str, Any]]:
        rows = [(layer, (_layer_cells(layer, has_costs, badge, code), False)) for layer in layers]
        in_float = [row for layer, row in rows if not layer["int8"]]
        title = f"The {len(in_float)} weighted layers that stay in float, and why"
        tables = [(title, in_float)] if in_float else []
        whole = (f"All {len(rows)} weighted layers", [row for _, row in rows])
        return [*tables, whole] if rows else []

    layers = facts.layers
    numbers = "share of work|drift alone|mean alone" if has_costs else "share of work"
    return {
        "int8_summary": f"{_int8_share(record)}; {record.mode} mode, {record.method} calibration "
        f"on {record.samples} samples. {_int8_use(facts)}",
        "frontier_charts": _frontier_charts(facts),
        "frontier_columns": _columns(
            "", "share in INT8|INT8 layers|mean|worst|same nearest neighbour", "judged on|"
        ),
        "frontier_rows": [
            (_frontier_cells(point), bool(point["chosen"])) for point in reversed(facts.frontier)
        ],
        "layer_columns": [*_columns("layer|operator", numbers, "kept in"), ("why", "words")],
        "layer_tables": layer_tables,
        "other_float_layers": [name for name in record.float_layers if name not in named],
    }


def _int8_share(record: QuantizationRecord) -> str:
    if record.int8_share_of_matmul_macs is None:
        return "TensorRT chose the layers that are in INT8"
    tokens = "" if record.share_at_sequence is None else f" at {record.share_at_sequence} tokens"
    layers = "" if record.int8_layers is None else f", in {record.int8_layers} layers"
    share = percent(record.int8_share_of_matmul_macs)
    return f"{share} of the multiply-accumulates{tokens} are in INT8{layers}"


def _int8_use(facts: CardFacts) -> str:
    if facts.manifest.precision != "int8":
        return "The published engine is not made of it."
    if facts.manifest.runtime.name == "tensorrt":
        return "The published plan runs it."
    return (
        "The published engine is not made of it, but of the float network by ONNX Runtime's "
        "dynamic quantization, which is the faster one on a CPU; a GPU's INT8 plan is compiled "
        "from this one."
    )


def _frontier_charts(facts: CardFacts) -> list[tuple[str, str]]:
    points = [point for point in facts.frontier if point.get("split", SEARCH) == SEARCH]
    accuracy = facts.manifest.accuracy
    budgets: Mapping[str, float | None] = (
        {"mean": accuracy[-1].budget_mean, "worst": accuracy[-1].budget_worst} if accuracy else {}
    )
    return [
        (_frontier_caption(title, points, name), frontier_chart(title, points, name, budgets))
        for name, title in FRONTIER_SCORES.items()
        if points and all(point.get(name) is not None for point in points)
    ]


def _frontier_caption(title: str, points: Sequence[Mapping[str, Any]], name: str) -> str:
    chosen = next((point for point in points if point["chosen"]), None)
    if chosen is None:
        return title
    label = percent if name == "nearest_neighbour_agreement" else score
    return f"{title}: {label(float(chosen[name]))} at {percent(float(chosen['share']))}"


def frontier_chart(
    title: str,
    points: Sequence[Mapping[str, Any]],
    name: str,
    budgets: Mapping[str, float | None],
) -> str:
    """Return a chart of an accuracy against the share of INT8 multiply-accumulates."""
    budget = budgets.get(name)
    places = [(float(point["share"]), float(point[name])) for point in points]
    chosen = [place for place, point in zip(places, points, strict=True) if point["chosen"]]
    values = [value for _, value in places] + ([] if budget is None else [budget])
    shares = scale(places[0][0], 1.0, FRONTIER.left, FRONTIER.right, most=1.0)
    scores = scale(min(values), max(values), FRONTIER.bottom, FRONTIER.top, most=1.0)
    marks = [Mark(value=share, label="", kind="drop", upright=True) for share, _ in chosen]
    if budget is not None:
        below = scores(budget) < (FRONTIER.top + FRONTIER.bottom) / 2
        marks.append(Mark(value=budget, label="budget", kind="budget", at_left=True, below=below))
    lines = (
        Line(name=title, points=places, kind="path", radius=4),
        Line(name="chosen", points=chosen, kind="own", radius=6.5, joined=False),
    )
    across: Axis = axis(shares, "share of multiply-accumulates in INT8", lambda v: f"{v:.0%}")
    return line_chart(title, lines, FRONTIER, across, axis(scores), marks)


def _frontier_cells(point: Mapping[str, Any]) -> Cells:
    share, layers = point.get("nearest_neighbour_agreement"), point["int8_layers"]
    return (
        percent(float(point["share"])),
        layers if isinstance(layers, int) else len(layers),
        score(float(point["mean"])),
        score(float(point["worst"])),
        "–" if share is None else percent(float(share)),
        f"the {point.get('split', SEARCH)} split",
        "chosen" if point["chosen"] else "",
    )


def _layer_cells(layer: Mapping[str, Any], has_costs: bool, badge: Markup, code: Markup) -> Cells:
    drift, mean = layer.get("drift"), layer.get("mean")
    costs = (
        "–" if drift is None else f"{drift:.2e}",
        "–" if mean is None else score(float(mean)),
    )
    return (
        code(str(layer["node"])),
        str(layer.get("operator", "")),
        percent(float(layer["share"])),
        *(costs if has_costs else ()),
        badge("int8" if layer["int8"] else "float"),
        str(layer.get("why", "")),
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
