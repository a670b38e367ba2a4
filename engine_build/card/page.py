"""The engine card: one HTML file that loads nothing, and its numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine_build.card.render import (
    DASH,
    Column,
    macro,
    milliseconds,
    per_second,
    render,
    size,
    table,
)
from onboarding.lock import LockEntry
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    Manifest,
    QuantizationRecord,
    RuntimeRecord,
)
from onboarding.names import engine_card_data_path, engine_card_path, network_path
from onboarding.source_spec import SourceSpec
from onboarding.values import NOT_MEASURED, runtime_library

if TYPE_CHECKING:
    from engine_build.request import BuildRequest
    from engine_build.store import Store

VERSION = 1
"""Of the JSON's layout."""
RUNTIMES = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "pytorch": "PyTorch"}
METRICS = {
    "cosine": "cosine to the source model's output",
    "agreement": "agreement with the source model's class",
    "accuracy": "share of the source model's accuracy that is kept",
    "order": "pairs of a query's texts in the source model's order",
    "relative_error": "1 less the relative error to the source model's output",
}
PRECISIONS = ("fp32", "fp16", "int8", "fp8")
PUBLISHED, MEASURED, LEFT_OUT = "published", "measured", "not tried, or refused"
NOT_RECORDED = "the build kept no record of it"
badge, code = macro("badge"), macro("code")


@dataclass(frozen=True, kw_only=True)
class CardFacts:
    """One published engine.

    `networks` maps each network's name, float or int8, to the facts it was kept with.
    """

    entry: LockEntry
    source: SourceSpec
    environment: str
    """The environment it was built for; others of the same platform share it."""
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """The engine's manifest."""
        return self.entry.manifest

    @property
    def quantized(self) -> Mapping[str, Any]:
        """The facts of the Q/DQ network that the manifest's record is of; none for others."""
        record = self.manifest.quantization
        if record is None or record.mode == "dynamic":
            return {}
        return self.networks.get(record.precision, {})

    def is_own(self, record: BenchmarkRecord | RuntimeRecord) -> bool:
        """Return True for a record of the published engine itself."""
        runtime = runtime_library(self.manifest.runtime.name)
        return (record.runtime, record.precision) == (runtime, self.manifest.precision)

    @property
    def at_opt(self) -> BenchmarkRecord | None:
        """The published engine at the first profile's opt shape, or else at any."""
        profile = self.manifest.optimization_profiles[0]
        sequence = None if profile.sequence is None else profile.sequence[1]
        mine = [record for record in self.manifest.benchmark if self.is_own(record)]
        exact = (
            record
            for record in mine
            if record.batch == profile.batch[1] and record.sequence in (sequence, None)
        )
        return next(exact, mine[0] if mine else None)


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


def card_files(
    request: BuildRequest, entry: LockEntry, networks: Sequence[Store], folder: Path
) -> list[tuple[str, Path]]:
    """Write card.html and card.json into a folder; return each with its name in a store.

    `networks`: where the networks' records are looked for, the nearest first. An archive of which
    nothing was measured has no card.
    """
    if entry.manifest.accuracy == NOT_MEASURED:
        return []
    keys = entry.manifest.network_keys
    facts = CardFacts(
        entry=entry,
        source=request.model.source,
        environment=request.environment,
        networks={name: _facts(networks, key) for name, key in keys.items()},
    )
    key, files = entry.manifest.engine_key, []
    names = (engine_card_path(key), engine_card_data_path(key))
    for name, data in zip(names, (card_page(facts), card_data(facts)), strict=True):
        path = folder / Path(name).name
        path.write_bytes(data)
        files.append((name, path))
    return files


def _facts(stores: Sequence[Store], key: str) -> dict[str, Any]:
    """Return what a network was kept with; nothing when it is not there."""
    from engine_build.onnx_graph.network_store import RECORD_NAME, NetworkRecord

    for store in stores:
        data = store.read(network_path(key, RECORD_NAME))
        try:
            if data is not None:
                return NetworkRecord.model_validate_json(data).facts
        except ValidationError:
            continue
    return {}


