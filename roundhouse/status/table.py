"""The tables of `roundhouse status` on endpoints: one row a variant, and the derivation of every
number below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from roundhouse.status.endpoints import Cost, EndpointState, MemoryState, VariantState
from roundhouse.status.state import NOT_UP, State
from stacks.scaling.targets import TargetValue

UNKNOWN = "unknown"
COLUMNS = (
    "Endpoint",
    "Variant",
    "Instances",
    "Capacity of one",
    "Scales out above",
    "By the clock",
    "USD/h",
)


def state_table(state: State) -> Table:
    """One row per model."""
    table = Table(title=f"Environment {state.environment}", title_justify="left")
    for column in ("Model", "Engine", "Lock", "Archive", "Endpoint"):
        table.add_column(column, overflow="fold")
    for each in state.engines:
        lock = each.lock if each.precision is None else f"{each.lock}: {each.precision}"
        endpoint = f"{each.endpoint} ({each.instance_type}): {each.endpoint_status}"
        table.add_row(each.model, each.engine_key, lock, each.archive, endpoint)
    return table


def unknown_lines(state: State) -> Iterator[str]:
    """Each reason why something is unknown, once; the line on the local cloud says its own."""
    found = {
        each.sentence.partition(": ")[2]: each.sentence
        for each in reversed(state.unknown)
        if each.reason != NOT_UP
    }
    yield from (f"Unknown, because: {sentence}" for sentence in reversed(found.values()))


def endpoints_table(endpoints: Sequence[EndpointState]) -> Table:
    """One row per variant: where it runs, what one instance answers, when there is one more, what
    it costs.
    """
    table = Table(title="Endpoints by their files and locks", title_justify="left")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for endpoint in endpoints:
        for variant in endpoint.variants:
            name = variant.name if variant.role == "variant" else f"{variant.name} (shadow)"
            capacity = (
                UNKNOWN
                if variant.capacity is None
                else f"{round(variant.capacity.requests_per_second, 1):.10g} requests/s"
            )
            cells = (
                endpoint.name,
                name,
                _instances(variant),
                capacity,
                _targets(variant),
                "\n".join(variant.schedule),
            )
            table.add_row(*map(escape, cells), _cost(variant.usd_per_hour))
    return table


def endpoint_lines(endpoints: Sequence[EndpointState]) -> Iterator[str]:
    """How each number was derived, what is not known, and how models share memory."""
    for endpoint in endpoints:
        for variant in endpoint.variants:
            yield from (
                f"{endpoint.name}, {variant.name}: {line}" for line in _derivations(variant)
            )
            yield from variant.unknown
        for memory in endpoint.memory:
            yield f"{endpoint.name}, memory of {memory.instance_type}: {_memory(memory)}"
            yield from memory.notes
            if memory.change is not None and not endpoint.faults:
                yield memory.change
        yield from endpoint.faults


def _derivations(variant: VariantState) -> Iterator[str]:
    targets = (
        ("invocations", variant.invocations_target),
        ("backlog", variant.backlog_target),
        ("GPU utilization", variant.gpu_target),
    )
    if variant.capacity is not None and not any(target is not None for _, target in targets[:2]):
        yield f"capacity: {variant.capacity.derivation}"
    yield from (f"{name}: {target.derivation}" for name, target in targets if target is not None)


def _instances(variant: VariantState) -> str:
    count = (
        f"{variant.fewest}"
        if variant.fewest == variant.most
        else f"{variant.fewest} to {variant.most}"
    )
    return f"{count} x {', else '.join(variant.instance_types)}"


def _targets(variant: VariantState) -> str:
    found = (
        _target(variant.invocations_target, "invocations/min"),
        _target(variant.backlog_target, "waiting"),
        _target(variant.gpu_target, "% GPU"),
    )
    said = [each for each in found if each]
    return "\n".join(said) if said else "fixed" if variant.fewest == variant.most else "nothing"


def _target(target: TargetValue | None, unit: str) -> str:
    return "" if target is None else f"{target.value:.10g} {unit}"


def _cost(cost: Cost) -> str:
    if cost.least is None or cost.most is None:
        return UNKNOWN
    return (
        f"{cost.least:.2f}" if cost.least == cost.most else f"{cost.least:.2f} to {cost.most:.2f}"
    )


def _memory(memory: MemoryState) -> str:
    missing = f"; not built: {', '.join(memory.not_built)}" if memory.not_built else ""
    if memory.room_mib is None:
        return f"{UNKNOWN}{missing}"
    room = f"{memory.room_mib:.0f} MiB of {memory.kind} for models"
    if not memory.models:
        return f"{room}{missing}"
    models = ", ".join(f"{name} {mib:.0f}" for name, mib in memory.models.items())
    outcome = "all fit" if memory.fits else f"at least {memory.evicted} evicted at any time"
    return f"{room}, {memory.taken_mib:.0f} taken ({models}): {outcome}{missing}"
