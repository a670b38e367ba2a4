"""The tables of `roundhouse status`, and the lines below each: what its numbers rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roundhouse.status.live import LiveEndpoint
from roundhouse.status.state import State
from roundhouse.table import Table, table


def state_table(state: State) -> Table:
    """Return a table with one row per engine and checkpoint."""
    rows = (
        (
            item.model,
            item.key,
            item.lock if item.form is None else f"{item.lock}: {item.form}",
            item.archive,
            f"{item.endpoint} ({item.instance_type}): {item.endpoint_status}",
        )
        for item in state.artifacts
    )
    columns = ("Model", "Engine or checkpoint", "Lock", "Archive", "Endpoint")
    return table(columns, rows, title=f"Environment {state.environment}")


def live_table(live: Sequence[LiveEndpoint]) -> Table:
    """Return a table with one row per running variant."""
    rows = (
        (
            f"{endpoint.endpoint}: {endpoint.status}",
            endpoint.config,
            f"{variant.name}: "
            + _running(variant.instances, variant.desired_instances, variant.instance_type),
            ", ".join(variant.serves) or ("components" if endpoint.components else "target models"),
            ", ".join(image.rpartition("/")[2] for image in variant.images),
            "\n".join(endpoint.alarms) or "none",
        )
        for endpoint in live
        for variant in endpoint.variants
    )
    columns = ("Endpoint", "Endpoint config", "Instances", "Serves", "Image", "In ALARM")
    return table(columns, rows, title="Endpoints as they run")


def components_table(live: Sequence[LiveEndpoint]) -> Table:
    """Return a table with one row per inference component."""
    rows = (
        (
            item.name if item.base is None else f"{item.name} (adapter of {item.base})",
            "scaled to zero" if item.is_zero else item.status,
            _running(item.copies, item.desired_copies),
            item.serves or "",
        )
        for endpoint in live
        for item in endpoint.components
    )
    columns = ("Inference component", "State", "Copies", "Serves")
    return table(columns, rows, title="Inference components as they run")


def live_lines(live: Sequence[LiveEndpoint]) -> Iterator[str]:
    """Yield why endpoints failed, when components changed, and what is scaled to zero."""
    for endpoint in live:
        if endpoint.failure_reason:
            yield f"{endpoint.endpoint}: {endpoint.failure_reason}"
        for component in endpoint.components:
            reason = component.failure_reason
            why = f": {reason.rstrip('.')}" if reason else ""
            yield f"{component.name}: {component.status}, changed {component.changed}{why}."
            if component.is_zero:
                yield f"{component.name}: no copy runs; the next request fails and asks for one."


def _running(current: int, desired: int, instance_type: str = "") -> str:
    count = f"{desired}" if current == desired else f"{current} of {desired} wanted"
    return f"{count} x {instance_type}" if instance_type else count
