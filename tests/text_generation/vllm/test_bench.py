"""The command on a text generator that vLLM serves: load, knee, status."""

from __future__ import annotations

import pytest

from local_cloud import lifecycle
from tests.text_generation.vllm.served_generator import MOST, start_generator

pytestmark = pytest.mark.text_generation

TARGET = ("chat", "--env", "local")
SHORT = ("--input", "16:12")


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    place = tmp_path_factory.mktemp("repository")
    try:
        yield start_generator(place)
    finally:
        lifecycle.stop(place / "build/local")


def test_a_load_is_answered(generator):
    document = generator.read("bench", *TARGET, "--users", "1,2", "--seconds", "5", *SHORT)
    for phase in document["phases"]:
        metrics = phase["metrics"]
        assert metrics["request_count"]["avg"] > 0 and not phase["errors"]
        assert metrics["output_sequence_length"]["avg"] == 12
        assert 0 < metrics["time_to_first_token"]["p50"] <= metrics["request_latency"]["p50"]
    assert all("build/load" in file for file in document["files"].values())


def test_the_knee_goes_into_the_lock(generator):
    """More answers than the front lets in are refused, so one request more misses the SLO."""
    document = generator.read("bench", *TARGET, *SHORT, "--seconds", "900", "--record")
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
    assert component["failure_reason"] is None
    assert "Text generators as they run" in generator.run("status", "--env", "local")
