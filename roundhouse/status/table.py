"""The tables of `roundhouse status` on endpoints.

One row a variant, and the derivation of every number below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from roundhouse.money import UNKNOWN, usd
from roundhouse.report import table
from roundhouse.status.endpoints import Cost, EndpointState, MemoryState, VariantState
from roundhouse.status.live import LiveEndpoint, LiveVariant
from roundhouse.status.state import NOT_UP, State
from stacks.scaling.targets import TargetValue

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
    """Return a table with one row per model."""
    rows = (
        (
            engine.model,
            engine.engine_key,
            engine.lock if engine.precision is None else f"{engine.lock}: {engine.precision}",
            engine.archive,
            f"{engine.endpoint} ({engine.instance_type}): {engine.endpoint_status}",
        )
        for engine in state.engines
    )
    columns = ("Model", "Engine", "Lock", "Archive", "Endpoint")
    return table(columns, rows, title=f"Environment {state.environment}")


def live_table(live: Sequence[LiveEndpoint]) -> Table:
    """Return a table with one row per running variant."""
    rows = (
        (
            endpoint.endpoint,
            endpoint.config or "",
            f"{variant.name}: {_running_instances(variant)}",
            ", ".join(variant.engines) or "target models",
            ", ".join(image.rpartition("/")[2] for image in variant.images),
            "\n".join(endpoint.alarms) or "none",
        )
        for endpoint in live
        for variant in endpoint.variants
    )
    columns = ("Endpoint", "Endpoint config", "Instances", "Engine", "Image", "In ALARM")
    return table(columns, rows, title="Endpoints as they run")


def drift_lines(state: State) -> Iterator[str]:
    """Return how what runs differs from the files, and the stacks that no file describes."""
    for endpoint in state.live:
        yield from (f"Drift: {endpoint.endpoint} {line}." for line in endpoint.drift)
    for name in state.stacks_without_files:
        yield (
            f"Stack {name} is deployed, and its file is gone. Restore the file, or delete it: "
            f"`aws cloudformation update-termination-protection --no-enable-termination-protection "
            f"--stack-name {name}`, then `aws cloudformation delete-stack --stack-name {name}`."
        )


def _running_instances(variant: LiveVariant) -> str:
    wanted = variant.desired_instances
    count = (
        f"{wanted}" if variant.instances == wanted else f"{variant.instances} of {wanted} wanted"
    )
    return f"{count} x {variant.instance_type}" if variant.instance_type else count


def unknown_lines(state: State) -> Iterator[str]:
    """Return each reason why something is unknown, once; the local cloud's line says its own."""
    found = {
        unknown.sentence.partition(": ")[2]: unknown.sentence
        for unknown in reversed(state.unknown)
        if unknown.reason != NOT_UP
    }
    yield from (f"Unknown, because: {sentence}" for sentence in reversed(found.values()))


def endpoints_table(endpoints: Sequence[EndpointState]) -> Table:
    """One row per variant.

    Where it runs, what one instance answers, when there is one more, what it costs.
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
        ("CPU utilization", variant.cpu_target),
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
        _target(variant.cpu_target, "% CPU"),
    )
    lines = [item for item in found if item]
    return "\n".join(lines) if lines else "fixed" if variant.fewest == variant.most else "nothing"


def _target(target: TargetValue | None, unit: str) -> str:
    return "" if target is None else f"{target.value:.10g} {unit}"


def _cost(cost: Cost) -> str:
    if cost.least is None or cost.most is None:
        return UNKNOWN
    least, most = usd(cost.least), usd(cost.most)
    return least if least == most else f"{least} to {most}"


def _memory(memory: MemoryState) -> str:
    missing = f"; not built: {', '.join(memory.not_built)}" if memory.not_built else ""
    if memory.available_mib is None:
        return f"{UNKNOWN}{missing}"
    available = f"{memory.available_mib:.0f} MiB of {memory.kind} for models"
    if not memory.models:
        return f"{available}{missing}"
    models = ", ".join(f"{name} {mib:.0f}" for name, mib in memory.models.items())
    outcome = "all fit" if memory.fits else f"at least {memory.evicted} evicted at any time"
    return f"{available}, {memory.taken_mib:.0f} taken ({models}): {outcome}{missing}"
