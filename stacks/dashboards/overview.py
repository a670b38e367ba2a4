"""The head of a dashboard: what it shows, what is promised and deployed, and the alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onboarding import names
from onboarding.deployment import Deployment, Target, Variant
from onboarding.metrics import Alarm, AlarmStates, Text
from stacks.alarms.alarm import alarm_arn
from stacks.alarms.request_alarms import measured_per_minute
from stacks.capacity.engine import best_record
from stacks.capacity.variant import variant_capacity
from stacks.dashboards.lines import COLORS, instance_prices
from stacks.scaling.targets import backlog_target, fewest, invocations_target, most, scaled_variants

MOST_LISTED = 500
"""Alarms of all endpoints, in widgets of a hundred."""
GRAVEST = (
    "no-instances",
    "server-errors",
    "latency",
    "no-answers",
    "client-errors",
    "gpu-memory",
    "host-memory",
    "disk",
    "oldest-request",
    "saturation",
    "drift",
    "cache-hits",
    "loading-wait",
    "early-5xx",
    "early-4xx",
    "ceiling",
)
"""Kinds of alarms, the gravest first."""
LEAST_HEIGHT, MOST_HEIGHT, ROWS_A_UNIT = 4, 10, 2
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
AlarmPairs = list[tuple[Deployment, Alarm]]


def overview(
    deployments: Sequence[Deployment], alarms: Sequence[Sequence[Alarm]], *, drawn: bool
) -> list[AlarmStates | Text]:
    """`alarms` are those of each endpoint. `drawn`: lines of every endpoint are in the graphs."""
    pairs = [
        (deployment, alarm)
        for deployment, own in zip(deployments, alarms, strict=True)
        for alarm in own
    ]
    listed = listed_alarms(pairs)
    arns = [alarm_arn(deployment, alarm) for deployment, alarm in listed]
    left_out = len(pairs) - len(listed)
    rows = sum(len(deployment.variants) for deployment in deployments) if drawn else 0
    height = min(MOST_HEIGHT, LEAST_HEIGHT + rows // ROWS_A_UNIT)
    explanation = _explanation_text(deployments, drawn, left_out)
    return [
        Text(markdown=explanation, width=12, height=height),
        AlarmStates(title="In alarm, of all endpoints", arns=arns, height=height, in_alarm=True),
    ]


def listed_alarms(pairs: AlarmPairs) -> AlarmPairs:
    """Every alarm; of more than a dashboard lists, the gravest."""
    if len(pairs) <= MOST_LISTED:
        return pairs
    return sorted(pairs, key=lambda pair: gravity(pair[1].kind))[:MOST_LISTED]


def gravity(kind: str) -> int:
    """Return the place of a kind among the gravest; alarms of the file's own limits come last."""
    return GRAVEST.index(kind) if kind in GRAVEST else len(GRAVEST)


def _explanation_text(deployments: Sequence[Deployment], drawn: bool, left_out: int) -> str:
    """Says numbers of endpoints only where they are drawn.

    Otherwise a change of one endpoint changes its own stack alone.
    """
    environment = deployments[0].environment.name
    paragraphs = [
        f"# {environment}: {len(deployments)} endpoint{'s' if len(deployments) > 1 else ''}",
        f"Choose one above. {COLORS}",
    ]
    if not drawn:
        paragraphs.append(
            "So many endpoints' lines would flatten every graph, so none are drawn: graphs"
            " *against* something follow the selector, and an endpoint with `dashboard: true` has"
            f" lines of its own. `roundhouse status --env {environment}` tells every endpoint's"
            " SLO, capacity, target and cost."
        )
    if left_out:
        paragraphs.append(
            f"Not listed beside: the {left_out} least grave alarms; the selected endpoint's are"
            " below."
        )
    return "\n\n".join([*paragraphs, *([promises(deployments)] if drawn else [])])


def promises(deployments: Sequence[Deployment], *, counts: bool = False) -> str:
    """A Markdown table of what an instance of each variant promises and costs.

    With `counts` how many there may be, and what those cost.
    """
    rows = [
        (*_promise(deployment, variant), *(_counts(deployment, variant) if counts else ()))
        for deployment in deployments
        for variant in deployment.variants
    ]
    return _table((*PROMISES, *(COUNTS if counts else ())), rows)


def deployed(deployment: Deployment) -> str:
    """A Markdown table of the engines that the present stack serves."""
    return _table(DEPLOYED, list(_engines(deployment)))


def _promise(deployment: Deployment, variant: Variant) -> tuple[str, ...]:
    queued, slo = deployment.endpoint.asynchronous is not None, deployment.endpoint.latency_slo_ms
    capacity = variant_capacity(deployment, variant)
    prices = instance_prices(deployment, variant)
    target = (backlog_target if queued else invocations_target)(deployment, variant)
    measured, scales_at = "not measured", "nothing"
    if capacity is not None:
        measured = f"{measured_per_minute(capacity.requests_per_second):,.10g}"
    if target is not None and variant in scaled_variants(deployment):
        scales_at = f"{target.value:,.10g}{' waiting' if queued else ''}"
    return (
        names.endpoint_name(deployment.environment, deployment.name),
        _role(variant),
        ", ".join(pool.instance_type.name for pool in variant.pools),
        "none" if slo is None else f"{slo:g}",
        measured,
        scales_at,
        "not known" if prices is None else _range(prices.least, prices.most, ".2f"),
    )


def _counts(deployment: Deployment, variant: Variant) -> tuple[str, ...]:
    low, high, prices = fewest(variant), most(variant), instance_prices(deployment, variant)
    cost = "not known"
    if prices is not None:
        cost = _range(low * prices.least, high * prices.most, ".2f")
    return _range(low, high), cost


def _role(variant: Variant) -> str:
    return variant.name if variant.role == "variant" else f"{variant.name} (shadow)"


def _range(low: float, high: float, form: str = "g") -> str:
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def _engines(deployment: Deployment) -> Iterator[tuple[str, ...]]:
    for variant in deployment.variants:
        for pool in variant.pools:
            for target in pool.targets:
                model, precision, measured, built_at = _engine(deployment, target)
                key, instance = target.engine_key[:KEY_DIGITS], pool.instance_type.name
                yield _role(variant), model, precision, instance, key, measured, built_at


def _engine(deployment: Deployment, target: Target) -> tuple[str, str, str, str]:
    """Model, precision, measured latency and time of build."""
    record, measured = best_record(deployment, target), "not measured there"
    if not isinstance(record, str):
        measured = f"{record.p99_ms:g} ms, batch {record.batch}"
    if target.lock_entry is None:
        return target.model.name, "not built", measured, ""
    manifest = target.lock_entry.manifest
    return target.model.name, manifest.precision, measured, manifest.builder.built_at


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
