"""Values that target tracking holds, each recomputed by hand, and laws of their derivation."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onboarding.hosting_spec import AsynchronousSpec
from onboarding.manifest import BenchmarkRecord
from stacks.endpoint.findings import scaling_warnings
from stacks.scaling import gpu_target, minute_target, named_id, scaled_counts
from tests.synth.deployments import (
    benchmark,
    of_targets,
    one,
    with_endpoint,
    with_locks,
    with_own_pools,
    with_scaling,
    with_served,
    with_serving,
    with_variant,
)
from tests.synth.scaling_example import BLOCK, DOCUMENT, document_text, examples

pytestmark = pytest.mark.unit


def embedder():
    """400 rows a second within the SLO on one A10G, safety factor 0.5, 70 % of the GPU."""
    return one("dev", "sentence-embedder")


def value(target):
    return None if target is None else target.value


def test_minute_target_is_the_rate_times_a_minute_times_the_safety_factor():
    target = minute_target(embedder(), embedder().own)
    assert target is not None and target.value == 400 * 60 * 0.5
    assert target.derivation.endswith(" x 60 s x safety factor 0.5 = 12000 invocations a minute")
    safer = with_scaling(embedder(), safety_factor=0.25)
    assert value(minute_target(safer, safer.own)) == 400 * 60 * 0.25


def test_minute_target_is_rounded_downward():
    # 1.0196 x 60 x 0.5 = 30.588
    served = with_served(embedder(), 1.0196)
    assert value(minute_target(served, served.own)) == 30.5


def test_derivation_says_every_digit_of_a_large_target():
    served = with_served(embedder(), 46160.7)
    target = minute_target(served, served.own)
    assert target is not None and target.value == 1384821.0
    assert "46160.7 requests/s served" in target.derivation
    assert target.derivation.endswith("= 1384821 invocations a minute")


def test_minute_target_is_at_least_one_and_says_so():
    slow = with_served(embedder(), 0.02)
    target = minute_target(slow, slow.own)
    assert target is not None and target.value == 1
    assert target.derivation.endswith("= 0.6 invocations a minute, raised to 1, the least")


def test_minute_target_is_of_each_variants_own_scaling():
    both = with_variant(
        embedder(),
        "candidate",
        scaling=embedder().own.scaling.model_copy(update={"safety_factor": 0.8}),
    )
    assert [value(minute_target(both, variant)) for variant in both.variants] == [
        400 * 60 * 0.5,
        400 * 60 * 0.8,
    ]


def test_minute_target_is_unknown_without_a_measurement():
    unmeasured = with_locks(embedder(), benchmark=())
    assert minute_target(unmeasured, unmeasured.own) is None


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


def asynchronous(**scaling):
    return with_scaling(with_endpoint(embedder(), asynchronous=AsynchronousSpec()), **scaling)


def test_resource_ids_differ_where_sagemaker_names_differ():
    deployment = embedder()
    for name in ("a-1", "a1", "a-b", "ab", "a-b-c", "a-bc", "A-B"):
        deployment = with_variant(deployment, name)
    ids = [named_id(item.name, "ScalableTarget") for item in deployment.variants]
    assert len(set(ids)) == len(ids)
    assert all(element.isalnum() for element in ids)
    assert named_id("a-b", "GpuPolicy") == "GpuPolicyAB"


def test_unmeasured_engine_has_no_invocations_policy_and_a_warning():
    unmeasured = with_locks(embedder(), benchmark=())
    (count,) = scaled_counts(unmeasured)
    assert [policy.id for policy in count.tracking] == ["GpuPolicy"]
    (warning,) = scaling_warnings(unmeasured)
    assert "no benchmark of its own engine" in warning and "variant AllTraffic" in warning


def test_unmeasured_variant_that_joins_is_noted_and_a_shadow_is_not():
    unmeasured = with_locks(embedder(), benchmark=()).own.pools
    deployment = with_variant(
        with_variant(embedder(), "b", pools=unmeasured), "c", pools=unmeasured, role="shadow"
    )
    (warning,) = scaling_warnings(deployment)
    assert "variant b" in warning


def test_unmeasured_asynchronous_endpoint_still_comes_up_from_zero():
    deployment = with_locks(asynchronous(min=0, max=4), benchmark=())
    (count,) = scaled_counts(deployment)
    assert count.tracking == () and count.from_zero is not None
    (unmeasured,) = scaling_warnings(deployment)
    assert "no benchmark" in unmeasured
    assert scaling_warnings(asynchronous(min=0, max=4)) == ()


MILLISECONDS = st.floats(0.01, 5000, allow_nan=False)
RATES = st.floats(0.01, 1e6, allow_nan=False)
SLOS = st.one_of(st.none(), MILLISECONDS)
COPIES = st.integers(1, 4)
EMBEDDER = one("dev", "sentence-embedder")


@st.composite
def records(draw: st.DrawFn) -> tuple[BenchmarkRecord, ...]:
    """Benchmarks at batch sizes of the server, with rates that need not follow from latencies."""
    sizes = draw(st.lists(st.integers(1, 32), min_size=1, max_size=5, unique=True))
    made = (benchmark("tensorrt", "int8", size, draw(MILLISECONDS)) for size in sizes)
    return tuple(item.model_copy(update={"rows_per_second": draw(RATES)}) for item in made)


def target_of(deployment, measured=(), slo=None, copies=1):
    """The invocations target_of; 0 when there is none."""
    found = with_endpoint(
        with_serving(with_locks(deployment, benchmark=measured), instances_per_gpu=copies),
        latency_slo_ms=slo,
    )
    value = minute_target(found, found.own)
    return 0.0 if value is None else value.value


def is_stricter(slo, other):
    return other is None or (slo is not None and slo <= other)


@given(
    measured=records(),
    slo=SLOS,
    copies=COPIES,
    speedups=st.lists(st.floats(1, 100), min_size=5, max_size=5),
)
def test_faster_engine_never_lowers_the_target(measured, slo, copies, speedups):
    faster = tuple(
        entry.model_copy(
            update={
                "p99_ms": entry.p99_ms / times,
                "rows_per_second": entry.rows_per_second * times,
            }
        )
        for entry, times in zip(measured, speedups, strict=False)
    )
    assert target_of(EMBEDDER, faster, slo, copies) >= target_of(EMBEDDER, measured, slo, copies)


@given(measured=records(), slos=st.tuples(SLOS, SLOS), copies=COPIES)
def test_stricter_slo_never_raises_the_target(measured, slos, copies):
    one_slo, other = slos
    strict, loose = (one_slo, other) if is_stricter(one_slo, other) else (other, one_slo)
    assert target_of(EMBEDDER, measured, strict, copies) <= target_of(
        EMBEDDER, measured, loose, copies
    )


@given(measured=records(), slo=SLOS)
def test_target_is_never_above_what_was_measured(measured, slo):
    most = max(element.rows_per_second for element in measured)
    assert target_of(EMBEDDER, measured, slo) <= max(
        1.0, most * 60 * EMBEDDER.own.scaling.safety_factor
    )


def test_document_shows_what_the_code_derives():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document_text(text) == text, "run: python -m tests.synth.scaling_example --write"
    assert {block["name"] for block in BLOCK.finditer(text)} == set(examples())


def test_document_recomputes_the_examples_number_by_hand():
    assert json.loads(examples()["policy"])["Target"] == 400 * 60 * 0.5
    assert "8 rows in 20 ms: 8 / 0.020 = 400 rows a second" in DOCUMENT.read_text(encoding="utf-8")
