"""The command on a text generator that vLLM serves: load on both paths, knee, status, savings."""

from __future__ import annotations

import json
import subprocess

import pytest

from local_cloud import lifecycle
from tests.local_cloud.account import ROOT
from tests.text_generation.vllm.served_generator import MOST, start_generator

pytestmark = pytest.mark.text_generation

TARGET = ("chat", "--env", "local")
SHORT = ("--lengths", "16:12", "--warm-up", "0")
TRANSFORMERS = ROOT / ".venvs/quantizer/bin/python"


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


def test_a_measured_baseline_stands_beside_the_measured_plan(generator, tmp_path):
    """transformers' generate on this machine, and the knee that the load test found."""
    checkpoint, file = generator.place / "models/data/tiny", tmp_path / "baseline.json"
    lengths = ("--prompt", "16", "--output", "12", "--batches", "1,2", "--rounds", "2")
    command = (
        str(TRANSFORMERS),
        "-m",
        "benchmarks.generation_baseline",
        str(checkpoint),
        str(file),
    )
    subprocess.run((*command, *lengths), cwd=ROOT, check=True, capture_output=True, timeout=600)
    words = ("compare", *TARGET, "--baseline", str(file), "--instance-type", "ml.c7i.2xlarge")
    document = generator.read(*words, "--output", str(tmp_path / "out"))
    rows = {row["output_tokens_per_second"] for row in json.loads(file.read_text())["rows"]}
    assert document["baseline"]["tokens_per_second"] in rows
    knee = generator.entry.knee
    assert document["plan"]["tokens_per_second"] == knee.output_tokens_per_second
    assert document["speed_up"] == pytest.approx(
        document["plan"]["tokens_per_second"] / document["baseline"]["tokens_per_second"]
    )
    text = generator.run(*words, "--output", str(tmp_path / "out"))
    assert "baseline: transformers" in text and "measured by `roundhouse bench`" in text
    assert f"An instance of the plan makes {document['speed_up']:.1f} x the tokens" in text
    assert (tmp_path / "out/return.html").is_file()
