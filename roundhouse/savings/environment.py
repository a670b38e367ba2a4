"""The investments of an environment: its account against the files of the work tree."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from onboarding.deployment import Deployment, Variant
from onboarding.prices import price
from roundhouse.compare.sizing import size
from roundhouse.deploy.builds.requests import EngineRequest
from roundhouse.errors import AwsError, NotReadyError, RoundhouseError, UsageError
from roundhouse.gitops.build_estimates import build_preview
from roundhouse.report import table
from roundhouse.savings.investment import Fleet, Instances, Investment
from roundhouse.session import Session
from roundhouse.status.live import live_endpoint
from stacks.capacity.variant import variant_capacity
from stacks.scaling.targets import fewest

COLUMNS = (
    "endpoint", "runs", "USD/month", "proposed", "USD/month ", "saving", "builds, USD",
    "break-even, days",
)  # fmt: skip
RIGHT = ("USD/month", "USD/month ", "saving", "builds, USD", "break-even, days")
UNKNOWN, NEVER = "unknown", "never"


def investments(session: Session, demand: float | None) -> tuple[Investment, ...]:
    """Return one investment for each endpoint of the session.

    `demand`: requests a second; None: as many instances as the file's lowest count. Raises
    UsageError for a demand of several endpoints, AwsError where the account is not reached.
    """
    deployments = session.deployments()
    if demand is not None and len(deployments) != 1:
        names = ", ".join(deployment.name for deployment in deployments)
        raise UsageError(
            f"--demand: is of one endpoint, and {session.environment.name} has {names}; name one "
            "with --endpoint."
        )
    return tuple(_investment(session, deployment, demand) for deployment in deployments)


def _investment(session: Session, deployment: Deployment, demand: float | None) -> Investment:
    present, note = None, ""
    try:
        present = present_fleet(session, deployment)
    except AwsError as error:
        if not error.is_answer:
            raise
        note = str(error)
    return Investment(
        name=deployment.name,
        present=present,
        proposed=proposed_fleet(deployment, demand),
        build_usd=build_cost(session, deployment),
        note=note,
    )


def present_fleet(session: Session, deployment: Deployment) -> Fleet | None:
    """Return what runs; None where nothing is deployed. Raises AwsError."""
    live = live_endpoint(session.clients, deployment, {})
    if live is None:
        return None
    region = session.environment.region
    return Fleet(
        groups=tuple(
            Instances(
                instance_type=variant.instance_type or UNKNOWN,
                count=variant.desired_instances,
                usd_an_hour=price(region, "hosting", variant.instance_type),
            )
            for variant in live.variants
        ),
        origin="the instances that the endpoint wants now",
    )


def proposed_fleet(deployment: Deployment, demand: float | None) -> Fleet:
    """Return the instances by the files: for a demand, with one of them lost, or the fewest."""
    region, variants = deployment.environment.region, deployment.variants
    if demand is None:
        counts: list[int | None] = [fewest(variant) for variant in variants]
        origin = "the files' lowest count"
    else:
        counts = [_count(deployment, variant, demand) for variant in variants]
        is_known = None not in counts
        origin = (
            f"{demand:g} requests/s, with one instance lost"
            if is_known
            else "not known: no capacity was measured (`roundhouse bench --record`), or several "
            "variants share the demand"
        )
    groups = tuple(
        Instances(
            instance_type=variant.instance_type.name,
            count=count,
            usd_an_hour=price(region, "hosting", variant.instance_type.name),
        )
        for variant, count in zip(variants, counts, strict=True)
    )
    return Fleet(groups=groups, origin=origin)


def _count(deployment: Deployment, variant: Variant, demand: float) -> int | None:
    """Return the instances of a demand; None where its share or the capacity is not known."""
    capacity = variant_capacity(deployment, variant)
    if capacity is None or len(deployment.variants) > 1 or not capacity.requests_per_second:
        return None
    factor = variant.scaling.safety_factor
    rate = capacity.requests_per_second
    return size(demand, rate, price=None, safety_factor=factor).instances


def build_cost(session: Session, deployment: Deployment) -> float | None:
    """Return what the missing engines cost to build, by their models' last builds.

    None where one was never timed, or has no price.
    """
    requests = (
        EngineRequest(deployment=deployment, target=target, why="no lock has it")
        for target in deployment.missing
    )
    costs = [build_preview(session, request).usd for request in requests]
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 2) if len(known) == len(costs) else None


def require_a_saving(found: Sequence[Investment], region: str) -> None:
    """Raise RoundhouseError, with what is missing, where something runs and no saving is known."""
    notes = [item.note for item in found if item.note]
    running = [item for item in found if item.present is not None]
    if any(item.saving_a_month is not None for item in running) or not (notes or running):
        return
    if notes:
        raise NotReadyError(f"No saving is known. {notes[0]}")
    fleets = [fleet for item in running for fleet in (item.present, item.proposed) if fleet]
    groups = [group for fleet in fleets for group in fleet.groups if group.usd_a_month is None]
    unpriced = sorted({group.instance_type for group in groups if group.usd_an_hour is None})
    missing = []
    if unpriced:
        missing.append(f"{region} has no price of {', '.join(unpriced)} (`make prices` reads them)")
    if any(group.count is None for group in groups):
        missing.append(f"the instances of the demand are {running[0].proposed.origin}")
    raise RoundhouseError(f"No saving is known: {'; '.join(missing)}.")


def savings_table(found: Sequence[Investment]) -> Table:
    """Return a table with one row per endpoint."""
    return table(COLUMNS, map(_cells, found), right=RIGHT, title="Return on investment")


def _cells(item: Investment) -> tuple[str, ...]:
    days = item.break_even_days
    saving = item.saving_a_month
    is_never = saving is not None and saving <= 0
    present = item.present
    return (
        item.name,
        (UNKNOWN if item.note else "not deployed") if present is None else str(present),
        UNKNOWN if present is None else _usd(present.usd_a_month),
        str(item.proposed),
        _usd(item.proposed.usd_a_month),
        _usd(saving),
        _usd(item.build_usd),
        NEVER if is_never else UNKNOWN if days is None else f"{days:,.1f}",
    )


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def savings_lines(found: Sequence[Investment]) -> list[str]:
    """Return each result in a sentence, and where the proposed count comes from."""
    return [
        f"{item.name}: {item.outcome}. Proposed: {item.proposed.origin}."
        + (f" {item.note}" if item.note else "")
        for item in found
    ]
