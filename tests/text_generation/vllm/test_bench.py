"""The command on a text generator that vLLM serves: load on both paths, knee, status."""

from __future__ import annotations

import json

import pytest

from local_cloud import lifecycle
from tests.text_generation.vllm.served_generator import MOST, start_generator

pytestmark = pytest.mark.text_generation

TARGET = ("chat", "--env", "local")
SHORT = ("--lengths", "16:12", "--warm-up", "0")


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    place = tmp_path_factory.mktemp("repository")
    try:
        yield start_generator(place)
    finally:
        lifecycle.stop(place / "build/local")


@pytest.mark.parametrize("path", [(), ("--openai",)])
def test_a_load_is_answered_by_both_paths(generator, tmp_path, path):
    load = ("--concurrency", "1,2", "--requests", "6", "--output", str(tmp_path / "report"))
    document = generator.read("bench", *TARGET, *path, *load, *SHORT)
    for phase in document["phases"]:
        metrics = phase["metrics"]
        assert metrics["request_count"]["avg"] == 6 and not phase["errors"]
        assert metrics["output_sequence_length"]["avg"] == 12
        assert 0 < metrics["time_to_first_token"]["p50"] <= metrics["request_latency"]["p50"]
    for file in document["files"].values():
        assert file.startswith(str(tmp_path / "report"))


def test_the_knee_goes_into_the_lock(generator):
    """More answers than the front lets in are refused, so one request more misses the SLO."""
    document = generator.read("bench", *TARGET, *SHORT, "--step-seconds", "1", "--write")
    knee = generator.entry.knee
    assert document["recorded"] == knee.model_dump(mode="json")
    assert (knee.concurrency, knee.instance_type) == (MOST, "ml.g5.xlarge")
    assert knee.output_tokens_per_second > 0 and 0 < knee.ttft_p95_ms < 60_000
    assert generator.deployment.entry.knee == knee


def test_status_shows_the_component_as_it_runs(generator):
    state = generator.read("status", "--env", "local")
    (live,) = state["live_generators"]
    (component,) = live["components"]
    assert (live["status"], component["status"]) == ("InService", "InService")
    assert (component["copies"], component["desired_copies"]) == (1, 1)
    assert component["serves"] == generator.entry.checkpoint_key and not live["drift"]
    assert component["last_update"]["result"] == "complete"
    assert "Text generators as they run" in generator.run("status", "--env", "local")


def test_a_recommendation_is_checked_against_our_plan(generator, tmp_path):
    account = "arn:aws:sagemaker:us-east-1:000000000000"
    deployment = {
        "InstanceType": "ml.g5.xlarge",
        "InstanceCount": 1,
        "CopyCountPerInstance": 1,
        "EnvironmentVariables": {"SM_VLLM_TENSOR_PARALLEL_SIZE": "1"},
    }
    job = {
        "AIRecommendationJobName": "chat",
        "AIRecommendationJobArn": f"{account}:ai-recommendation-job/chat",
        "AIRecommendationJobStatus": "Completed",
        "ModelSource": {"S3": {"S3Uri": "s3://bucket/checkpoints/"}},
        "OutputConfig": {"S3OutputLocation": "s3://bucket/results/"},
        "AIWorkloadConfigIdentifier": "chat",
        "PerformanceTarget": {"Constraints": [{"Metric": "cost"}]},
        "RoleArn": "arn:aws:iam::000000000000:role/recommender",
        "CreationTime": "2026-11-20T10:00:00Z",
        "Recommendations": [{"DeploymentConfiguration": deployment}],
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    (plan,) = generator.read("recommend", *TARGET, "--import", str(tmp_path / "job.json"))
    assert plan["holds"] and plan["instance_type"] == generator.deployment.candidate.instance_type
