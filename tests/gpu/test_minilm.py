"""MiniLM, of its real weights, by the real `python -m engine_build` in six precisions.

The bars are those of docs/verification.md: accuracy against PyTorch on 640 texts that calibration
never saw, and INT8 as the CPU predicted it.
"""

from __future__ import annotations

import tarfile
from typing import NamedTuple

import pytest

pytest.importorskip("onnxruntime", reason="needs the environment that builds engines")

pytestmark = pytest.mark.gpu
PREDICTED_WITHIN = 0.002


class Bar(NamedTuple):
    mean: float
    worst: float = 0.0
    neighbours: float = 0.0


BARS = {
    "fp32": Bar(0.99999, 0.9999, 0.99),
    "fp16": Bar(0.99999, 0.999, 0.98),
    "bf16": Bar(0.999, 0.985, 0.92),
    "fp8": Bar(0.997, 0.985, 0.92),
    "int8": Bar(0.9985, 0.985, 0.92),
}


def figures(engine):
    """What the row says of an engine, all of it from its manifest."""
    manifest = engine.entry.manifest
    (accuracy,) = (
        record for record in manifest.accuracy if record.subject == f"{manifest.precision} engine"
    )
    with tarfile.open(engine.archive) as archive:
        plan = archive.getmember(manifest.engine_file).size
    chosen = (manifest.runtime.name, manifest.precision)
    own = [item for item in manifest.benchmark if (item.runtime, item.precision) == chosen]
    return {
        "precision": manifest.precision,
        "mean": accuracy.mean,
        "worst": accuracy.worst,
        "neighbours": accuracy.nearest_neighbour_agreement,
        **{f"p50_ms_{item.batch}x{item.sequence}": item.p50_ms for item in own},
        "plan_bytes": plan,
        "build_seconds": manifest.builder.seconds,
        "int8_layers": manifest.plan.int8_layers,
        "status": engine.status,
        "decision": manifest.decision,
        **{f"left_out_{name}": reason for name, reason in manifest.left_out.items()},
    }


def assert_within(found, bar):
    assert found["mean"] >= bar.mean
    assert found["worst"] >= bar.worst
    assert found["neighbours"] >= bar.neighbours


@pytest.mark.parametrize("precision", BARS)
def test_engine_is_as_accurate_as_its_bar(precision, engine, record_property):
    found = figures(engine(precision))
    for name, value in found.items():
        record_property(name, value)
    assert found["precision"] == precision
    assert_within(found, BARS[precision])


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_engine_is_as_the_cpu_predicted(precision, engine, record_property):
    manifest = engine(precision).entry.manifest
    means = {record.subject: record.mean for record in manifest.accuracy}
    predicted = means[f"{precision} Q/DQ network"]
    record_property("predicted_mean", predicted)
    record_property("mean", means[f"{precision} engine"])
    assert abs(means[f"{precision} engine"] - predicted) <= PREDICTED_WITHIN


def test_auto_takes_a_precision_within_its_bar_that_is_no_slower_than_fp16(engine, record_property):
    found, plain = figures(engine("auto")), figures(engine("fp16"))
    for name, value in found.items():
        record_property(name, value)
    assert_within(found, BARS[found["precision"]])
    shape = "p50_ms_8x64"
    assert found[shape] <= 1.1 * plain[shape]


@pytest.mark.parametrize("precision", BARS)
def test_a_second_build_is_known_and_compiles_nothing(precision, engine, build):
    engine(precision)
    again = build(precision)
    assert again.status == "known" and "compile" not in again.seconds
