"""What one instance can answer: each rule with its number recomputed by hand."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onboarding.manifest import BuilderRecord, ProfileRecord
from onboarding.platform import instance_types
from stacks.engine_capacity import (
    BEYOND,
    LEAST_COUNTED,
    USUAL_SHARE,
    bearable_load,
    capacity_warnings,
    counted_share,
    variant_capacity,
    was_measured_on,
)
from tests.synth.deployments import (
    benchmark,
    instance_capacity,
    of_targets,
    one,
    unlocked,
    with_endpoint,
    with_instance_type,
    with_locks,
    with_own_pools,
    with_served,
    with_server,
    with_serving,
    with_targets,
    with_variant,
)

pytestmark = pytest.mark.unit


def embedder(**manifest_fields):
    """The shipped endpoint on one A10G: batch 1 in 5 ms, 8 in 20 ms, 32 in 90 ms.

    SLO 50 ms, queue delay 0.1 ms.
    """
    deployment = one("dev", "sentence-embedder")
    return with_locks(deployment, **manifest_fields) if manifest_fields else deployment


def rate(deployment):
    capacity = instance_capacity(deployment)
    return None if capacity is None else capacity.requests_per_second


def slo(deployment, milliseconds):
    return with_endpoint(deployment, latency_slo_ms=milliseconds)


LONE, PAIR = benchmark("tensorrt", "int8", 1, 20), benchmark("tensorrt", "int8", 2, 70)
BOTH = embedder(benchmark=(LONE, PAIR.model_copy(update={"rows_per_second": 60.0})))
TWO_COPIES, FOUR_GPUS = (
    with_serving(embedder(), instances_per_gpu=2),
    with_instance_type(embedder(), gpu_count=4),
)
OTHERS = (
    benchmark("tensorrt", "int8", 1, 5),
    benchmark("tensorrt", "fp16", 8, 8),
    benchmark("pytorch", "int8", 8, 8),
    benchmark("tensorrt", "int8", 8, 8, sequence=8),
)
LENGTHS = tuple(
    benchmark("tensorrt", "int8", 8, latency, sequence=length)
    for length, latency in ((16, 8), (64, 20))
)
TUNED, UNTUNED = (
    tuple(ProfileRecord(batch=(1, 8, 8), sequence=lengths) for lengths in rows)
    for rows in (((8, 16, 32), (32, 64, 128)), ((8, 24, 128),))
)
SERVED = with_served(embedder(), 310.0)


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        # A request waits 0.1 ms in the queue and for the batch under way, then runs: twice 5, 20
        # and 90 ms, and 0.1. Behind batches of one that is too long for the first: a quarter
        # counts.
        # Batch 32 gives 355.6 rows a second, less than batch 8 does, so it is never the best.
        (slo(embedder(), 10.1), 50),
        (slo(embedder(), 40.0), 200),
        (slo(embedder(), 40.1), 400),
        (slo(embedder(), 180.1), 400),
        (slo(embedder(), None), 400),
        # The Python server waits for no queue delay.
        (slo(with_server(embedder(), "python"), 40.0), 400),
        # Behind batches of two (150 - 0.1 - 70) / 70 = 1.14 runs may be waited for, and behind
        # single ones 6.5.
        (slo(BOTH, 150), 50),
        (slo(BOTH, 300), 60),
        # Copies share a GPU: one batch of 8 ends every 20 ms, and each takes 2 x 20: 20 + 40 + 0.1.
        (slo(TWO_COPIES, 60.0), 200),
        (slo(TWO_COPIES, 60.1), 400),
        (slo(with_server(TWO_COPIES, "python"), 59.9), 200),
        (slo(with_server(TWO_COPIES, "python"), 60.0), 400),
        (FOUR_GPUS, 4 * 400),
        (with_server(FOUR_GPUS, "python"), 400),
        # Another precision, runtime or length is not what is served.
        (embedder(benchmark=OTHERS), 200),
        (embedder(benchmark=LENGTHS, optimization_profiles=TUNED), 400),
        (embedder(benchmark=LENGTHS, optimization_profiles=UNTUNED), 400),
        # A load test of exactly this engine, server and type counts first, of a whole instance.
        (with_served(with_own_pools(embedder(), "ml.g5.12xlarge"), 900.0), 900),
        (with_served(embedder(), 310.0, slo_ms=20.0), 310),
        (slo(SERVED, None), 310),
        (with_served(embedder(), 310.0, instance_type="ml.g5.2xlarge"), 400),
        (with_served(embedder(), 310.0, server="python"), 400),
        (with_targets(SERVED, lambda item: dataclasses.replace(item, engine_key="b" * 20)), 400),
        (of_targets(TWO := one("dev", "text-shared"), TWO.targets[:1]), 400),
        (
            of_targets(
                TWO,
                (
                    TWO.targets[0],
                    *with_locks(of_targets(TWO, TWO.targets[1:]), benchmark=()).targets,
                ),
            ),
            None,
        ),
    ],
)
def test_capacity_is_the_best_measured_rate_that_keeps_the_slo(deployment, expected):
    assert rate(deployment) == expected


def test_capacity_is_each_variants_own():
    fast = embedder(benchmark=(benchmark("tensorrt", "int8", 8, 10),)).own.pools
    both = with_variant(embedder(), "candidate", pools=fast)
    rates = [variant_capacity(both, variant).requests_per_second for variant in both.variants]
    assert rates == [400, 800]


def test_capacity_that_misses_the_slo_is_a_quarter_of_the_lowest_rate_and_says_so():
    capacity = instance_capacity(with_endpoint(embedder(), latency_slo_ms=10))
    assert capacity is not None
    assert (capacity.requests_per_second, capacity.within_slo) == (50, False)
    assert "10.1 ms behind the batch under way, OVER the SLO of 10 ms" in capacity.derivation
    assert capacity.derivation.endswith("x 0.25, so that few requests wait")


def test_capacity_behind_batches_of_one_is_what_half_of_it_keeps_the_slo_of():
    # 20 ms alone: the SLO lets a request wait (50 - 0.1 - 20) / 20 = 1.495 runs. e^(-theta x 1.495)
    # = 1 / 100: theta = 3.0804;
    # theta / (e^theta - 1) = 0.14837, twice that counts, and 50 x 0.296 = 14.8.
    lone = embedder(benchmark=(benchmark("tensorrt", "int8", 1, 20),))
    capacity = instance_capacity(lone)
    assert capacity is not None
    assert (capacity.requests_per_second, capacity.within_slo) == (14.8, True)
    assert capacity.derivation.endswith(
        "x 0.296, as requests come at random and pile up behind batches of 1"
    )
    assert (
        rate(with_endpoint(lone, latency_slo_ms=None))
        == rate(with_endpoint(lone, latency_slo_ms=100))
        == 50
    )


def test_capacity_on_a_cpu_names_the_machine_that_measured_it():
    capacity = instance_capacity(one("local", "sentence-embedder"))
    assert capacity is not None and "on its builder's CPU (test)" in capacity.derivation
    assert "builder" not in instance_capacity(embedder()).derivation


def test_capacity_of_a_shared_instance_is_its_slowest_targets():
    deployment = one("dev", "text-shared")
    slow, fast = deployment.targets
    slowed = with_locks(
        of_targets(deployment, (slow,)), benchmark=(benchmark("tensorrt", "int8", 1, 10),)
    ).targets
    capacity = instance_capacity(of_targets(deployment, (*slowed, fast)))
    assert capacity is not None and capacity.requests_per_second == 100
    assert capacity.derivation.startswith("sentence-embedder-fp32: ")
    assert capacity.derivation.endswith("the slowest of 2 models")


def test_capacity_of_several_instance_types_is_the_slowest_ones():
    capacity = instance_capacity(with_own_pools(embedder(), "ml.g5.12xlarge", "ml.g5.xlarge"))
    assert capacity is not None and capacity.requests_per_second == 400
    assert capacity.derivation.endswith("the slowest of 2 instance types")


def test_one_model_over_the_slo_is_named_though_another_is_slower():
    deployment = one("dev", "text-shared")
    slow, fast = deployment.targets
    slower = with_locks(
        of_targets(deployment, (slow,)), benchmark=(benchmark("tensorrt", "int8", 1, 20),)
    ).targets
    late = with_locks(
        of_targets(deployment, (fast,)), benchmark=(benchmark("tensorrt", "int8", 32, 60),)
    ).targets
    both = of_targets(deployment, (*slower, *late))
    capacity = instance_capacity(both)
    # 20 ms twice are within 50 ms, and of 50 a second behind batches of one 0.298 count: no queue
    # delay, so 1.5 runs to wait.
    assert capacity is not None
    assert (capacity.requests_per_second, capacity.within_slo) == (14.9, False)
    (warning,) = capacity_warnings(both, both.own)
    assert "sentence-embedder-int8" in warning and "OVER the SLO of 50 ms" in warning


@pytest.mark.parametrize(
    ("deployment", "reason"),
    [
        (
            lambda: next(item for item in unlocked("dev") if item.name == "sentence-embedder"),
            "'sentence-embedder' is not built",
        ),
        (lambda: embedder(benchmark=()), "has no benchmark of its own engine; build it again"),
        (
            lambda: embedder(
                builder=BuilderRecord(
                    machine="m", gpu="NVIDIA A10", built_at="2026-11-21T00:00:00Z"
                )
            ),
            "was measured on NVIDIA A10, and ml.g5.xlarge has A10G",
        ),
    ],
)
def test_capacity_is_unknown_where_nothing_fitting_was_measured_and_says_why(deployment, reason):
    found = deployment()
    assert rate(found) is None
    (warning,) = capacity_warnings(found, found.own)
    assert reason in warning
    assert warning.endswith("so its capacity is not known and nothing scales on its requests.")


@pytest.mark.parametrize(
    ("driver_says", "instance", "same"),
    [
        ("NVIDIA A10G", "ml.g5.xlarge", True),
        ("Tesla T4", "ml.g4dn.xlarge", True),
        ("NVIDIA L40S", "ml.g6.xlarge", False),
        ("NVIDIA L4", "ml.g6e.xlarge", False),
        ("NVIDIA A100-SXM4-40GB", "ml.p4d.24xlarge", True),
        ("NVIDIA H100 80GB HBM3", "ml.p5.48xlarge", True),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "ml.g7e.2xlarge", True),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "ml.g7.2xlarge", False),
        (None, "ml.g5.xlarge", True),
        (None, "ml.c7i.large", True),
    ],
)
def test_gpu_of_the_driver_is_the_instance_types_or_not(driver_says, instance, same):
    assert was_measured_on(driver_says, instance_types()[instance]) is same


def test_served_capacity_counts_before_the_engines_own_benchmark():
    capacity = instance_capacity(with_served(embedder(), 310.0))
    assert capacity is not None
    assert (capacity.requests_per_second, capacity.within_slo) == (310, True)
    explanation = (
        "roundhouse bench 0.1.0, dev-sentence-embedder on ml.g5.xlarge, triton, p99 within 50 ms,"
        " 2026-11-21"
    )
    assert capacity.derivation == f"sentence-embedder: 310 requests/s served ({explanation})"


def test_served_capacity_at_a_looser_slo_is_only_a_bound():
    tightened = with_endpoint(with_served(embedder(), 310.0, slo_ms=80.0), latency_slo_ms=50)
    capacity = instance_capacity(tightened)
    assert capacity is not None and capacity.requests_per_second == 310
    assert "400 rows/s measured" in capacity.derivation
    assert "; at most the 310 requests/s served" in capacity.derivation
    assert (
        rate(with_endpoint(with_served(embedder(), 900.0, slo_ms=80.0), latency_slo_ms=50)) == 400
    )


def test_engines_own_rows_are_as_many_to_a_request_as_were_served():
    # 100 requests of 8 rows at the looser SLO, and 400 rows a second alone at today's: 50 such
    # requests.
    large = with_endpoint(
        with_served(embedder(), 100.0, slo_ms=80.0, rows_per_request=8), latency_slo_ms=50
    )
    capacity = instance_capacity(large)
    assert capacity is not None and capacity.requests_per_second == 50
    assert " / 8 rows of a request; at most the 100 requests/s served (" in capacity.derivation


REQUESTS = 30_000
BATCHES, WAITS = st.integers(1, 256), st.floats(0, 1e6, allow_nan=False)


def longest_but_few(batch, load):
    """The latency, in runs of a batch, that one request in BEYOND exceeds.

    Poisson arrivals, every batch of one run's length.
    """
    chance, now = random.Random(batch), 0.0
    arrivals = [now := now + chance.expovariate(load * batch) for _ in range(REQUESTS)]
    latencies, free, place = [], 0.0, 0
    while place < REQUESTS:
        start, first = max(free, arrivals[place]), place
        while place < REQUESTS and place < first + batch and arrivals[place] <= start:
            place += 1
        free = start + 1
        latencies += [free - arrived for arrived in arrivals[first:place]]
    return sorted(latencies)[-REQUESTS // BEYOND]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8, 32])
@pytest.mark.parametrize("waits", [1.0, 1.5, 2.0, 3.0, 6.0])
def test_usual_share_of_what_counts_keeps_the_slo(batch, waits):
    assert longest_but_few(batch, counted_share(batch, waits) * USUAL_SHARE) <= (waits + 1) * 1.02


@pytest.mark.parametrize(
    ("batch", "waits"), [(1, 1.5), (1, 2.0), (1, 3.0), (2, 1.5), (2, 2.0), (3, 1.5), (4, 1.2)]
)
def test_what_does_not_count_would_break_the_slo(batch, waits):
    assert LEAST_COUNTED < counted_share(batch, waits) < 1
    assert longest_but_few(batch, USUAL_SHARE) > waits + 1


def test_bearable_load_of_single_requests_by_hand():
    # e^(-3 theta) = 1 / 100: theta = 1.535; 1.535 / (e^1.535 - 1) = 0.4216.
    assert bearable_load(1, 3.0) == pytest.approx(0.4216, abs=1e-4)
    # A batch of 4 leaves 4 x (1.5 - 0.5) = 4 requests ahead: theta = 1.1513, 1.1513 / (e^1.1513 -
    # 1) = 0.5324.
    assert bearable_load(4, 1.5) == pytest.approx(0.5324, abs=1e-4)
    assert bearable_load(1, 0.0) == 0.0


@given(batch=st.integers(8, 256), waits=st.floats(1, 1e6))
def test_all_counts_from_batch_eight_on(batch, waits):
    assert counted_share(batch, waits) == 1


@given(batch=BATCHES, waits=WAITS, more=st.floats(0, 1e6), larger=st.integers(0, 64))
def test_more_time_to_wait_never_counts_for_less(batch, waits, more, larger):
    assert LEAST_COUNTED <= counted_share(batch, waits) <= counted_share(batch, waits + more) <= 1
    if waits >= 1:
        assert counted_share(batch, waits) <= counted_share(batch + larger, waits)
