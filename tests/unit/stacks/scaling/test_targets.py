"""Values that target tracking holds, each recomputed by hand."""

from __future__ import annotations

import pytest

from stacks.scaling.targets import backlog_target, cpu_target, gpu_target, invocations_target
from tests.synth.deployments import (
    benchmark,
    of_targets,
    one,
    with_instance_type,
    with_locks,
    with_scaling,
    with_server,
)
from tests.synth.scaled import served_capacity, with_own, with_own_pools, with_served, with_variant

pytestmark = pytest.mark.unit


def embedder():
    """400 rows a second within the SLO on one A10G, safety factor 0.5, 70 % of the GPU."""
    return one("dev", "sentence-embedder")


def value(target):
    return None if target is None else target.value


def test_invocations_target_is_the_rate_times_a_minute_times_the_safety_factor():
    target = invocations_target(embedder(), embedder().own)
    assert target is not None and target.value == 400 * 60 * 0.5
    assert target.derivation.endswith(" x 60 s x safety factor 0.5 = 12000 invocations a minute")
    safer = with_scaling(embedder(), safety_factor=0.25)
    assert value(invocations_target(safer, safer.own)) == 400 * 60 * 0.25


def test_invocations_target_is_of_what_was_served():
    served = with_served(embedder(), 310.5)
    target = invocations_target(served, served.own)
    assert target is not None and target.value == 310.5 * 60 * 0.5
    assert target.derivation.startswith("sentence-embedder: 310.5 requests/s served (")


def test_invocations_target_is_rounded_downward():
    # 1.0196 x 60 x 0.5 = 30.588
    served = with_served(embedder(), 1.0196)
    assert value(invocations_target(served, served.own)) == 30.5


def test_derivation_says_every_digit_of_a_large_target():
    served = with_served(embedder(), 46160.7)
    target = invocations_target(served, served.own)
    assert target is not None and target.value == 1384821.0
    assert "46160.7 requests/s served" in target.derivation
    assert target.derivation.endswith("= 1384821 invocations a minute")


def test_invocations_target_is_at_least_one_and_says_so():
    slow = with_served(embedder(), 0.02)
    target = invocations_target(slow, slow.own)
    assert target is not None and target.value == 1
    assert target.derivation.endswith("= 0.6 invocations a minute, raised to 1, the least")


def test_invocations_target_is_of_each_variants_own_scaling():
    both = with_variant(
        embedder(),
        "candidate",
        scaling=embedder().own.scaling.model_copy(update={"safety_factor": 0.8}),
    )
    assert [value(invocations_target(both, variant)) for variant in both.variants] == [
        400 * 60 * 0.5,
        400 * 60 * 0.8,
    ]


def test_invocations_target_is_unknown_without_a_measurement():
    unmeasured = with_locks(embedder(), benchmark=())
    assert invocations_target(unmeasured, unmeasured.own) is None


def test_backlog_target_is_the_work_of_a_minute():
    target = backlog_target(embedder(), embedder().own)
    assert target is not None and target.value == 400 * 60 * 0.5
    assert target.derivation.endswith("= 12000 requests waiting for each instance")


@pytest.mark.parametrize(
    ("gpus", "server", "expected"), [(1, "triton", 70), (4, "triton", 280), (4, "python", 70)]
)
def test_gpu_target_is_the_percent_times_the_gpus_that_the_server_uses(gpus, server, expected):
    deployment = with_server(with_instance_type(embedder(), gpu_count=gpus), server)
    target = gpu_target(deployment, deployment.own)
    assert target is not None and target.value == expected
    assert target.derivation.startswith("70 % (scaling.gpu_utilization_percent) x ")


def test_gpu_target_is_the_percent_at_the_knee_where_it_was_measured():
    four = with_own_pools(embedder(), "ml.g5.12xlarge")
    served = with_served(four, 900.0, gpu_utilization_percent=83.5)
    target = gpu_target(served, served.own)
    assert target is not None and target.value == 83.5 * 4
    assert target.derivation.startswith("83.5 % (measured at the knee: roundhouse bench 0.1.0, ")
    assert target.derivation.endswith(" x 4 GPU of ml.g5.12xlarge")


