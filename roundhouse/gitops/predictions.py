"""Predicts the times of engines that are not built, from the nearest engine that was measured.

The rule. The nearest engine is of the same network, else of the text encoder whose weights are
nearest, at most a quarter more or fewer; on the same GPU, in the same precision. A batch's FLOPs
grow with its work: rows times tokens times weights. Its time is read off a straight line between
the two measured shapes whose work lies around its own. Outside of what was measured, and without a
measured engine so near, nothing is predicted: BERT-large by MiniLM would be off by a factor of 3.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from onboarding.deployment import Target
from onboarding.lock import LockEntry
from onboarding.model_spec import ModelSpec
from onboarding.prices import price
from onboarding.text_generation.checkpoint import CheckpointError, read_folder
from onboarding.values import Value
from onboarding.yaml_text import load_yaml
from roundhouse.gitops.plan_document import EnginePrediction
from roundhouse.table import Table, table
from roundhouse.text import usd

WEIGHTS_RATIO = 1.25
"""At 1.0 off by 32 % at most in what was measured, at 28 by 241 %; nothing between was measured."""
MEASURED_FILE = "measured_engines.yaml"
LEDGER = "docs/benchmarks/engine-predictions.json"
CONTROL = " (duplicate control)"
ROWS = 1_000_000


class MeasuredEngine(Value):
    """An engine's p50 in milliseconds of a batch, by its shape: `rows x tokens`, images `rows`.

    `weights`: numbers of the matrices that each token is multiplied by; None: not known.
    """

    name: str
    network: str = ""
    """The key of the float network; of a shipped row empty, and its name tells networks apart."""
    weights: int | None = None
    gpu: str
    precision: str
    date: str = ""
    source: str = ""
    times: dict[str, float] = Field(default_factory=dict)

    @property
    def identity(self) -> str:
        """What tells networks apart."""
        return self.network or self.name


class LedgerRow(NamedTuple):
    """A prediction beside what was measured, in milliseconds."""

    of: str
    by: str
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Return their ratio less 1."""
        return round(self.predicted_ms / self.measured_ms - 1, 3)


@cache
def measured_engines() -> tuple[MeasuredEngine, ...]:
    """Return the engines that are shipped as measured."""
    text = resources.files("onboarding.data").joinpath(MEASURED_FILE).read_text(encoding="utf-8")
    rows = load_yaml(text)["rows"]
    return tuple(MeasuredEngine.model_validate_json(json.dumps(row)) for row in rows)


def predict(
    wanted: MeasuredEngine, shape: str, engines: Iterable[MeasuredEngine]
) -> tuple[float, MeasuredEngine] | None:
    """Return milliseconds of a shape and the engine that they follow from; None: none is near.

    `wanted` says of which network, GPU and precision; its own times are not read.
    """
    near = [(scale, engine) for engine in engines if (scale := _scale(wanted, engine)) is not None]
    near.sort(key=lambda pair: (pair[1].identity != wanted.identity, abs(math.log(pair[0]))))
    for scale, engine in near:
        times = {_work(key): time for key, time in engine.times.items()}
        found = _interpolated(times, _work(shape) * scale)
        if found is not None:
            return round(found, 4), engine
    return None


def _scale(wanted: MeasuredEngine, engine: MeasuredEngine) -> float | None:
    """Return the ratio of two networks' weights, 1 for one; None: too far, or on another GPU."""
    if (engine.gpu, engine.precision) != (wanted.gpu, wanted.precision):
        return None
    if engine.identity == wanted.identity:
        return 1.0
    if not engine.weights or not wanted.weights:
        return None
    scale = wanted.weights / engine.weights
    return scale if max(scale, 1 / scale) <= WEIGHTS_RATIO else None


def _work(shape: str) -> int:
    return math.prod(map(int, shape.split("x")))


def _interpolated(times: dict[int, float], work: float) -> float | None:
    """Return the time on the line between the measured ones around it; None outside of them."""
    for (low, fast), (high, slow) in pairwise(sorted(times.items())):
        if low <= work <= high:
            return fast + (slow - fast) * (work - low) / (high - low)
    return None


def ledger(engines: Sequence[MeasuredEngine]) -> tuple[LedgerRow, ...]:
    """Return every measured time beside what the others predict of it.

    By the engine's other shapes, and by each other network that is near.
    """
    rows = []
    for engine in engines:
        others = [other for other in engines if other.identity != engine.identity]
        for shape, measured in engine.times.items():
            times = {key: time for key, time in engine.times.items() if key != shape}
            for other in (engine.model_copy(update={"times": times}), *others):
                found = predict(engine, shape, (other,))
                if found is not None:
                    of = f"{engine.name} on {engine.gpu}, {engine.precision}, {shape}"
                    rows.append(LedgerRow(of, found[1].name, found[0], measured))
    return tuple(rows)


