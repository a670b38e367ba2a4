"""What one instance can answer, derived from what the lock says was measured.

A load test of what was served counts before the engine's own benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from onboarding.deployment import Deployment, Pool, Target, Variant
from onboarding.lock import ServedCapacity
from onboarding.manifest import BenchmarkRecord, Manifest
from onboarding.platform import InstanceType, is_gpu_model
from onboarding.values import BASELINE_RUNTIMES

USUAL_SHARE = 0.5
"""AWS's safety factor: the share of a capacity at which one more instance is asked for."""
LEAST_COUNTED = 0.25
"""At an eighth of an engine's rate hardly a request waits, whatever its batches."""
BEYOND = 100
"""One request of so many may wait longer."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Requests a second of one instance, and how that was derived.

    `within_slo`: nothing that is served misses it.
    """

    requests_per_second: float
    within_slo: bool
    derivation: str


def variant_capacity(deployment: Deployment, variant: Variant) -> Capacity | None:
    """The slowest target's on the slowest instance type; None when one was not measured as served.

    Any mix of requests may come, and the metric that scales is a mean over instances of every type.
    """
    capacities = [capacity for _, capacity in _target_capacities(deployment, variant)]
    known = [capacity for capacity in capacities if not isinstance(capacity, str)]
    if not known or len(known) < len(capacities):
        return None
    slowest = min(known, key=lambda capacity: capacity.requests_per_second)
    counts = ((len(variant.targets), "models"), (len(variant.pools), "instance types"))
    among = " on ".join(f"{count} {noun}" for count, noun in counts if count > 1)
    return Capacity(
        requests_per_second=slowest.requests_per_second,
        within_slo=all(capacity.within_slo for capacity in known),
        derivation=slowest.derivation + (f", the slowest of {among}" if among else ""),
    )


def capacity_warnings(deployment: Deployment, variant: Variant) -> Iterator[str]:
    """What is not known or not kept, one sentence each, with the way out."""
    scaled = "nothing scales on its requests"
    if deployment.is_component:
        scaled = "every request at once asks for a copy of its own"
    for pool, capacity in _target_capacities(deployment, variant):
        where = (
            f"Endpoint '{deployment.name}', variant {variant.name}, on {pool.instance_type.name}"
        )
        if isinstance(capacity, str):
            yield (f"{where}: {capacity}, so its capacity is not known and {scaled}.")
        elif not capacity.within_slo:
            yield f"{where} cannot keep its latency SLO: {capacity.derivation}."


def _target_capacities(
    deployment: Deployment, variant: Variant
) -> Iterator[tuple[Pool, Capacity | str]]:
    """Every engine on every instance type of a variant."""
    for pool in variant.pools:
        for target in pool.targets:
            yield pool, _target_capacity(deployment, target)


def _target_capacity(deployment: Deployment, target: Target) -> Capacity | str:
    """What was served counts before what the engine alone did; or why neither is known.

    At a looser SLO it still is the most that can be believed.
    """
    served, slo = served_capacity(deployment, target), deployment.endpoint.latency_slo_ms
    if served is None:
        return engine_capacity(deployment, target)
    rate = served.requests_per_second
    if slo is None or served.slo_ms <= slo:
        text = f"{target.model.name}: {rate:.10g} requests/s served ({measurement_text(served)})"
        return Capacity(requests_per_second=rate, within_slo=True, derivation=text)
    alone = engine_capacity(deployment, target)
    if isinstance(alone, str):
        return alone
    rows = served.rows_per_request
    text = alone.derivation if rows == 1 else f"{alone.derivation} / {rows} rows of a request"
    return replace(
        alone,
        requests_per_second=min(alone.requests_per_second / rows, rate),
        derivation=f"{text}; at most the {rate:.10g} requests/s served"
        f" ({measurement_text(served)})",
    )


def served_capacity(deployment: Deployment, target: Target) -> ServedCapacity | None:
    """The load test of an instance of the target's type with exactly this engine and server.

    None: not measured.
    """
    entry = target.lock_entry
    if entry is None or entry.capacity is None or entry.manifest.engine_key != target.engine_key:
        return None
    served = entry.capacity.get(target.instance_type.name)
    server = deployment.variant_of(target).server
    return served if served is not None and served.server == server else None