def test_gpu_target_stays_below_what_the_metric_can_reach():
    full = with_served(embedder(), 300.0, gpu_utilization_percent=99.0)
    target = gpu_target(full, full.own)
    assert target is not None and target.value == 95
    assert "measured at the knee, of 99 %" in target.derivation


@pytest.mark.parametrize("percent", [0.0, 0.04, 0.9])
def test_gpu_target_is_the_setting_where_the_gpu_rested_at_the_knee(percent):
    resting = with_served(embedder(), 300.0, gpu_utilization_percent=percent)
    target = gpu_target(resting, resting.own)
    assert target is not None and target.value == 70
    assert target.derivation.startswith(
        "70 % (scaling.gpu_utilization_percent, as the GPU rested: roundhouse bench 0.1.0, "
    )


def test_gpu_target_of_several_models_is_the_least_and_only_if_all_were_measured():
    deployment = one("dev", "text-shared")
    first, second = deployment.targets
    (low,) = with_served(
        of_targets(deployment, (first,)), 100.0, gpu_utilization_percent=60.0
    ).targets
    (high,) = with_served(
        of_targets(deployment, (second,)), 100.0, gpu_utilization_percent=90.0
    ).targets
    both, one_only = of_targets(deployment, (low, high)), of_targets(deployment, (low, second))
    assert value(gpu_target(both, both.own)) == 60
    assert value(gpu_target(one_only, one_only.own)) == 70


def test_gpu_target_of_several_instance_types_is_one_that_the_smallest_can_reach():
    pools = with_own_pools(embedder(), "ml.g5.12xlarge", "ml.g5.xlarge")
    target = gpu_target(pools, pools.own)
    assert target is not None and target.value == 70
    assert target.derivation.endswith("x 1 GPU of ml.g5.xlarge")


def test_gpu_target_is_none_where_an_instance_has_no_gpu():
    local = one("local", "sentence-embedder")
    assert gpu_target(local, local.own) is None
    mixed = with_own(embedder(), pools=(*embedder().own.pools, *local.own.pools))
    assert gpu_target(mixed, mixed.own) is None


def test_cpu_target_is_the_percent_times_the_vcpus():
    local = with_scaling(one("local", "sentence-embedder"), max=3, cpu_utilization_percent=70)
    target = cpu_target(local.own)
    assert target is not None and target.value == 140
    expected = "70 % (scaling.cpu_utilization_percent) x 2 vCPUs of ml.c7i.large"
    assert target.derivation == expected


def test_cpu_target_of_several_instance_types_is_one_that_the_smallest_can_reach():
    pools = with_own_pools(one("local", "sentence-embedder"), "ml.c7i.2xlarge", "ml.c7i.xlarge")
    target = cpu_target(with_scaling(pools, cpu_utilization_percent=50).own)
    assert target is not None and target.value == 200
    assert target.derivation.endswith("x 4 vCPUs of ml.c7i.xlarge")


def test_cpu_target_is_none_unless_the_file_asks_for_it_of_types_with_known_vcpus():
    assert cpu_target(one("local", "sentence-embedder").own) is None
    assert cpu_target(with_scaling(embedder(), cpu_utilization_percent=70).own) is None


def test_refuses_a_capacity_that_says_nothing():
    for fields in ({"slo_ms": 0.0}, {"gpu_utilization_percent": 101.0}, {"rows_per_request": 0}):
        with pytest.raises(ValueError, match=next(iter(fields))):
            served_capacity(1.0, **fields)
    with pytest.raises(ValueError, match="requests_per_second"):
        served_capacity(0.0)


def test_slower_benchmark_of_one_variant_leaves_the_other():
    slow = with_locks(embedder(), benchmark=(benchmark("tensorrt", "int8", 1, 10),)).own.pools
    both = with_variant(embedder(), "candidate", pools=slow)
    assert [value(invocations_target(both, item)) for item in both.variants] == [12000, 3000]
