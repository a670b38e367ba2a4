"""Tables of a dashboard's text widgets, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onboarding import names
from onboarding.deployment import Deployment, Pool, Target, Variant
from stacks.alarms.load_alarms import measured_per_minute
from stacks.capacity.engine import best_record
from stacks.capacity.variant import variant_capacity
from stacks.dashboards.prices import instance_prices
from stacks.scaling.targets import backlog_target, invocations_target
from stacks.scaling.variants import fewest, most, scaled_variants

KEY_DIGITS = 12
PROMISES = (
    "Endpoint",
    "Variant",
    "Instance type",
    "SLO, ms",
    "Measured, requests/min each",
    "Scales at",
    "USD/h each",
)
COUNTS = ("Instances", "USD/h")
DEPLOYED = ("Variant", "Model", "Precision", "Instance type", "Engine key", "p99 measured", "Built")


def promises(deployments: Sequence[Deployment], *, counts: bool = False) -> str:
    """What an instance of each variant promises and costs; with `counts` how many there may be, and
    what those cost.
    """
    heads = (*PROMISES, *(COUNTS if counts else ()))
    variants = [(each, variant) for each in deployments for variant in each.variants]
    return _table(
        heads, [(*_promise(*each), *(_counts(each[1]) if counts else ())) for each in variants]
    )


def deployed(deployment: Deployment) -> str:
    """The engines that the present stack serves."""
    return _table(DEPLOYED, list(_engines(deployment)))


def _promise(deployment: Deployment, variant: Variant) -> tuple[str, ...]:
    capacity, slo = variant_capacity(deployment, variant), deployment.endpoint.latency_slo_ms
    aim = (invocations_target if deployment.endpoint.asynchronous is None else backlog_target)(
        deployment, variant
    )
    word = "" if deployment.endpoint.asynchronous is None else " waiting"
    prices = instance_prices(variant)
    return (
        names.endpoint_name(deployment.environment, deployment.name),
        _role(variant),
        ", ".join(pool.instance_type.name for pool in variant.pools),
        "none" if slo is None else f"{slo:g}",
        "not measured"
        if capacity is None
        else f"{measured_per_minute(capacity.requests_per_second):,.10g}",
        "nothing"
        if aim is None or variant not in scaled_variants(deployment)
        else f"{aim.value:,.10g}{word}",
        "not known" if prices is None else _range(prices.least, prices.most, ".2f"),
    )


def _counts(variant: Variant) -> tuple[str, ...]:
    low, high, prices = fewest(variant), most(variant), instance_prices(variant)
    return _range(low, high), "not known" if prices is None else _range(
        low * prices.least, high * prices.most, ".2f"
    )


def _role(variant: Variant) -> str:
    return variant.name if variant.role == "variant" else f"{variant.name} (shadow)"


def _range(low: float, high: float, form: str = "g") -> str:
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def _engines(deployment: Deployment) -> Iterator[tuple[str, ...]]:
    for variant in deployment.variants:
        for pool in variant.pools:
            for target in pool.targets:
                yield _engine(deployment, variant, pool, target)


def _engine(
    deployment: Deployment, variant: Variant, pool: Pool, target: Target
) -> tuple[str, ...]:
    manifest = None if target.lock_entry is None else target.lock_entry.manifest
    record = best_record(deployment, target)
    return (
        _role(variant),
        target.model.name,
        "not built" if manifest is None else manifest.precision,
        pool.instance_type.name,
        target.engine_key[:KEY_DIGITS],
        "not measured there"
        if isinstance(record, str)
        else f"{record.p99_ms:g} ms, batch {record.batch}",
        "" if manifest is None else manifest.builder.built_at,
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