def measurement_text(served: ServedCapacity) -> str:
    """How a load test measured a capacity."""
    rows = "" if served.rows_per_request == 1 else f", {served.rows_per_request} rows each"
    return (
        f"{served.tool}, {served.endpoint} on {served.instance_type}, {served.server}{rows}, "
        f"p{served.percentile:g} within {served.slo_ms:g} ms, {served.date}"
    )


def engine_capacity(deployment: Deployment, target: Target) -> Capacity | str:
    """The rate of the best batch size within the SLO on every GPU that the server uses.

    A sentence's part when it is not known. Of it counts what requests that come at random leave
    (`counted_share`). Where no batch size keeps the SLO it is a quarter of the lowest rate
    measured, and `within_slo` is false.
    """
    best = best_record(deployment, target)
    if isinstance(best, str):
        return best
    gpus = gpus_used(deployment.variant_of(target), target.instance_type)
    share = Decimal(str(share_of(deployment, target, best)))
    return Capacity(
        requests_per_second=float(Decimal(str(best.rows_per_second)) * max(1, gpus) * share),
        within_slo=keeps_slo(deployment, target, best),
        derivation=_derivation(deployment, target, best, gpus),
    )


def best_record(deployment: Deployment, target: Target) -> BenchmarkRecord | str:
    """The benchmark of the batch size with the highest rate within the SLO, else the lowest.

    A sentence says why there is none.
    """
    entry, model = target.lock_entry, target.model.name
    if entry is None:
        return f"model '{model}' is not built"
    manifest, instance = entry.manifest, target.instance_type
    records, again = _records_as_served(manifest), f"`roundhouse bench {deployment.name} --record`"
    if target.runtime in BASELINE_RUNTIMES and (instance.is_gpu or not records):
        return (
            f"the engine of model '{model}' was not timed by {target.runtime}; measure it on"
            f" {instance.name} ({again})"
        )
    if not records:
        return f"the lock of model '{model}' has no benchmark of its own engine; build it again"
    if not was_measured_on(manifest.builder.gpu, instance):
        return (
            f"the engine of model '{model}' was measured on {manifest.builder.gpu}, and"
            f" {instance.name} has {instance.gpu}; measure it there ({again})"
        )
    kept = [record for record in records if keeps_slo(deployment, target, record)]
    if not kept:
        return min(records, key=lambda record: record.rows_per_second)
    return max(kept, key=lambda item: item.rows_per_second * share_of(deployment, target, item))


def keeps_slo(deployment: Deployment, target: Target, record: BenchmarkRecord) -> bool:
    """Whether an answer at a record's batch size is within the endpoint's SLO, if it has one."""
    slo = deployment.endpoint.latency_slo_ms
    return slo is None or latency_ms(deployment, target, record.p99_ms) <= slo


def share_of(deployment: Deployment, target: Target, record: BenchmarkRecord) -> float:
    """The share of a record's rate that counts, above 0 to 1; 1 where no SLO is promised."""
    slo = deployment.endpoint.latency_slo_ms
    if slo is None:
        return 1.0
    if not keeps_slo(deployment, target, record):
        return LEAST_COUNTED
    left_ms = slo - queue_ms(deployment, target) - copies(deployment, target) * record.p99_ms
    return counted_share(record.batch, left_ms / record.p99_ms)


def gpus_used(served: Deployment | Variant, instance: InstanceType) -> int:
    """GPUs that the server uses: all with Triton, the first alone with the Python server."""
    return instance.gpu_count if served.server == "triton" else min(1, instance.gpu_count)


def latency_ms(deployment: Deployment, target: Target, p99_ms: float) -> float:
    """The longest that an answer takes when the engine never rests, in milliseconds.

    A request waits out the queue delay and the batch under way, then runs in its own. Copies of the
    engine on one GPU share it: a batch takes as many times as long as there are copies, and one of
    them ends every `p99_ms`.
    """
    return queue_ms(deployment, target) + p99_ms + copies(deployment, target) * p99_ms


def queue_ms(deployment: Deployment, target: Target) -> float:
    """How long a request may wait for others; the Python server takes whatever waits, at once."""
    if deployment.variant_of(target).server != "triton":
        return 0.0
    return target.model.serving.dynamic_batching.max_queue_delay_us / 1000