@cache
def errors_sentence() -> str:
    """Return how far such predictions of the shipped measurements were off, in one sentence."""
    errors = [abs(row.error) for row in ledger(measured_engines())]
    return (
        "Predicted times are of the engine alone, by the nearest that was measured: "
        f"{len(errors)} predictions of measured times were off by {statistics.median(errors):.0%} "
        f"at the median, {max(errors):.0%} at worst ({LEDGER})."
    )


def locked_engines(root: Path, targets: Iterable[Target]) -> Iterator[MeasuredEngine]:
    """Yield the TensorRT engines that locks have the times of, in each precision."""
    for target in targets:
        manifest = None if target.lock_entry is None else target.lock_entry.manifest
        if manifest is None or manifest.gpu is None:
            continue
        found: dict[str, dict[str, float]] = {}
        for record in manifest.benchmark:
            if record.runtime == "tensorrt":
                shape = _shape(record.batch, record.sequence)
                times = found.setdefault(record.precision.removesuffix(CONTROL), {})
                times[shape] = min(record.p50_ms, times.get(shape, math.inf))
        for precision, times in found.items():
            yield MeasuredEngine(
                name=target.model.name,
                network=manifest.network_keys.get("float", ""),
                weights=product_weights(root, target.model),
                gpu=manifest.gpu,
                precision=precision,
                date=manifest.builder.built_at[:10],
                times=times,
            )


def known_engines(root: Path, targets: Sequence[Target]) -> tuple[MeasuredEngine, ...]:
    """Return the engines that were measured: by the locks of these targets, and as shipped.

    None where every target is built, since nothing of them is to be predicted.
    """
    if all(target.lock_entry is not None for target in targets):
        return ()
    unique = {target.engine_key: target for target in targets}
    return (*locked_engines(root, unique.values()), *measured_engines())


def product_weights(root: Path, model: ModelSpec) -> int | None:
    """Return the numbers in a text encoder's matrices but its tables of embeddings.

    None where it takes no tokens, or no checkpoint of the tree says so.
    """
    source = model.source
    takes_tokens = any(profile.sequence for profile in model.engine.optimization_profiles)
    if source.checkpoint is None or not takes_tokens:
        return None
    try:
        checkpoint = read_folder(root / source.checkpoint / (source.path or ""))
    except (CheckpointError, OSError):
        return None
    return sum(
        tensor.elements
        for name, tensor in checkpoint.tensors.items()
        if len(tensor.shape) == 2 and "embed" not in name
    )


def engine_predictions(
    root: Path,
    region: str,
    target: Target,
    last: LockEntry | None,
    engines: Sequence[MeasuredEngine],
) -> tuple[EnginePrediction, ...]:
    """Return what is predicted of an engine at each profile's `opt` shape; nothing of a built one.

    `precision: auto` is predicted as what the model's engine before, `last`, was built in; without
    one as fp16, which it takes unless eight bits are faster.
    """
    model, instance = target.model, target.instance_type
    is_compiled = target.plan_key is not None and model.source.triton_repository is None
    is_plan = is_compiled and target.runtime == "tensorrt"
    if target.lock_entry is not None or not is_plan or instance.gpu is None:
        return ()
    precision: str = model.engine.precision
    if precision == "auto":
        precision = "fp16" if last is None else last.manifest.precision
    wanted = MeasuredEngine(
        name=model.name,
        network=target.network_keys.get("float", ""),
        weights=product_weights(root, model),
        gpu=instance.gpu,
        precision=precision,
    )
    hourly = price(region, "hosting", instance.name)
    predictions = []
    for profile in model.engine.optimization_profiles:
        sequence = None if profile.sequence is None else profile.sequence[1]
        shape = _shape(profile.batch[1], sequence)
        found = predict(wanted, shape, engines)
        if found is not None:
            milliseconds, by = found
            rows_an_hour = instance.gpu_count * profile.batch[1] * 3_600_000 / milliseconds
            predictions.append(
                EnginePrediction(
                    precision=wanted.precision,
                    shape=shape,
                    p50_ms=milliseconds,
                    usd_a_million_rows=None if hourly is None else hourly * ROWS / rows_an_hour,
                    by=f"{by.name} on {by.gpu}, {by.date}",
                )
            )
    return tuple(predictions)


def predictions_table(predictions: Iterable[tuple[str, EnginePrediction]]) -> Table:
    """Return a row for each prediction, under the name that is given with it."""
    rows = (
        (
            *(name, f"{item.precision} {item.shape.replace('x', ' x ')}", f"{item.p50_ms:.3g}"),
            *(usd(item.usd_a_million_rows), item.by),
        )
        for name, item in predictions
    )
    columns = ("model", "batch", "p50, ms", "USD a million rows, at least", "by")
    return table(columns, rows, title="Predicted")


def _shape(batch: int, sequence: int | None) -> str:
    return str(batch) if sequence is None else f"{batch}x{sequence}"