def card_page(facts: CardFacts) -> bytes:
    """Return UTF-8 HTML: the same facts give the same bytes."""
    manifest = facts.manifest
    accuracy = manifest.accuracy_records
    benchmark = sorted(manifest.benchmark, key=lambda r: (r.batch, r.sequence or 0, r.p50_ms))
    points = sorted(facts.quantized.get("frontier", ()), key=lambda point: -point["share"])
    tensors = [("input", record) for record in manifest.inputs]
    tensors += [("output", record) for record in manifest.outputs]
    values = {
        "manifest": manifest,
        "entry": facts.entry,
        "source": facts.source,
        "opset": facts.networks.get("float", {}).get("opset"),
        "at_opt": facts.at_opt,
        "commands": commands(facts),
        "precisions": table(PRECISION_COLUMNS, precision_rows(facts), _is_published),
        "accuracy": table(ACCURACY, accuracy, lambda r: r is accuracy[-1]),
        "benchmark": table(BENCHMARK, benchmark, facts.is_own),
        "speedups": table(SPEEDUPS, manifest.speedups),
        "int8_summary": _int8_summary(manifest),
        "frontier": table(POINTS, points, lambda point: bool(point["chosen"])),
        "layers": table(LAYERS, facts.quantized.get("layers", ())),
        "checks": table(CHECKS, manifest.compile_checks),
        "tensors": table(TENSORS, tensors),
        "serving": _serving(manifest),
        "digests": _digests(facts.entry),
    }
    return render("card.html.j2", values, filters=FILTERS).encode()


def card_data(facts: CardFacts) -> bytes:
    """All that the card shows, as JSON: the same facts give the same bytes."""
    document = {
        "version": VERSION,
        "environment": facts.environment,
        "source": facts.source.model_dump(mode="json", exclude_none=True),
        "entry": facts.entry.model_dump(mode="json"),
        "precisions": [asdict(row) for row in precision_rows(facts)],
        "networks": {name: dict(item) for name, item in facts.networks.items()},
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def precision_rows(facts: CardFacts) -> tuple[PrecisionRow, ...]:
    """Return FP32, FP16, INT8 and FP8, and others that were measured; nothing is estimated."""
    names = dict.fromkeys((*PRECISIONS, *facts.manifest.left_out, facts.manifest.precision))
    return tuple(_precision_row(facts.manifest, name, facts.at_opt) for name in names)


def _precision_row(manifest: Manifest, name: str, opt: BenchmarkRecord | None) -> PrecisionRow:
    def is_of_it(record: BenchmarkRecord | RuntimeRecord) -> bool:
        return (record.runtime, record.precision) == (manifest.runtime.name, name)

    size_of = None if opt is None else (opt.batch, opt.sequence)
    sized = (r for r in manifest.benchmark if (r.batch, r.sequence) == size_of)
    memory = next(filter(is_of_it, manifest.runtimes), None)
    speed = next(filter(is_of_it, sized), None)
    records = (r for r in manifest.accuracy_records if r.subject == f"{name} engine")
    accuracy = next(records, None)
    is_measured = any(record is not None for record in (memory, speed, accuracy))
    state = MEASURED if is_measured else LEFT_OUT
    return PrecisionRow(
        precision=name,
        state=PUBLISHED if name == manifest.precision else state,
        engine_bytes=getattr(memory, "engine_bytes", None),
        weights_bytes=getattr(memory, "weights_bytes", None),
        host_memory_mib=getattr(memory, "host_memory_mib", None),
        device_memory_mib=getattr(memory, "device_memory_mib", None),
        p50_ms=getattr(speed, "p50_ms", None),
        rows_per_second=getattr(speed, "rows_per_second", None),
        accuracy_metric=getattr(accuracy, "metric", None),
        accuracy_mean=getattr(accuracy, "mean", None),
        accuracy_worst=getattr(accuracy, "worst", None),
        verdict=getattr(accuracy, "verdict", None),
        reason=next(
            (text for left, text in manifest.left_out.items() if left == name),
            None if is_measured else NOT_RECORDED,
        ),
    )


def precisions_markdown(rows: Sequence[PrecisionRow]) -> str:
    """Return the table as Markdown."""
    heads = [head for head, _, _ in PRECISION_COLUMNS]
    rules = ["---:" if kind == "number" else "---" for _, kind, _ in PRECISION_COLUMNS]
    cells = [
        [str(cell(row)).replace("|", "\\|") for _, _, cell in PRECISION_COLUMNS] for row in rows
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, rules, *cells))


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


