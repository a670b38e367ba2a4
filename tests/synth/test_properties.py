"""The pure functions behind the stacks."""

from __future__ import annotations

import pytest

from stacks.capacity import instance_capacity
from stacks.content_name import content_name
from stacks.endpoint_properties import deployment_config, download_timeout_seconds, start_up_timeout_seconds
from stacks.endpoint_stack import output_id
from stacks.image_tag import IMAGE_CONTENTS, image_tag, image_tags, read_image_files
from stacks.scaling_properties import gpu_policy
from tests.synth.deployments import benchmark, of_targets, one, with_endpoint, with_instance_type, with_locks

pytestmark = pytest.mark.synth


def test_content_name_follows_content_and_not_order():
    assert content_name("dev-a", {"x": 1, "y": [2]}) == content_name("dev-a", {"y": [2], "x": 1})
    assert content_name("dev-a", {"x": 1}) != content_name("dev-a", {"x": 2})


def test_content_name_is_trimmed_to_what_sagemaker_allows():
    name = content_name("dev-" + "a" * 45 + "-bcdefghijklmnop", {})
    assert len(name) <= 63 and "--" not in name


def test_start_up_timeout_grows_with_the_measured_load_and_stays_in_bounds():
    (entry,) = (target.lock_entry for target in one("dev", "sentence-embedder").targets)
    manifests = [entry.manifest.model_copy(update={"load_seconds": seconds}) for seconds in (0.0, 30.0, 5000.0)]
    assert [start_up_timeout_seconds([manifest]) for manifest in manifests] == [60, 180, 3600]


def test_download_timeout_grows_with_the_archive_and_stays_in_bounds():
    assert [download_timeout_seconds([mib * 2**20]) for mib in (0, 2000, 1_000_000)] == [60, 160, 3600]


@pytest.mark.parametrize("rollout", ["canary", "linear", "rolling", "all-at-once"])
def test_rollout_keeps_within_sagemakers_bounds(rollout):
    config = deployment_config(rollout, ["alarm"])
    assert config["AutoRollbackConfiguration"] == {"Alarms": [{"AlarmName": "alarm"}]}
    if rollout == "rolling":
        assert 5 <= config["RollingUpdatePolicy"]["MaximumBatchSize"]["Value"] <= 50
        return
    routing = config["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    sizes = [routing[key]["Value"] for key in ("CanarySize", "LinearStepSize") if key in routing]
    assert all(10 <= size <= 50 for size in sizes)
    assert len(sizes) == (0 if rollout == "all-at-once" else 1)


def test_capacity_is_the_best_rate_within_the_slo_and_the_queue_delay():
    deployment = with_endpoint(one("dev", "sentence-embedder"), latency_slo_ms=20.05)
    capacity = instance_capacity(deployment)
    # Batch 8 takes 20 ms, which with 0.1 ms in the queue is too long; batch 1 takes 5 ms.
    assert capacity is not None and capacity.requests_per_second == 200


def test_capacity_counts_the_served_engine_alone():
    records = (
        benchmark("tensorrt", "int8", 1, 5),
        benchmark("tensorrt", "fp16", 8, 8),
        benchmark("pytorch", "int8", 8, 8),
        benchmark("tensorrt", "int8", 8, 8, sequence=8),
    )
    capacity = instance_capacity(with_locks(one("dev", "sentence-embedder"), benchmark=records))
    assert capacity is not None and capacity.requests_per_second == 200


def test_capacity_of_a_shared_instance_is_its_slowest_targets():
    deployment = one("dev", "text-shared")
    slow, fast = deployment.targets
    slowed = with_locks(of_targets(deployment, (slow,)), benchmark=(benchmark("tensorrt", "int8", 1, 10),)).targets
    capacity = instance_capacity(of_targets(deployment, (*slowed, fast)))
    assert capacity is not None and capacity.requests_per_second == 100
    assert capacity.derivation.startswith("sentence-embedder-fp32: ")


def test_capacity_is_unknown_when_a_target_is_unmeasured():
    assert instance_capacity(with_locks(one("dev", "text-shared"), benchmark=())) is None


def test_gpu_target_is_scaled_by_the_gpu_count():
    deployment = one("dev", "sentence-embedder")
    four = with_instance_type(deployment, gpu_count=4)
    policy = gpu_policy(four)
    assert policy is not None
    assert policy[0]["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 280


def test_cpu_endpoint_has_no_gpu_policy():
    assert gpu_policy(one("local", "sentence-embedder")) is None


def test_image_tag_follows_paths_bytes_and_base():
    tag = image_tag({"a": b"1", "b": b"2"}, "base:1")
    assert tag == image_tag({"b": b"2", "a": b"1"}, "base:1")
    swapped, rebased = image_tag({"a": b"2", "b": b"1"}, "base:1"), image_tag({"a": b"1", "b": b"2"}, "base:2")
    assert len({tag, swapped, rebased, image_tag({"a": b"1"}, "base:1")}) == 4


def test_base_image_matters_only_to_images_made_from_it():
    files = {image: {"f": b""} for image in IMAGE_CONTENTS}
    before, after = image_tags(files, "base:1"), image_tags(files, "base:2")
    assert {image for image in files if before[image] != after[image]} == {"triton", "python-server-gpu", "builder-gpu"}


def test_image_files_are_sources_and_locked_requirements(tmp_path):
    for name in ("container/server/a.py", "container/server/__pycache__/a.pyc", "requirements/server.txt", "stacks/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert set(read_image_files(tmp_path)["python-server"]) == {"container/server/a.py", "requirements/server.txt"}


def test_output_id_is_the_models_name_in_pascal_case():
    assert output_id("sentence-embedder-fp32") == "TargetModelSentenceEmbedderFp32"
