"""A job's metrics, the file that keeps them, and where they disagree with ours."""

import dataclasses
import json
import math

import pytest

from onboarding.lock import ServedCapacity
from onboarding.prices import price
from roundhouse.compare.result import CellResult, State, write_result
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.knee import Knee
from roundhouse.recommendation.comparison import compare_with_own
from roundhouse.recommendation.result import (
    JobRecord,
    ScalingAdvice,
    parse_recommendations,
    parse_scaling,
    read_records,
    records_path,
    write_record,
)
from roundhouse.reports.recommendation_report import cells_of, document, markdown, notes
from tests.unit.roundhouse.recommendation.jobs import MODEL, benchmark, subject

pytestmark = pytest.mark.unit
TYPE = "ml.g5.xlarge"
REPLY = {
    "DynamicScalingConfiguration": {
        "MinCapacity": 1,
        "MaxCapacity": 20,
        "ScaleInCooldown": 300,
        "ScaleOutCooldown": 300,
        "ScalingPolicies": [
            {
                "TargetTracking": {
                    "MetricSpecification": {
                        "Predefined": {
                            "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                        }
                    },
                    "TargetValue": 1500.0,
                }
            }
        ],
    }
}


def record(*benchmarks, steps=(), name="job"):
    return JobRecord(
        job=name,
        environment="dev",
        job_type="Advanced",
        engine_key="0" * 20,
        region="us-east-1",
        completed="2026-11-23 12:00",
        request={"JobName": name},
        recommendations=parse_recommendations({"InferenceRecommendations": benchmarks}, steps),
        requests=100,
    )


def with_capacity(requests_per_second):
    """The shipped model, its endpoint once measured at this rate."""

    def with_measurement(deployment):
        capacity = ServedCapacity(
            requests_per_second=requests_per_second,
            slo_ms=50,
            instance_type=TYPE,
            server=deployment.server,
            endpoint="dev-sentence-embedder",
            date="2026-11-20",
            tool="roundhouse bench, held for 180 s",
        )

        def change(target):
            entry = target.lock_entry.model_copy(update={"capacity": {TYPE: capacity}})
            return dataclasses.replace(target, lock_entry=entry)

        return deployment.with_targets(change)

    return subject(change=with_measurement)


def test_metrics_are_numbers_and_latency_is_in_microseconds():
    (row,) = record(benchmark(ModelLatency=100_000, MemoryUtilization=math.nan)).recommendations
    # The developer guide's example: 100000 of a latency that its text calls 100 ms.
    assert row.latency_ms == 100 and row.memory_percent is None
    (row,) = record(benchmark(CostPerHour=-1, MaxInvocations=None)).recommendations
    assert row.usd_per_hour is None and row.invocations_per_minute is None


def test_benchmarks_that_failed_are_rows_with_their_reason():
    failed = benchmark("ml.g5.2xlarge", variables=[("A", "1")])
    del failed["Metrics"], failed["RecommendationId"]
    steps = [
        {"Status": "COMPLETED", "InferenceBenchmark": benchmark()},
        {"Status": "FAILED", "InferenceBenchmark": {**failed, "FailureReason": "no capacity"}},
        {"Status": "PENDING"},
    ]
    rows = record(benchmark(), steps=steps).recommendations
    assert [(row.name, row.reason) for row in rows] == [
        (TYPE, None),
        ("ml.g5.2xlarge A=1", "no capacity"),
    ]


def test_records_stand_beside_the_lock_and_keep_each_other(tmp_path):
    first, second = record(benchmark()), record(benchmark(), name="other")
    advised = dataclasses.replace(first.recommendations[0], scaling=parse_scaling(REPLY))
    first = dataclasses.replace(first, recommendations=(advised,))
    write_record(tmp_path, MODEL, first)
    path = write_record(tmp_path, MODEL, second)
    assert path == tmp_path / f"{MODEL}.recommendations.json"
    assert read_records(tmp_path, MODEL) == {"job": first, "other": second}
    text = path.read_text()
    write_record(tmp_path, MODEL, first)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 2}', '{"version": 1, "model": "other", "jobs": {}}']
)
def test_refuses_a_file_that_is_no_record(tmp_path, text):
    records_path(tmp_path, MODEL).write_text(text)
    with pytest.raises(RoundhouseError, match="restore it from git"):
        write_record(tmp_path, MODEL, record(benchmark()))
    assert records_path(tmp_path, MODEL).read_text() == text


