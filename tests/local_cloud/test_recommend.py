"""`roundhouse recommend`: a model's own server is served, loaded and measured by a real job."""

from __future__ import annotations

import pytest

from onboarding.lock import ServedCapacity, record_capacity
from onboarding.names import recommendation_prefix
from onboarding.prices import price
from roundhouse.errors import AwsError, UsageError
from roundhouse.recommendation.job import stop_jobs
from roundhouse.recommendation.options import RecommendOptions, UserPhase
from roundhouse.recommendation.result import read_records
from roundhouse.recommendation.run import prepare_job, run_job
from roundhouse.reports.recommendation_report import cells_of, notes, scaling_cells
from tests.local_cloud.tiny_session import deploy_all, lock_entry, session_at, sound_network

pytestmark = pytest.mark.local_cloud
ENDPOINT = "{instance_type: ml.c7i.large, latency_slo_ms: 5000}"
PHASES = (UserPhase(start=2, spawn=2, seconds=120),)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("recommend"), seconds_per_minute="0.1") as tiny:
        tiny.write_model(sound_network(), endpoint=ENDPOINT)
        deploy_all(tiny.start())
        yield tiny


@pytest.fixture
def session(tiny):
    return tiny.start()


def load_test(**changes) -> RecommendOptions:
    return RecommendOptions(job_type="Advanced", phases=PHASES, **changes)


def jobs(session):
    prefix = recommendation_prefix(session.environment, "tiny")
    listed = session.clients("sagemaker").list_inference_recommendations_jobs(NameContains=prefix)
    return {row["JobName"]: row["Status"] for row in listed["InferenceRecommendationsJobs"]}


def interrupt(seconds):
    raise KeyboardInterrupt


def record_load_test(tiny):
    """A load test of the model's own endpoint, a hundred times slower than any job finds."""
    entry = lock_entry(tiny)
    capacity = ServedCapacity(
        requests_per_second=0.5,
        slo_ms=5000,
        instance_type="ml.c7i.large",
        server="python",
        endpoint="local-tiny",
        date="2026-11-23",
        tool="a test",
    )
    record_capacity(tiny.lock.parent, "tiny", entry.manifest.engine_key, capacity)


def test_an_interrupted_load_test_is_followed_again_and_stands_beside_ours(tiny, session):
    record_load_test(tiny)
    options = load_test(
        instance_types=("ml.c7i.large",), parameters={"ROUNDHOUSE_SLOTS": ("1", "2")}
    )
    subject, request = prepare_job(session, "tiny", options, None)
    with pytest.raises(KeyboardInterrupt):
        run_job(session, subject, request, sleep=interrupt)
    assert set(jobs(session)) == {request.job_name(1)}
    done = run_job(session, subject, request, demand=500)
    assert jobs(session) == {request.job_name(1): "COMPLETED"}
    assert {tuple(row.recommendation.variables.items()) for row in done.rows} == {
        (("ROUNDHOUSE_SLOTS", "1"),),
        (("ROUNDHOUSE_SLOTS", "2"),),
    }
    assert all(row.recommendation.invocations_per_minute > 60 for row in done.rows)
    hourly = price(session.environment.region, "hosting", "ml.c7i.large")
    assert {row.recommendation.usd_per_hour for row in done.rows} == {hourly}
    # Latencies of microseconds are milliseconds here: read as they come, they would miss the SLO.
    assert all(row.holds_slo for row in done.rows)
    assert len(list(scaling_cells(done))) == 2
    kept = read_records(tiny.lock.parent, "tiny")
    assert kept == {done.record.job: done.record}
    # Nothing is asked again, and the model that was measured is gone.
    assert run_job(session, subject, request, demand=500).record == done.record
    assert (
        session.clients("sagemaker").list_models(NameContains="roundhouse-local--")["Models"] == []
    )


def test_a_default_job_disagrees_with_a_slower_load_test_of_ours(tiny, session):
    record_load_test(tiny)
    options = RecommendOptions(instance_types=("ml.c7i.large",))
    subject, request = prepare_job(session, "tiny", options, None)
    (row,) = run_job(session, subject, request).rows
    assert row.own is not None and row.own.is_served
    assert row.own.invocations_per_minute == 30
    assert row.throughput_ratio > 2
    assert any("requests a minute are" in text for text in row.disagreements)
    assert cells_of(row)[0] == "ml.c7i.large"


def test_a_stopped_job_is_begun_anew(session):
    subject, request = prepare_job(session, "tiny", load_test(max_invocations=10**6), None)
    with pytest.raises(KeyboardInterrupt):
        run_job(session, subject, request, sleep=interrupt)
    assert stop_jobs(session, "tiny") == (request.job_name(1),)
    with pytest.raises(AwsError, match="is STOPPED"):
        run_job(session, subject, request)
    done = run_job(session, subject, request)
    assert done.record.job == request.job_name(2)
    assert notes(done) is not None


def test_refuses_types_and_settings_that_the_engine_or_its_server_cannot_take(session):
    with pytest.raises(UsageError, match="is built for compute capability cpu"):
        prepare_job(session, "tiny", load_test(instance_types=("ml.g5.xlarge",)), None)
    with pytest.raises(UsageError, match="ROUNDHOUSE_SLOT is not a setting"):
        prepare_job(session, "tiny", load_test(parameters={"ROUNDHOUSE_SLOT": ("1",)}), None)
