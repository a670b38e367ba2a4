"""The tables of `roundhouse status`, and the lines below each: what its numbers rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roundhouse.status.endpoints import (
    CheckpointState,
    GeneratorState,
)
from roundhouse.status.live import LiveEndpoint, LiveGenerator
from roundhouse.status.state import NOT_UP, State
from roundhouse.table import Table, table

NOTHING = "–"


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
            f"{variant.name}: "
            + _running(variant.instances, variant.desired_instances, variant.instance_type),
            ", ".join(variant.engines) or "target models",
            ", ".join(image.rpartition("/")[2] for image in variant.images),
            "\n".join(endpoint.alarms) or "none",
        )
        for endpoint in live
        for variant in endpoint.variants
    )
    columns = ("Endpoint", "Endpoint config", "Instances", "Engine", "Image", "In ALARM")
    return table(columns, rows, title="Endpoints as they run")


def live_generators_table(live: Sequence[LiveGenerator]) -> Table:
    """Return a table with a row for each component, or for an endpoint without one."""
    columns = ("Endpoint", "Instances", "Component", "State", "Copies", "Serves", "In ALARM")
    rows: list[tuple[str, ...]] = []
    for generator in live:
        instances = _running(
            generator.instances, generator.desired_instances, generator.instance_type
        )
        head = (f"{generator.endpoint}: {generator.status}", instances)
        alarms = "\n".join(generator.alarms) or "none"
        if not generator.components:
            rows.append((*head, "none", "", "", generator.serves or "", alarms))
        for number, component in enumerate(generator.components):
            kind = "" if component.base is None else f" (adapter of {component.base})"
            state = "scaled to zero" if component.is_zero else component.status
            copies = _running(component.copies, component.desired_copies)
            own = (component.name + kind, state, copies, component.serves or "")
            rows.append((*(head if number == 0 else ("", "")), *own, alarms if not number else ""))
    return table(columns, rows, title="Text generators as they run")


def live_generator_lines(live: Sequence[LiveGenerator]) -> Iterator[str]:
    """Yield when components changed and why that failed, and what is scaled to zero."""
    for generator in live:
        if generator.failure_reason:
            yield f"{generator.endpoint}: {generator.failure_reason}"
        for component in generator.components:
            reason = component.failure_reason
            why = f": {reason.rstrip('.')}" if reason else ""
            yield f"{component.name}: {component.status}, changed {component.changed}{why}."
            if component.is_zero:
                yield f"{component.name}: no copy runs; the next request fails and asks for one."


def _running(current: int, desired: int, instance_type: str = "") -> str:
    count = f"{desired}" if current == desired else f"{current} of {desired} wanted"
    return f"{count} x {instance_type}" if instance_type else count


def unknown_lines(state: State) -> Iterator[str]:
    """Return each reason why something is unknown, once; the local cloud's line says its own."""
    found = {
        unknown.sentence.partition(": ")[2]: unknown.sentence
        for unknown in reversed(state.unknown)
        if unknown.reason != NOT_UP
    }
    yield from (f"Unknown, because: {sentence}" for sentence in reversed(found.values()))


def generators_table(generators: Sequence[GeneratorState]) -> Table:
    """Return a table with one row per checkpoint."""
    columns = (
        "Text generator", "Checkpoint", "Scheme", "State", "KL a token", "Top-1", "Speed",
        "Serves on",
    )  # fmt: skip
    rows = (
        (
            generator.name,
            checkpoint.checkpoint_key,
            checkpoint.scheme,
            checkpoint.use,
            *(
                NOTHING if value is None else f"{value:.3f}"
                for value in (checkpoint.kl_per_token, checkpoint.top1)
            ),
            _speed(checkpoint),
            f"{generator.endpoint}: {generator.instances} x {generator.instance_type}, "
            f"{generator.copies} copies of {generator.expected_requests} requests; "
            f"{generator.endpoint_status}"
            if checkpoint.use == "serves"
            else "",
        )
        for generator in generators
        for checkpoint in generator.checkpoints
    )
    return table(columns, rows, title="Text generation")


def generator_lines(generators: Sequence[GeneratorState]) -> Iterator[str]:
    """Yield why nothing serves, and why checkpoints were refused."""
    for generator in generators:
        if generator.problem is not None:
            yield generator.problem
            continue
        for checkpoint in generator.checkpoints:
            if checkpoint.reason is not None:
                yield f"{generator.name} in {checkpoint.scheme}: {checkpoint.reason}"


def _speed(checkpoint: CheckpointState) -> str:
    if checkpoint.output_tokens_per_second is None:
        return NOTHING
    times = "" if checkpoint.speed_ratio is None else f" ({checkpoint.speed_ratio:.2f} x source)"
    return f"{checkpoint.output_tokens_per_second:,.0f} tokens/s{times}"