def test_a_job_that_agrees_has_nothing_to_say(tmp_path):
    hourly = price("us-east-1", "hosting", TYPE)
    alike = benchmark(CostPerHour=hourly, CostPerInference=hourly / 60 / 3000)
    found = compare_with_own(with_capacity(50.0), record(alike), tmp_path)
    (row,) = found.rows
    assert row.own.is_served and row.own.invocations_per_minute == 3000
    assert row.throughput_ratio == 1 and row.holds_slo
    assert row.disagreements == () and notes(found) == []
    assert found.headline.startswith(f"{TYPE}: 3,000 requests a minute, latency within 50 ms")


def test_disagreements_say_both_numbers(tmp_path):
    far = benchmark(
        MaxInvocations=9000,
        ModelLatency=80_000,
        CostPerHour=9.0,
        CostPerInference=9.0 / 60 / 9000,
    )
    found = compare_with_own(with_capacity(50.0), record(far), tmp_path)
    (row,) = found.rows
    words = "\n".join(row.disagreements)
    assert "its latency of 80 ms is above the SLO of 50 ms" in words
    assert "9,000 requests a minute are 3.00 of ours (3,000, a load test's)" in words
    assert "an hour costs 9 USD by the job" in words
    assert "a million requests cost" in words
    assert found.headline == "No benchmark's latency is within the SLO of 50 ms."


def test_without_a_load_test_the_engines_benchmark_counts_and_says_so(tmp_path):
    found = compare_with_own(subject(), record(benchmark()), tmp_path)
    (row,) = found.rows
    assert not row.own.is_served and row.own.target is not None
    assert "(derived)" in cells_of(row)[6]


def test_a_cell_of_compare_counts_where_no_load_test_is_recorded(tmp_path):
    def cell(name, values, rate, date):
        knee = Knee(
            rate=rate, reason="", users=1, users_per_second=1.0, p50_ms=5.0, p95_ms=9.0,
            p99_ms=12.0, errors=0, seconds=5.0,
        )  # fmt: skip
        return CellResult(
            name=name, values=values, model="m", instance_type=TYPE, state=State.measured,
            knee=knee, date=date,
        )  # fmt: skip

    write_result(tmp_path, "a", cell("on", (("batching", "on"),), 40.0, "2026-11-22 10:00 UTC"))
    write_result(tmp_path, "b", cell("on", (("batching", "on"),), 50.0, "2026-11-23 10:00 UTC"))
    write_result(tmp_path, "c", cell("off", (("batching", "off"),), 9.0, "2026-11-23 11:00 UTC"))
    (row,) = compare_with_own(subject(), record(benchmark()), tmp_path).rows
    assert row.own.invocations_per_minute == 3000 and row.own.latency_ms == 12
    assert row.own.derivation == "roundhouse compare, on, 2026-11-23 10:00 UTC"
    (row,) = compare_with_own(with_capacity(20.0), record(benchmark()), tmp_path).rows
    assert row.own.invocations_per_minute == 1200


def test_other_settings_of_the_server_have_nothing_of_ours_beside_them(tmp_path):
    varied = record(benchmark(variables=[("ROUNDHOUSE_THREADS", "2")]))
    found = compare_with_own(with_capacity(50.0), varied, tmp_path)
    assert found.rows[0].own is None
    assert "`roundhouse bench --record` measures" in notes(found)[-1]


def test_scaling_stands_beside_our_target_in_markdown_and_json(tmp_path):
    assert parse_scaling(REPLY) == ScalingAdvice(
        metric="SageMakerVariantInvocationsPerInstance",
        target=1500.0,
        min_capacity=1,
        max_capacity=20,
        scale_in_seconds=300,
        scale_out_seconds=300,
    )
    job = record(benchmark())
    row = dataclasses.replace(job.recommendations[0], scaling=parse_scaling(REPLY))
    job = dataclasses.replace(job, recommendations=(row,))
    found = compare_with_own(with_capacity(50.0), job, tmp_path)
    text = markdown(found)
    # 3,000 a minute, times the safety factor of the model file.
    assert "| 1,500 SageMakerVariantInvocationsPerInstance | 1 to 20 | 1,500 |" in text
    assert text.count("\n| ") == 6
    written = json.loads(json.dumps(document(found)))
    assert written["job"]["recommendations"][0]["own"]["target"] == 1500
    assert written["job"]["recommendations"][0]["within_slo"] is True


def test_scaling_without_a_policy_has_no_target():
    assert parse_scaling({}).target is None and parse_scaling({}).metric is None
