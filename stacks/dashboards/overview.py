"""The head of the environment's dashboard: what it shows, and the alarms of all endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from onboarding import names
from onboarding.deployment import Deployment, Pool, Target, Variant
from stacks.alarms.alarm import Alarm, alarm_arn
from stacks.alarms.request_alarms import measured_per_minute
from stacks.capacity.engine import best_record
from stacks.capacity.variant import variant_capacity
from stacks.dashboards.lines import COLORS, instance_prices
from stacks.dashboards.widget import Widget, alarm_states, text
from stacks.scaling.targets import backlog_target, fewest, invocations_target, most, scaled_variants

MOST_LISTED = 500
"""Alarms of all endpoints, in widgets of a hundred."""
GRAVEST = (
    "no-instances", "server-errors", "latency", "no-answers",
    "client-errors", "gpu-memory", "host-memory",
    "disk", "oldest-request", "saturation", "drift", "cache-hits", "loading-wait", "early-5xx",
    "early-4xx", "ceiling",
)  # fmt: skip
"""Kinds of alarms, the gravest first."""
LEAST_HEIGHT, MOST_HEIGHT, ROWS_A_UNIT = 4, 10, 2
Found = list[tuple[Deployment, Alarm]]


def overview(
    deployments: Sequence[Deployment], alarms: Sequence[Sequence[Alarm]], *, drawn: bool
) -> list[Widget]:
    """`alarms` are those of each endpoint. `drawn`: lines of every endpoint are in the graphs."""
    found = [(each, alarm) for each, own in zip(deployments, alarms, strict=True) for alarm in own]
    listed = listed_alarms(found)
    arns = [alarm_arn(each, alarm.kind, alarm.variant) for each, alarm in listed]
    left_out = sorted(
        {alarm.kind for _, alarm in found} - {alarm.kind for _, alarm in listed}, key=GRAVEST.index
    )
    rows = sum(len(deployment.variants) for deployment in deployments) if drawn else 0
    height = min(MOST_HEIGHT, LEAST_HEIGHT + rows // ROWS_A_UNIT)
    states = alarm_states("In alarm, of all endpoints", arns, height=height, states=["ALARM"])
    return [text(_explanation_text(deployments, drawn, left_out), width=12, height=height), *states]


def listed_alarms(found: Found) -> Found:
    """Every alarm of the gravest kinds, whole kinds while there is room.

    Of the very gravest as many as there is room for.
    """
    counts, kept, available = Counter(alarm.kind for _, alarm in found), set[str](), MOST_LISTED
    for kind in sorted(counts, key=GRAVEST.index):
        if counts[kind] > available:
            break
        kept.add(kind)
        available -= counts[kind]
    if not kept:
        kept.add(min(counts, key=GRAVEST.index))
    return [pair for pair in found if pair[1].kind in kept][:MOST_LISTED]


def _explanation_text(
    deployments: Sequence[Deployment], drawn: bool, left_out: Sequence[str]
) -> str:
    """Says numbers of endpoints only where they are drawn.

    Otherwise a change of one endpoint changes its own stack alone.
    """
    environment = deployments[0].environment.name
    lines = [
        f"# {environment}: {len(deployments)} endpoint{'s' if len(deployments) > 1 else ''}",
        f"Choose one above. {COLORS}",
    ]
    if not drawn:
        lines.append(
            "So many endpoints' lines would flatten every graph, so none are drawn: graphs"
            " *against* something follow the selector, and an endpoint with `dashboard: true` has"
            f" lines of its own. `roundhouse status --env {environment}` tells every endpoint's"
            " SLO, capacity, target and cost."
        )
    if left_out:
        lines.append(
            f"Not listed beside: alarms of the kinds {', '.join(left_out)}; the selected endpoint's"
            " are below."
        )
    return "\n\n".join([*lines, *([promises(deployments)] if drawn else [])])


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
    """What an instance of each variant promises and costs.

    With `counts` how many there may be, and what those cost.
    """
    heads = (*PROMISES, *(COUNTS if counts else ()))
    variants = [
        (deployment, variant) for deployment in deployments for variant in deployment.variants
    ]
    return _table(
        heads, [(*_promise(*item), *(_counts(item[1]) if counts else ())) for item in variants]
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
        (
            "not measured"
            if capacity is None
            else f"{measured_per_minute(capacity.requests_per_second):,.10g}"
        ),
        (
            "nothing"
            if aim is None or variant not in scaled_variants(deployment)
            else f"{aim.value:,.10g}{word}"
        ),
        "not known" if prices is None else _range(prices.least, prices.most, ".2f"),
    )


def _counts(variant: Variant) -> tuple[str, ...]:
    low, high, prices = fewest(variant), most(variant), instance_prices(variant)
    return _range(low, high), (
        "not known" if prices is None else _range(low * prices.least, high * prices.most, ".2f")
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
        (
            "not measured there"
            if isinstance(record, str)
            else f"{record.p99_ms:g} ms, batch {record.batch}"
        ),
        "" if manifest is None else manifest.builder.built_at,
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