def copies(deployment: Deployment, target: Target) -> int:
    """Batches that run at once on one GPU; a second one of the Python server mostly copies."""
    serving = target.model.serving
    if deployment.variant_of(target).server == "triton":
        return serving.instances_per_gpu
    return 1 if serving.slots is None else serving.slots


def was_measured_on(gpu: str | None, instance: InstanceType) -> bool:
    """Whether a GPU by the driver's name ("NVIDIA A10G") is the instance type's ("A10G").

    One compute capability has several.
    """
    return gpu is None or instance.gpu is None or is_gpu_model(gpu, instance.gpu)


def _records_as_served(manifest: Manifest) -> Sequence[BenchmarkRecord]:
    """The engine's records at its longest tuned sequence, else at the longest measured one.

    The server forms no batch above its maximum, so records of larger ones do not count.
    """
    served = (manifest.runtime.name, manifest.precision)
    own = [
        record
        for record in manifest.benchmark
        if (record.runtime, record.precision) == served and record.batch <= manifest.max_batch_size
    ]
    profiles = [profile.sequence for profile in manifest.optimization_profiles]
    tuned = {sequence[1] for sequence in profiles if sequence is not None}
    lengths = {record.sequence for record in own if record.sequence is not None}
    longest = max(lengths & tuned, default=max(lengths, default=None))
    return [record for record in own if record.sequence == longest]


def _derivation(deployment: Deployment, target: Target, record: BenchmarkRecord, gpus: int) -> str:
    slo, several = deployment.endpoint.latency_slo_ms, copies(deployment, target)
    tokens = "" if record.sequence is None else f" of {record.sequence} tokens"
    parts = [f"batch {record.batch}{tokens}", f"p99 {record.p99_ms:g} ms"]
    counted, share = "", share_of(deployment, target, record)
    if slo is None:
        parts.append("no latency SLO")
    else:
        shared = "" if several == 1 else f" for each of {several} copies that share the GPU"
        busy_ms = latency_ms(deployment, target, record.p99_ms)
        kept = "within" if keeps_slo(deployment, target, record) else "OVER"
        parts.append(f"{busy_ms:g} ms behind the batch under way{shared}")
        parts.append(f"{kept} the SLO of {slo:g} ms")
    if not target.instance_type.is_gpu and target.lock_entry is not None:
        # A CPU has no name to compare, and the machine that built may have other cores than the one
        # that serves.
        parts.append(f"on its builder's CPU ({target.lock_entry.manifest.builder.machine})")
    times = f" x {gpus} GPUs" if gpus > 1 else ""
    if share != 1:
        counted = f" x {share:g}, so that few requests wait"
        if keeps_slo(deployment, target, record):
            pile = f"pile up behind batches of {record.batch}"
            counted = f" x {share:g}, as requests come at random and {pile}"
    return (
        f"{target.model.name}: {record.rows_per_second:.10g} rows/s measured (the engine alone:"
        f" {record.runtime} {record.precision}, {', '.join(parts)}){times}{counted}"
    )


def counted_share(batch: int, waits: float) -> float:
    """Share of an engine's rate at which Poisson arrivals keep the SLO, LEAST_COUNTED to 1.

    `waits`: how many runs of a batch of this size the SLO lets a request wait, before its own. One
    from batch 8 on.
    """
    exact = min(1.0, max(LEAST_COUNTED, bearable_load(batch, waits) / USUAL_SHARE))
    return math.floor(exact * 1000) / 1000


def bearable_load(batch: int, waits: float) -> float:
    """The load, 0 to 1, at which one request in BEYOND waits longer; batches take equally long.

    Lundberg's exponent: the chance of more than k requests ahead falls as exp(-theta k) where load
    x (e^theta - 1) = theta. A request that finds a batch under way has half of it behind itself on
    average, which one that is alone in its batch has not.
    """
    ahead = max(waits, batch * (waits - 0.5))
    theta = math.log(BEYOND) / ahead if ahead > 0 else math.inf
    return 0.0 if theta > math.log(2**63) else theta / math.expm1(theta)