def source_pin(source: SourceSpec) -> str:
    """Return the pinned source in one line."""
    kinds = (source.python_package, source.huggingface, source.checkpoint, source.onnx)
    name = next((kind for kind in kinds if kind is not None), "not recorded")
    folder = "" if source.path is None else f", folder {source.path}"
    return f"{name}{folder}" + ("" if source.sha256 is None else f", sha256 {source.sha256}")


def _device(manifest: Manifest) -> str:
    if manifest.compute_capability == "cpu":
        return "CPU"
    gpu = "GPU" if manifest.builder.gpu is None else manifest.builder.gpu
    return f"{gpu}, compute capability {manifest.compute_capability}"


def _score(value: float | None) -> str:
    return DASH if value is None else f"{value:.5f}"


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value * 100:.1f}\N{NO-BREAK SPACE}%"


def _mebibytes(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f} MiB" if value >= 10 else f"{value:.1f} MiB"


def _shape(record: BenchmarkRecord) -> str:
    rows = f"{record.batch} row" if record.batch == 1 else f"{record.batch} rows"
    return rows if record.sequence is None else f"{rows} × {record.sequence} tokens"


def _budget(record: AccuracyRecord) -> str:
    worst = "" if record.budget_worst is None else f", worst {record.budget_worst:g}"
    neighbours = record.budget_neighbours
    same = "" if neighbours is None else f", same nearest neighbour {_percent(neighbours)}"
    return f"mean {record.budget_mean:g}{worst}{same}"


def _interval(interval: tuple[float, float] | None) -> str:
    return DASH if interval is None else f"{_score(interval[0])} to {_score(interval[1])}"


def _runtime(record: BenchmarkRecord | RuntimeRecord) -> str:
    return f"{RUNTIMES.get(record.runtime, record.runtime)} {record.precision}"


def _ms(name: str) -> Callable[[BenchmarkRecord], str]:
    return lambda record: milliseconds(getattr(record, name)).removesuffix(" ms")


def _is_published(row: PrecisionRow) -> bool:
    return row.state == PUBLISHED


