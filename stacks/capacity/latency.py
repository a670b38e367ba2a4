"""The latency that a variant should have by its engines' own benchmarks, and the one at which it
has drifted from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onboarding.deployment import Deployment, Target, Variant
from stacks.capacity.engine import best_record, latency_ms

DRIFT_FACTOR = 1.5


@dataclass(frozen=True, kw_only=True)
class ExpectedLatency:
    """The longest that an answer should take, p99, in milliseconds, and how that was derived."""

    milliseconds: float
    derivation: str


@dataclass(frozen=True, kw_only=True)
class DriftLimit:
    """Whole milliseconds, and how they were derived."""

    milliseconds: int
    derivation: str


def expected_latency(deployment: Deployment, variant: Variant) -> ExpectedLatency | None:
    """The slowest target's on the slowest instance type, behind the batch under way; None when one
    was not measured there.
    """
    found = [_of_target(deployment, target) for pool in variant.pools for target in pool.targets]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda each: each.milliseconds)


def drift_limit(deployment: Deployment, variant: Variant) -> DriftLimit | None:
    """Half as much again as expected, at most halfway from there to the SLO; None where nothing is
    expected within the SLO.
    """
    expected, slo = expected_latency(deployment, variant), deployment.endpoint.latency_slo_ms
    if expected is None:
        return None
    limit, told = (
        expected.milliseconds * DRIFT_FACTOR,
        f"{DRIFT_FACTOR:g} x what was expected of {expected.derivation}",
    )
    if slo is not None and (halfway := (expected.milliseconds + slo) / 2) < limit:
        limit, told = (
            halfway,
            f"halfway to the SLO of {slo:g} ms from what was expected of {expected.derivation}",
        )
    whole = math.ceil(limit)
    return (
        None
        if slo is not None and whole >= slo
        else DriftLimit(milliseconds=whole, derivation=told)
    )


def _of_target(deployment: Deployment, target: Target) -> ExpectedLatency | None:
    record = best_record(deployment, target)
    if isinstance(record, str):
        return None
    expected = latency_ms(deployment, target, record.p99_ms)
    shape = f"batch {record.batch}" + (
        "" if record.sequence is None else f" of {record.sequence} tokens"
    )
    told = f"{target.model.name} at {shape}, p99 measured {record.p99_ms:g} ms, {expected:g} ms behind the batch under way"
    return ExpectedLatency(milliseconds=expected, derivation=told)
