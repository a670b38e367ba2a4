"""An engine's precisions, as its lock has them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from onboarding.manifest import AccuracyRecord, BenchmarkRecord, ProfileRecord, RuntimeRecord
from roundhouse.card import COLUMNS, built_manifest, precision_rows
from roundhouse.errors import RoundhouseError
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments

pytestmark = pytest.mark.unit
MODEL = "sentence-embedder"
SHAPE = {"batch": 8, "sequence": 128}
TIMES = {"average_ms": 7.0, "p50_ms": 6.96, "p95_ms": 7.7, "p99_ms": 8.8}
MEASURED = {
    "precision": "int8",
    "optimization_profiles": (ProfileRecord(batch=(1, 8, 32), sequence=(16, 128, 256)),),
    "accuracy": (
        AccuracyRecord(
            subject="int8 engine", metric="cosine", mean=0.99722, worst=0.98562, samples=900,
            budget_mean=0.99, verdict="pass",
        ),
    ),
    "benchmark": tuple(
        BenchmarkRecord(
            runtime="onnxruntime", precision="int8", rows_per_second=rate, repetitions=9,
            **{**SHAPE, **TIMES, "batch": batch},
        )
        for batch, rate in ((1, 90.0), (8, 1126.4))
    ),
    "runtimes": (
        RuntimeRecord(
            runtime="onnxruntime", precision="int8", load_seconds=0.4, host_memory_mib=212.4,
            engine_bytes=25_000_000, weights_bytes=24_000_000,
        ),
        RuntimeRecord(
            runtime="pytorch", precision="fp32", load_seconds=0.4, host_memory_mib=900.0
        ),
    ),
    "left_out": {"fp8": "no candidate of this target"},
}  # fmt: skip


def session(**changes):
    """A session whose one environment has the model with that lock entry, or with none."""
    (deployment, *_) = local_deployments(changes.pop("tree"))
    (target,) = (item for item in deployment.built_targets if item.model.name == MODEL)
    entry = entry_for(deployment, target, **changes) if changes else None
    target = dataclasses.replace(target, lock_entry=entry)
    own = SimpleNamespace(built_targets=(target,), environment=deployment.environment)
    return SimpleNamespace(environment=deployment.environment, deployments=lambda: [own])


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return copied_tree(tmp_path_factory.mktemp("tree"))


def test_rows_are_the_four_precisions_with_what_was_measured_of_this_runtime(tree):
    manifest = built_manifest(session(tree=tree, **MEASURED), MODEL)
    rows = {row[0]: row[1:] for row in precision_rows(manifest)}
    assert list(rows) == ["FP32", "FP16", "INT8", "FP8"] and len(COLUMNS) == 12
    assert rows["INT8"] == [
        *("published", "25.0 MB", "24.0 MB", "–", "212 MiB", "6.96 ms", "1,126"),
        *("0.99722", "0.98562", "pass", ""),
    ]
    assert rows["FP8"] == ["not tried, or refused", *"–" * 9, "no candidate of this target"]
    assert rows["FP32"][-1] == "the build kept no record of it"


def test_refuses_an_unknown_model_and_one_that_is_not_built(tree):
    with pytest.raises(RoundhouseError, match=rf"allowed: .*{MODEL}"):
        built_manifest(session(tree=tree), "nothing")
    with pytest.raises(RoundhouseError, match="is not built; `roundhouse build --env local"):
        built_manifest(session(tree=tree), MODEL)
