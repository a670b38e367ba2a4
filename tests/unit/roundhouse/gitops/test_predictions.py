"""Times of engines that are not built, from those that were measured."""

from __future__ import annotations

import json
import struct
from types import SimpleNamespace

import pytest

from onboarding.manifest import BenchmarkRecord
from onboarding.platform import instance_types
from roundhouse.gitops.predictions import (
    LEDGER,
    WEIGHTS_RATIO,
    MeasuredEngine,
    engine_predictions,
    errors_sentence,
    ledger,
    locked_engines,
    measured_engines,
    predict,
    product_weights,
)
from tests.unit.roundhouse.engines import REPOSITORY


def engine(name="a", weights=100, times=None, **changes):
    fields = {"gpu": "A10G", "precision": "fp16", "date": "2026-11-28", "source": "lock"}
    times = {"1x8": 1.0, "8x64": 2.0, "32x128": 9.0} if times is None else times
    return MeasuredEngine(name=name, weights=weights, times=times, **(fields | changes))


A, NEAR = engine(), engine("b", 120, {"1x8": 1.0, "8x64": 3.0})


@pytest.mark.parametrize(
    ("wanted", "shape", "engines", "expected"),
    [
        (A, "8x64", [A], (2.0, "a")),
        (A, "4x65", [A], (1.5, "a")),
        (A, "8x64", [NEAR, A], (2.0, "a")),
        (engine("c", 110), "8x64", [A, NEAR], (2.8307, "b")),
        (engine("c", 101), "8x64", [NEAR, A], (2.01, "a")),
        (engine("c", 125), "1x8", [A], (1.004, "a")),
        (engine("c", 126), "1x8", [A], None),
        (engine("c", 79), "8x64", [A], None),
        (engine("c", None), "8x64", [A], None),
        (A, "8x64", [engine("a", None)], (2.0, "a")),
        (A, "8x64", [engine(gpu="L4")], None),
        (A, "8x64", [engine(precision="int8")], None),
        (A, "64x128", [A], None),
        (A, "1x4", [A], None),
        (engine("i", None), "4", [engine("i", None, {"1": 1.0, "8": 8.0})], (4.0, "i")),
        (engine(network="x"), "8x64", [engine(network="y", weights=None)], None),
    ],
)
def test_time_follows_from_the_nearest_engine_within_what_was_measured(
    wanted, shape, engines, expected
):
    found = predict(wanted, shape, engines)
    assert (found if found is None else (found[0], found[1].name)) == (
        expected if expected is None else (pytest.approx(expected[0], abs=0.01), expected[1])
    )


def test_ledger_holds_each_time_against_what_the_others_say():
    rows = ledger([A, engine("b", 100, {"8x64": 4.0})])
    assert [(row.of, row.by, round(row.predicted_ms, 3), row.error) for row in rows] == [
        ("a on A10G, fp16, 8x64", "a", 1.986, -0.007),
        ("b on A10G, fp16, 8x64", "a", 2.0, -0.5),
    ]


def ledger_text():
    rows = sorted(ledger(measured_engines()), key=lambda row: abs(row.error))
    document = {
        "command": "python -m tests.unit.roundhouse.gitops.test_predictions",
        "rows": [{**row._asdict(), "error": row.error} for row in rows],
    }
    return json.dumps(document, indent=1) + "\n"


def test_written_ledger_is_of_the_shipped_measurements_and_none_is_off_by_a_factor_of_two():
    assert (REPOSITORY / LEDGER).read_text() == ledger_text()
    rows = ledger(measured_engines())
    assert len(rows) >= 15 and max(abs(row.error) for row in rows) < 1
    assert f"{max(abs(row.error) for row in rows):.0%} at worst" in errors_sentence()
    far = [item for item in measured_engines() if item.name == "BERT-large"]
    assert far[0].weights / 10_616_832 > WEIGHTS_RATIO


def test_shipped_times_are_figures_of_the_committed_json():
    for item in measured_engines():
        text = (REPOSITORY / "docs/benchmarks/gpu" / item.source).read_text()
        assert item.gpu in text and item.date in text
        assert [time for time in item.times.values() if f": {time}" not in text] == []


