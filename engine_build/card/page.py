"""The engine card: one HTML file that loads nothing, and its numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

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
from engine_build.card.precisions import COLUMNS as PRECISION_COLUMNS
from engine_build.card.precisions import PUBLISHED, precision_rows
from engine_build.card.render import macro, milliseconds, per_second, render
from engine_build.onnx_graph.network_store import RECORD_NAME, NetworkRecord
from engine_build.request import BuildRequest
from engine_build.store import Store
from onboarding.lock import LockEntry
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    CompileCheckRecord,
    Manifest,
    QuantizationRecord,
    RuntimeRecord,
    TensorRecord,
)
from onboarding.names import engine_card_data_path, engine_card_path, network_path

VERSION = 1
"""Of the JSON's layout."""
METRICS = {
    "cosine": "cosine to the source model's output",
    "agreement": "agreement with the source model's class",
    "accuracy": "share of the source model's accuracy that is kept",
    "order": "pairs of a query's texts in the source model's order",
    "relative_error": "1 less the relative error to the source model's output",
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
    "task": lambda name: name.replace("-", " "),
}
badge, code = macro("badge"), macro("code")


def card_files(
    request: BuildRequest, entry: LockEntry, networks: Sequence[Store], folder: Path
) -> list[tuple[str, Path]]:
    """Write card.html and card.json into a folder; return each with its name in a store.

    `networks`: where the networks' records are looked for, the nearest first.
    """
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
    values = {
        "manifest": manifest,
        "entry": facts.entry,
        "source": facts.source,
        "opset": facts.networks.get("float", {}).get("opset"),
        "at_opt": facts.at_opt,
        "frontier": facts.frontier,
        "layers": facts.layers,
        "commands": commands(facts),
        "accuracy": table(ACCURACY, manifest.accuracy, lambda r: r is manifest.accuracy[-1]),
        "precisions": table(
            PRECISION_COLUMNS, precision_rows(facts), lambda r: r.state == PUBLISHED
        ),
        "checks": table(CHECKS, manifest.compile_checks),
        "tensors": table(TENSORS, _tensors(manifest)),
        "files": table(FILES, sorted(manifest.files.items())),
        "serving": _serving(facts),
        "digests": _digests(facts),
        **_latency(facts),
        **_int8_values(facts),
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


SEARCH = "search"
"""The split of samples that a sensitivity search is measured on where it says nothing."""
POINTS: tuple[Column, ...] = (
    ("share in INT8", "number", lambda p: percent(float(p["share"]))),
    ("INT8 layers", "number", lambda p: _count(p["int8_layers"])),
    ("mean", "number", lambda p: score(float(p["mean"]))),
    ("worst", "number", lambda p: score(float(p["worst"]))),
    ("same nearest neighbour", "number", lambda p: percent(p.get("nearest_neighbour_agreement"))),
    ("judged on", "", lambda p: f"the {p.get('split', SEARCH)} split"),
    ("", "", lambda p: "chosen" if p["chosen"] else ""),
)
COSTS: tuple[Column, ...] = (
    ("drift alone", "number", lambda layer: f"{layer['drift']:.2e}" if "drift" in layer else DASH),
    ("mean alone", "number", lambda layer: score(layer.get("mean"))),
)
LAYERS: tuple[Column, ...] = (
    ("layer", "", lambda layer: code(str(layer["node"]))),
    ("operator", "", lambda layer: str(layer.get("operator", ""))),
    ("share of work", "number", lambda layer: percent(float(layer["share"]))),
    *COSTS,
    ("kept in", "", lambda layer: badge("int8" if layer["int8"] else "float")),
    ("why", "words", lambda layer: str(layer.get("why", ""))),
)


def _tensors(manifest: Manifest) -> list[tuple[str, TensorRecord]]:
    inputs = [("input", record) for record in manifest.inputs]
    return inputs + [("output", record) for record in manifest.outputs]


def _latency(facts: CardFacts) -> dict[str, Any]:
    def is_own(record: BenchmarkRecord | RuntimeRecord) -> bool:
        return (record.runtime, record.precision) == facts.subject

    manifest = facts.manifest
    records = sorted(manifest.benchmark, key=lambda r: (r.batch, r.sequence or 0, r.p50_ms))
    return {
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


def _count(layers: int | list[str]) -> int:
    return layers if isinstance(layers, int) else len(layers)


def _int8_values(facts: CardFacts) -> dict[str, Any]:
    """Return what the template shows of the INT8 network; nothing when none was made."""
    record = facts.manifest.quantization
    if record is None:
        return {}
    weighted = {str(layer["node"]) for layer in facts.layers}
    has_costs = any("drift" in layer for layer in facts.layers)
    columns = [column for column in LAYERS if has_costs or column not in COSTS]
    in_float = [layer for layer in facts.layers if not layer["int8"]]
    titled = [
        (f"The {len(in_float)} weighted layers that stay in float, and why", in_float),
        (f"All {len(facts.layers)} weighted layers", facts.layers),
    ]
    return {
        "int8_summary": f"{_int8_share(record)}; {_origin(record)}. {_int8_use(facts)}",
        "frontier_table": table(POINTS, reversed(facts.frontier), lambda p: bool(p["chosen"])),
        "layer_tables": [(title, table(columns, layers)) for title, layers in titled if layers],
        "other_float_layers": [name for name in record.float_layers if name not in weighted],
    }


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
    share = percent(record.int8_share_of_matmul_macs)
    return f"{share} of the multiply-accumulates{tokens} are in {record.precision.upper()}{layers}"


def _int8_use(facts: CardFacts) -> str:
    record = facts.manifest.quantization
    if record is None or facts.manifest.precision != record.precision:
        return "The published engine is not made of it."
    if facts.manifest.runtime.name == "tensorrt":
        return "The published plan runs it."
    return "The published engine is it, in ONNX Runtime."
