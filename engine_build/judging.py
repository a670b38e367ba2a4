"""The steps that judge: verify, benchmark, decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_build.accuracy import accuracy, rows_by_length, rows_in_order, told
from engine_build.benchmark import Subject, benchmark, shapes, table, with_control
from engine_build.decision import Decision, decision, refuse_missed_budget
from engine_build.engine import Candidate
from engine_build.feed import Array, Feed, Shape
from engine_build.ort import OrtNetwork
from engine_build.preparation import REFERENCE_BATCH, Prepared
from engine_build.shop import Shop
from onboarding.manifest import AccuracyRecord, BenchmarkRecord
from onboarding.values import Precision

QDQ = "int8 Q/DQ network"
OPT_WEIGHT = 3.0
"""The opt shape decides between candidates, so it has more of the benchmark's time."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was measured, and which candidate it speaks for."""

    accuracy: tuple[AccuracyRecord, ...]
    """The chosen engine's last."""
    benchmark: tuple[BenchmarkRecord, ...]
    decision: Decision


def judge(shop: Shop, prepared: Prepared, candidates: Sequence[Candidate]) -> Judged:
    """Measures every candidate and chooses. Raises BudgetMissed before anything is timed."""
    engines = {candidate.precision: candidate.path for candidate in candidates}
    others = {QDQ: prepared.networks["int8"].path} if "int8" in prepared.networks else {}
    judged, seen = _verified(shop, prepared, engines, others)
    measured = _measured(shop, prepared, engines, others)
    requested = shop.order.model.engine.precision
    chosen = decision(requested, judged, measured, runtime=shop.order.runtime.name, opt_shape=shop.order.opt_shape)
    shop.log.line(f"decision: {chosen.sentence}")
    records = [*seen, *(record for precision, record in judged.items() if precision != chosen.precision)]
    return Judged(accuracy=(*records, judged[chosen.precision]), benchmark=measured, decision=chosen)


def _verified(
    shop: Shop, prepared: Prepared, engines: Mapping[Precision, Path], others: Mapping[str, Path]
) -> tuple[dict[Precision, AccuracyRecord], list[AccuracyRecord]]:
    order = shop.order
    budget = order.model.accuracy.budget

    def record(subject: str, found: Array) -> AccuracyRecord:
        result = accuracy(subject, found, prepared.reference, budget)
        shop.log.line(f"  {told(result)}")
        return result

    with shop.log.step("verify", f"{len(order.validation)} samples that calibration never saw, against the source model"):
        seen = [record(name, _rows(shop, prepared, path, as_served=False)) for name, path in others.items()]
        judged = {
            precision: record(f"{precision} engine", _rows(shop, prepared, path, as_served=precision == "int8"))
            for precision, path in engines.items()
        }
    refuse_missed_budget(order.model.engine.precision, judged)
    return judged, seen


def _rows(shop: Shop, prepared: Prepared, network: Path, *, as_served: bool) -> Array:
    """Every validation sample's row.

    `as_served`: in the order given and at the opt batch, since a dynamically quantized engine's answer depends on the rest of
    its batch. Otherwise by length, which is faster and gives the same rows.
    """
    answer, samples = OrtNetwork(network).rows, shop.order.validation.values
    if as_served:
        return rows_in_order(answer, prepared.encoder, samples, shop.order.opt_shape.batch)
    return rows_by_length(answer, prepared.encoder, samples, REFERENCE_BATCH)


def _measured(
    shop: Shop, prepared: Prepared, engines: Mapping[Precision, Path], others: Mapping[str, Path]
) -> tuple[BenchmarkRecord, ...]:
    order = shop.order
    runtime = order.runtime.name
    networks: list[tuple[str, Path]] = [*engines.items(), *others.items()]
    subjects = [_subject(runtime, name, OrtNetwork(path, as_served=True).rows) for name, path in networks]
    if prepared.source is not None:
        subjects.append(_subject("pytorch", "fp32", prepared.source))
    wanted = shapes(order.model.engine.optimization_profiles)
    feeds = [(shape, prepared.encoder.shaped(order.validation.values, shape)) for shape in wanted]
    intent = f"{len(subjects)} subjects and a duplicate control, {len(wanted)} shapes, random order"
    with shop.log.step("benchmark", intent):

        def weight(shape: Shape) -> float:
            return OPT_WEIGHT if shape == order.opt_shape else 1.0

        records = benchmark(with_control(subjects), feeds, seconds=shop.settings.benchmark_seconds, weight=weight)
    shop.log.line(table(records))
    return records


def _subject(runtime: str, precision: str, run: Callable[[Feed], object]) -> Subject:
    return Subject(runtime=runtime, precision=precision, run=run)
