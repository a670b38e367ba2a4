"""What one instance can answer, derived from the benchmarks in the lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.deployment import Deployment, Target
from onboarding.manifest import BenchmarkRecord, Manifest


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Requests a second of one instance, each of one row, and how that was derived."""

    requests_per_second: float
    within_slo: bool
    derivation: str


def instance_capacity(deployment: Deployment) -> Capacity | None:
    """The slowest target's capacity, since any mix of requests may come; None when a target was not measured as it is served."""
    capacities = [_target_capacity(deployment, target) for target in deployment.targets]
    known = [capacity for capacity in capacities if capacity is not None]
    if not known or len(known) < len(capacities):
        return None
    return min(known, key=lambda capacity: capacity.requests_per_second)


def _target_capacity(deployment: Deployment, target: Target) -> Capacity | None:
    if target.lock_entry is None:
        return None
    records = _records_as_served(target.lock_entry.manifest)
    if not records:
        return None
    slo = deployment.endpoint.latency_slo_ms
    kept = [record for record in records if slo is None or record.p99_ms + _queue_ms(deployment, target) <= slo]
    # Nothing keeps the promise: the lowest latency is the best there is, and the stack says so.
    best = max(kept, key=lambda record: record.rows_per_second) if kept else min(records, key=lambda record: record.p99_ms)
    gpus = max(1, deployment.instance_type.gpu_count)
    return Capacity(
        requests_per_second=best.rows_per_second * gpus,
        within_slo=bool(kept),
        derivation=_derivation(deployment, target, best, gpus, within_slo=bool(kept)),
    )


def _records_as_served(manifest: Manifest) -> Sequence[BenchmarkRecord]:
    """The engine's own records, at the sequence length it is tuned for, else the longest; both servers form batches."""
    own = [r for r in manifest.benchmark if (r.runtime, r.precision) == (manifest.runtime.name, manifest.precision)]
    tuned = {profile.sequence[1] for profile in manifest.optimization_profiles if profile.sequence is not None}
    longest = max((record.sequence for record in own if record.sequence is not None), default=None)
    return [r for r in own if r.sequence in tuned] or [r for r in own if r.sequence == longest]


def _queue_ms(deployment: Deployment, target: Target) -> float:
    """How long a request may wait for others; the Python server takes whatever waits, at once."""
    return target.model.serving.dynamic_batching.max_queue_delay_us / 1000 if deployment.server == "triton" else 0.0


def _derivation(deployment: Deployment, target: Target, record: BenchmarkRecord, gpus: int, *, within_slo: bool) -> str:
    slo = deployment.endpoint.latency_slo_ms
    verdict = "no latency SLO" if slo is None else f"{'within' if within_slo else 'OVER'} the SLO of {slo:g} ms"
    length = "" if record.sequence is None else f" of {record.sequence} tokens"
    shape = f"{record.runtime} {record.precision}, batch {record.batch}{length}, p99 {record.p99_ms:g} ms, {verdict}"
    times = f" x {gpus} GPUs" if gpus > 1 else ""
    return f"{target.model.name}: {record.rows_per_second:g} rows/s measured ({shape}){times}"
