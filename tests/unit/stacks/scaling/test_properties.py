"""Laws of the derivations, whatever was measured: nothing better ever gives less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onboarding.manifest import BenchmarkRecord
from stacks.scaling.targets import gpu_target, invocations_target
from tests.synth.deployments import (
    benchmark,
    one,
    with_endpoint,
    with_instance_type,
    with_locks,
    with_server,
)
from tests.synth.scaled import with_served, with_serving

pytestmark = pytest.mark.unit

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


def target(deployment, measured=(), slo=None, copies=1):
    """The invocations target; 0 when there is none."""
    found = with_endpoint(
        with_serving(with_locks(deployment, benchmark=measured), instances_per_gpu=copies),
        latency_slo_ms=slo,
    )
    value = invocations_target(found, found.own)
    return 0.0 if value is None else value.value


def served_target(measured, slo, rate, served_slo):
    """The invocations target with a load test beside the benchmark."""
    found = with_endpoint(
        with_served(with_locks(EMBEDDER, benchmark=measured), rate, slo_ms=served_slo),
        latency_slo_ms=slo,
    )
    value = invocations_target(found, found.own)
    assert value is not None
    return value.value


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
    assert target(EMBEDDER, faster, slo, copies) >= target(EMBEDDER, measured, slo, copies)


@given(
    measured=records(),
    slo=SLOS,
    gpus=st.integers(1, 8),
    more=st.integers(0, 8),
    server=st.sampled_from(["triton", "python"]),
)
def test_more_gpus_never_lower_a_target(measured, slo, gpus, more, server):
    deployment = with_server(EMBEDDER, server)
    few, many = (with_instance_type(deployment, gpu_count=count) for count in (gpus, gpus + more))
    assert target(many, measured, slo) >= target(few, measured, slo)
    assert gpu_target(many, many.own).value >= gpu_target(few, few.own).value


@given(measured=records(), slos=st.tuples(SLOS, SLOS), copies=COPIES)
def test_stricter_slo_never_raises_the_target(measured, slos, copies):
    one_slo, other = slos
    strict, loose = (one_slo, other) if is_stricter(one_slo, other) else (other, one_slo)
    assert target(EMBEDDER, measured, strict, copies) <= target(EMBEDDER, measured, loose, copies)


@given(measured=records(), slos=st.tuples(SLOS, SLOS), rate=RATES, served_slo=MILLISECONDS)
def test_stricter_slo_never_raises_the_target_of_what_was_served(measured, slos, rate, served_slo):
    one_slo, other = slos
    strict, loose = (one_slo, other) if is_stricter(one_slo, other) else (other, one_slo)
    assert served_target(measured, strict, rate, served_slo) <= served_target(
        measured, loose, rate, served_slo
    )


@given(measured=records(), slo=SLOS, rate=RATES, times=st.floats(1, 100), served_slo=MILLISECONDS)
def test_higher_served_rate_never_lowers_the_target(measured, slo, rate, times, served_slo):
    assert served_target(measured, slo, rate * times, served_slo) >= served_target(
        measured, slo, rate, served_slo
    )


@given(measured=records(), slo=SLOS, copies=COPIES)
def test_more_copies_on_a_gpu_never_raise_the_target(measured, slo, copies):
    assert target(EMBEDDER, measured, slo, copies + 1) <= target(EMBEDDER, measured, slo, copies)


@given(measured=records(), slo=SLOS)
def test_target_is_never_above_what_was_measured(measured, slo):
    most = max(element.rows_per_second for element in measured)
    assert target(EMBEDDER, measured, slo) <= max(
        1.0, most * 60 * EMBEDDER.own.scaling.safety_factor
    )