def record(precision, p50, runtime="tensorrt", sequence=64):
    return BenchmarkRecord(
        runtime=runtime, precision=precision, batch=8, sequence=sequence, average_ms=p50,
        p50_ms=p50, p95_ms=p50, p99_ms=p50, rows_per_second=1.0, repetitions=9,
    )  # fmt: skip


def target(gpu="A10G", records=(), checkpoint="encoder", sequence=(8, 64, 128), **fields):
    profile = SimpleNamespace(batch=(1, 8, 32), sequence=sequence)
    model = SimpleNamespace(
        name="m",
        source=SimpleNamespace(checkpoint=checkpoint, path=None, triton_repository=None),
        engine=SimpleNamespace(optimization_profiles=(profile,), precision="auto"),
    )
    builder = SimpleNamespace(built_at="2026-11-28T10:00:00Z")
    manifest = SimpleNamespace(
        gpu=gpu, benchmark=records, network_keys={"float": "k"}, builder=builder
    )
    entry = SimpleNamespace(manifest=manifest)
    return SimpleNamespace(**{"model": model, "lock_entry": entry, **fields})


def test_lock_gives_an_engine_of_each_precision_and_the_faster_of_two_copies(tmp_path):
    records = [
        record("fp16", 2.0), record("fp16 (duplicate control)", 1.5), record("int8", 1.0),
        record("fp32", 9.0, runtime="pytorch"), record("fp16", 3.0, sequence=128),
    ]  # fmt: skip
    fp16, int8 = locked_engines(tmp_path, [target(records=records)])
    assert (fp16.precision, fp16.times) == ("fp16", {"8x64": 1.5, "8x128": 3.0})
    assert (int8.identity, int8.times, int8.date) == ("k", {"8x64": 1.0}, "2026-11-28")
    assert list(locked_engines(tmp_path, [target(None, records)])) == []
    assert list(locked_engines(tmp_path, [SimpleNamespace(lock_entry=None)])) == []


def write_checkpoint(folder, shapes):
    tensors = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
        for name, shape in shapes.items()
    }
    header = json.dumps(tensors).encode()
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def test_weights_are_those_of_matrices_without_tables_of_embeddings(tmp_path):
    shapes = {"embeddings.word.weight": [90, 8], "layer.0.weight": [8, 16], "layer.0.bias": [16]}
    write_checkpoint(tmp_path / "encoder", shapes)
    assert product_weights(tmp_path, target().model) == 8 * 16
    assert product_weights(tmp_path, target(sequence=None).model) is None
    assert product_weights(tmp_path, target(checkpoint=None).model) is None
    (tmp_path / "encoder/model.safetensors").write_bytes(b"damaged")
    assert product_weights(tmp_path, target().model) is None


def test_new_encoder_takes_the_time_and_cost_of_a_shipped_one_of_nearly_its_weights(tmp_path):
    write_checkpoint(tmp_path / "encoder", {"layer.0.weight": [384, 27648]})
    new = target(lock_entry=None, plan_key="p", network_keys={"float": "new"}, runtime="tensorrt")
    new.instance_type = instance_types()["ml.p5en.48xlarge"]

    def predicted(item, region="us-east-2"):
        return engine_predictions(tmp_path, region, item, None, measured_engines())

    (found,) = predicted(new)
    hours = found.p50_ms / 3_600_000 / 8 / 8 * 1_000_000
    assert (found.precision, found.shape, found.p50_ms) == ("fp16", "8x64", 0.2723)
    assert found.usd_a_million_rows == pytest.approx(72.795 * hours)
    assert predicted(new, "us-east-1")[0].usd_a_million_rows is None, "no price of it there"
    for change in ({"plan_key": None}, {"lock_entry": 1}, {"runtime": "onnxruntime"}):
        assert predicted(SimpleNamespace(**{**vars(new), **change})) == ()
    write_checkpoint(tmp_path / "other", {"layer.0.weight": [1024, 294912]})
    new.model.source.checkpoint = "other"
    assert predicted(new) == (), "BERT-large is far from every engine measured on an H200"


if __name__ == "__main__":
    (REPOSITORY / LEDGER).write_text(ledger_text())
