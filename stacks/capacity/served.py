"""What the lock says an instance answered behind its endpoint, where that was measured as it is
deployed now.
"""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.deployment import Deployment, Target
from onboarding.lock import ServedCapacity
from stacks.capacity.engine import EngineRate


@dataclass(frozen=True, kw_only=True)
class Served:
    """A load test's outcome that fits a deployment; `told` says how it was measured."""

    requests_per_second: float
    rows_per_request: int
    slo_ms: float
    gpu_utilization_percent: float | None
    told: str


def served(deployment: Deployment, target: Target) -> Served | None:
    """What an instance of the target's type answered with exactly this engine, on the same server;
    None: not measured.
    """
    entry = target.lock_entry
    if entry is None or entry.capacity is None or entry.manifest.engine_key != target.engine_key:
        return None
    found = entry.capacity.get(target.instance_type.name)
    if found is None or found.server != deployment.server:
        return None
    return Served(
        requests_per_second=found.requests_per_second,
        rows_per_request=found.rows_per_request,
        slo_ms=found.slo_ms,
        gpu_utilization_percent=found.gpu_utilization_percent,
        told=_told(found),
    )


def capped(rate: EngineRate, measured: Served) -> EngineRate:
    """The engine's own rate at a stricter SLO, in requests as large as those served, and never more
    than was served.
    """
    rows = measured.rows_per_request
    least = min(rate.requests_per_second / rows, measured.requests_per_second)
    alone = rate.derivation if rows == 1 else f"{rate.derivation} / {rows} rows of a request"
    bound = f"at most the {measured.requests_per_second:.10g} requests/s served ({measured.told})"
    return EngineRate(
        requests_per_second=least, within_slo=rate.within_slo, derivation=f"{alone}; {bound}"
    )


def _told(found: ServedCapacity) -> str:
    rows = "" if found.rows_per_request == 1 else f", {found.rows_per_request} rows each"
    return (
        f"{found.tool}, {found.endpoint} on {found.instance_type}, {found.server}{rows}, "
        f"p{found.percentile:g} within {found.slo_ms:g} ms, {found.date}"
    )