FILTERS: dict[str, Callable[..., Any]] = {
    "device": _device,
    "metric": lambda name: METRICS.get(name, name),
    "mib": _mebibytes,
    "ms": milliseconds,
    "pin": source_pin,
    "rate": per_second,
    "runtime": lambda name: RUNTIMES.get(name, name),
    "shape": _shape,
    "size": size,
    "task": lambda name: name.replace("-", " "),
}
PRECISION_COLUMNS: tuple[Column, ...] = (
    ("precision", "", lambda r: r.precision.upper()),
    ("state", "", lambda r: r.state),
    ("engine file", "number", lambda r: size(r.engine_bytes)),
    ("weights", "number", lambda r: size(r.weights_bytes)),
    ("device memory", "number", lambda r: _mebibytes(r.device_memory_mib)),
    ("host memory", "number", lambda r: _mebibytes(r.host_memory_mib)),
    ("median latency", "number", lambda r: milliseconds(r.p50_ms)),
    ("rows/s", "number", lambda r: per_second(r.rows_per_second)),
    ("accuracy, mean", "number", lambda r: _score(r.accuracy_mean)),
    ("worst", "number", lambda r: _score(r.accuracy_worst)),
    ("verdict", "", lambda r: r.verdict or DASH),
    ("reason", "words", lambda r: r.reason or ""),
)
ACCURACY: tuple[Column, ...] = (
    ("network or engine", "", lambda r: r.subject),
    ("mean", "number", lambda r: _score(r.mean)),
    ("95 % interval", "number", lambda r: _interval(r.mean_interval)),
    ("worst", "number", lambda r: _score(r.worst)),
    ("same nearest neighbour", "number", lambda r: _percent(r.nearest_neighbour_agreement)),
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
CHECKS: tuple[Column, ...] = (
    ("check with no GPU", "", lambda r: f"{r.tool} {r.version}"),
    ("network", "", lambda r: r.network),
    ("seconds", "number", lambda r: f"{r.seconds:.1f}"),
    ("verdict", "", lambda r: badge(r.verdict)),
    ("layers", "number", lambda r: DASH if r.layers is None else str(r.layers.layers)),
    ("reason", "words", lambda r: r.reason or ""),
)
TENSORS: tuple[Column, ...] = (
    ("", "", lambda row: row[0]),
    ("name", "", lambda row: code(row[1].name)),
    ("datatype", "", lambda row: row[1].datatype),
    ("shape", "", lambda row: f"[{', '.join(map(str, row[1].shape))}]"),
)
POINTS: tuple[Column, ...] = (
    ("share in INT8", "number", lambda p: _percent(p["share"])),
    ("mean", "number", lambda p: _score(p["mean"])),
    ("worst", "number", lambda p: _score(p["worst"])),
    ("same nearest neighbour", "number", lambda p: _percent(p.get("nearest_neighbour_agreement"))),
    ("", "", lambda p: "chosen" if p["chosen"] else ""),
)
LAYERS: tuple[Column, ...] = (
    ("layer", "", lambda layer: code(layer["node"])),
    ("share of work", "number", lambda layer: _percent(layer["share"])),
    ("kept in", "", lambda layer: badge("int8" if layer["int8"] else "float")),
    ("why", "words", lambda layer: layer.get("why", "")),
)


def _serving(manifest: Manifest) -> list[tuple[str, str]]:
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


def _digests(entry: LockEntry) -> list[tuple[str, str]]:
    manifest, archive = entry.manifest, entry.archive
    return [
        ("Engine key", code(manifest.engine_key)),
        *(
            (f"{name} network key", code(key))
            for name, key in sorted(manifest.network_keys.items())
        ),
        ("Archive", code(archive.path) + f", {size(archive.size_bytes)}"),
        ("Archive sha256", code(archive.sha256)),
        ("manifest.json sha256", code(archive.manifest_sha256)),
    ]


def _int8_summary(manifest: Manifest) -> str:
    """Return what became of the quantized network; nothing when none was made."""
    record = manifest.quantization
    if record is None:
        return ""
    use = "The published engine is not made of it."
    if manifest.precision == record.precision:
        is_plan = manifest.runtime.name == "tensorrt"
        use = (
            "The published plan runs it."
            if is_plan
            else "The published engine is it, in ONNX Runtime."
        )
    return f"{_int8_share(record)}; {_origin(record)}. {use}"


def _origin(record: QuantizationRecord) -> str:
    if record.mode == "source":
        return "the source network's own Q/DQ nodes, kept as they are"
    if record.mode == "dynamic":
        return (
            "ONNX Runtime's dynamic quantization of the float network: each batch sets the ranges"
        )
    return f"{record.mode} mode, {record.method} calibration on {record.samples} samples"


def _int8_share(record: QuantizationRecord) -> str:
    if record.mode == "dynamic":
        return f"{record.int8_layers} layers are in INT8"
    if record.int8_share_of_matmul_macs is None:
        return "TensorRT chose the layers that are in INT8"
    tokens = "" if record.share_at_sequence is None else f" at {record.share_at_sequence} tokens"
    layers = "" if record.int8_layers is None else f", in {record.int8_layers} layers"
    share = _percent(record.int8_share_of_matmul_macs)
    return f"{share} of the multiply-accumulates{tokens} are in {record.precision.upper()}{layers}"
