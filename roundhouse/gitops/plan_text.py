"""A plan for people: its headline, its tables and its notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from onboarding.prices import stale_note
from onboarding.text_generation.checkpoint_key import QUANTIZER, QUANTIZER_JOB
from onboarding.text_generation.plan import Candidate, TextGenerationPlan
from roundhouse.gitops.plan_document import (
    CostChange,
    EndpointChange,
    EngineChange,
    EngineEvidence,
    EnvironmentPlan,
    MonthlyCost,
    ResourceChange,
    RolloutPlan,
)
from roundhouse.gitops.predictions import errors_sentence, predictions_table
from roundhouse.table import Table, table
from roundhouse.text import UNKNOWN, quantity, usd

SHOWN_VALUE = 60
BUILT: Mapping[str | None, str] = {
    None: "-",
    QUANTIZER: "in CodeBuild, on CPUs",
    QUANTIZER_JOB: "in a training job on its GPU",
}
"""Where a missing checkpoint is built, by its route."""


def headline(plan: EnvironmentPlan) -> str:
    """Return what the change does in one environment, in one line."""
    parts = []
    received = sum(engine.built_in is not None for engine in plan.missing)
    for count, verb in ((len(plan.missing) - received, "build"), (received, "receive")):
        if count:
            parts.append(f"{quantity(count, 'engine')} to {verb}")
    if plan.endpoints:
        kinds = dict.fromkeys(("new", "changed", "gone"), 0)
        for item in plan.endpoints:
            kinds[item.kind] += 1
        counts = [f"{count} {kind}" for kind, count in kinds.items() if count]
        noun = "endpoints" if len(plan.endpoints) > 1 else "endpoint"
        parts.append(f"{counts[0]} {noun}" if len(counts) == 1 else f"{noun} {', '.join(counts)}")
    if plan.stacks:
        parts.append(f"{quantity(len(plan.stacks), 'other stack')} changed")
    outages = [item.name for item in plan.endpoints if item.outage]
    if outages:
        parts.append(f"OUTAGE of {', '.join(outages)}")
    money = total_cost(plan)
    return f"{plan.environment}: {', '.join(parts) or 'nothing changes'}" + (
        f", {money} a month" if plan.endpoints else ""
    )


def total_cost(plan: EnvironmentPlan) -> str:
    """Return the difference of all endpoints' costs: least to most; unknown where a price is."""
    differences = [0.0, 0.0]
    for item in plan.endpoints:
        sides = (item.cost.before, item.cost.after)
        for index, name in enumerate(("least", "most")):
            values = [0.0 if side is None else getattr(side, name) for side in sides]
            if None in values:
                return f"unknown (no price of {', '.join(item.cost.unknown)})"
            differences[index] += values[1] - values[0]
    return " to ".join(dict.fromkeys(_signed(value) for value in differences))


def sections(plan: EnvironmentPlan) -> Iterator[Table]:
    """Yield every table that has rows, the most important first."""
    found = (
        table(
            title="Endpoints",
            columns=("endpoint", "change", "rollout", "USD a month: least / most",
                     "USD a million requests"),
            rows=tuple(map(_endpoint_row, plan.endpoints)),
        ),
        table(
            title="Engines",
            columns=("model", "for", "before", "after"),
            rows=tuple(map(_engine_row, plan.engines)),
        ),
        predictions_table(
            (engine.model, item) for engine in plan.engines for item in engine.predictions
        ),
        table(
            title="Measured",
            columns=("model", "what", "before", "after"),
            rows=tuple(
                row
                for engine in plan.engines
                if engine.after is not None
                for row in _evidence_rows(engine)
            ),
        ),
        *generation_sections(plan.text_generation),
        table(
            title="Permissions",
            columns=("stack", "", "grant"),
            rows=tuple(_permission_rows(plan)),
            folded=True,
        ),
        table(
            title="Resources",
            columns=("stack", "resource", "class", "properties"),
            rows=tuple(_resource_rows(plan)),
            folded=True,
        ),
        table(
            title="Faults",
            columns=("endpoint", "fault"),
            rows=tuple((item.name, fault) for item in plan.endpoints for fault in item.faults),
        ),
    )  # fmt: skip
    return (section for section in found if section.rows)


def notes(plan: EnvironmentPlan, today: date | None = None) -> Iterator[str]:
    """Yield what no table says; prices are old by `today`, default that of UTC."""
    yield f"Not touched: {quantity(plan.unchanged_endpoints, 'endpoint')}."
    for generation in plan.text_generation:
        yield from (f"{generation.model}: {note}" for note in generation.notes)
    unbuilt = [item.name for item in plan.endpoints if not item.is_built]
    if unbuilt:
        yield (
            f"No engine yet: {', '.join(unbuilt)}; counts and cost are those of the files, "
            "resources, permissions and rollout follow once the engine is built. "
            f"`roundhouse build --dry-run --env {plan.environment}` says where, how long and how "
            "much."
        )
    gone = [item.name for item in plan.endpoints if item.kind == "gone"]
    if gone:
        yield (
            f"No file names {', '.join(gone)} any more: a deployment leaves such a stack, and its "
            "instances cost, until it is deleted."
        )
    images = [(item.name, *found) for item in plan.endpoints for found in image_changes(item)]
    if images:
        moved = "; ".join(f"{name}: {old} -> {new}" for name, old, new in images)
        yield f"Another serving image, which rolls the endpoint: {moved}."
    if any(engine.predictions for engine in plan.engines):
        yield errors_sentence()
    if plan.prices_date is not None:
        yield stale_note(plan.prices_date, today) or f"Prices of {plan.prices_date}."


def image_changes(item: EndpointChange) -> tuple[tuple[str, str], ...]:
    """Return the images of an endpoint before and after a change, without their registry."""
    pairs = (
        (str(moved.before).rpartition("/")[2], str(moved.after).rpartition("/")[2])
        for resource in item.resources
        for moved in resource.properties
        if moved.path == "PrimaryContainer.Image" and moved.before and moved.after
    )
    return tuple(dict.fromkeys(pairs))


def _endpoint_row(item: EndpointChange) -> tuple[str, ...]:
    change = "OUTAGE, " * item.outage + item.kind
    rollout = "-" if item.rollout is None else _rollout(item.rollout)
    return item.name, change, rollout, _cost(item.cost), _per_million(item.cost)


def _rollout(rollout: RolloutPlan) -> str:
    steps = ", ".join(f"{percent:g} %" for percent in rollout.step_percents)
    updates = "" if rollout.updates == 1 else f"; {rollout.updates} updates of the stack"
    return (
        f"{rollout.kind}: {steps}; waits {rollout.minutes:g} min; "
        f"+{quantity(rollout.extra_instances, 'instance')} meanwhile{updates}"
    )


def _cost(cost: CostChange) -> str:
    if cost.unknown:
        return f"unknown: no price of {', '.join(cost.unknown)}"
    before, after = (_money(side) for side in (cost.before, cost.after))
    return after if before == after else f"{before} → {after}"


def _money(cost: MonthlyCost | None) -> str:
    if cost is None:
        return "-"
    return " / ".join(map(usd, (cost.least, cost.most)))


def _per_million(cost: CostChange) -> str:
    values = [usd(cost.per_million_before), usd(cost.per_million_after)]
    if cost.before is None or values[0] == values[1]:
        return values[1]
    return " → ".join(values)


def _engine_row(engine: EngineChange) -> tuple[str, ...]:
    gpu = "CPU" if engine.gpu is None else f"{engine.gpu} {engine.compute_capability}"
    before = "-" if engine.before is None else f"{engine.before.precision} {engine.before.key}"
    after = f"{engine.key} is not built" if engine.after is None else (
        f"{engine.after.precision} {engine.key}"
    )  # fmt: skip
    if engine.built_in is not None:
        after += f"; {engine.built_in} builds it, a promotion copies it"
    return engine.model, f"{engine.instance_type}, {gpu}", before, after


def _evidence_rows(engine: EngineChange) -> Iterator[tuple[str, ...]]:
    before, after = (_measurements(side) for side in (engine.before, engine.after))
    for what in dict.fromkeys((*before, *after)):
        if before.get(what) != after.get(what):
            yield engine.model, what, before.get(what, "-"), after.get(what, "-")


def _measurements(evidence: EngineEvidence | None) -> dict[str, str]:
    """Return what was measured of an engine: accuracy, latency, rate, size."""
    if evidence is None:
        return {}
    found = {"archive, MiB": f"{evidence.size_bytes / 2**20:.1f}", "decision": evidence.decision}
    for record in evidence.accuracy:
        interval = record.mean_interval
        spread = "" if interval is None else f" ({interval[0]:.4f} to {interval[1]:.4f})"
        text = f"mean {record.mean:.4f}{spread}, worst {record.worst:.4f}, {record.verdict}"
        found[f"{record.metric} of the {record.subject}"] = text
    for measurement in evidence.benchmark:
        if measurement.precision == evidence.precision:
            shape = f"{measurement.batch} x {measurement.sequence}"
            found[f"p50 / p99 of {shape}, ms"] = (
                f"{measurement.p50_ms:g} / {measurement.p99_ms:g}, "
                f"{measurement.rows_per_second:,.0f} rows/s"
            )
    found["capacity"] = (
        "measured in a load test"
        if evidence.measured_capacity
        else "derived: `roundhouse bench --record` measures it"
    )
    return found


def _permission_rows(plan: EnvironmentPlan) -> Iterator[tuple[str, ...]]:
    for name, change in _stacks(plan):
        yield from ((name, "added", grant) for grant in change.permissions.added)
        yield from ((name, "removed", grant) for grant in change.permissions.removed)


def _resource_rows(plan: EnvironmentPlan) -> Iterator[tuple[str, ...]]:
    for name, change in _stacks(plan):
        for resource in change.resources:
            yield name, f"{resource.id} ({resource.type})", resource.change, _properties(resource)


def _stacks(plan: EnvironmentPlan) -> Iterator[tuple[str, Any]]:
    yield from ((item.name, item) for item in plan.endpoints)
    yield from ((stack.name, stack) for stack in plan.stacks)


def _properties(resource: ResourceChange) -> str:
    return "; ".join(
        f"{item.path} {_plain(item.before)} → {_plain(item.after)}" for item in resource.properties
    )


def _plain(value: Any) -> str:
    """Return a value in one short line; "-" where there is none."""
    if value is None:
        return "-"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= SHOWN_VALUE else f"{text[: SHOWN_VALUE - 1]}…"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{usd(abs(value))} USD"


def generation_sections(plans: Sequence[TextGenerationPlan]) -> Iterator[Table]:
    """Yield the table of what would serve, and the one of the types that were not chosen."""
    yield table(
        title="Text generation",
        columns=("model", "serves on", "memory of a GPU", "KV tokens, requests a copy",
                 "p95: ms a token / to the first", "USD an hour / a million tokens"),
        rows=tuple(_row(plan, plan.chosen) for plan in plans if plan.chosen is not None),
    )  # fmt: skip
    yield table(
        title="Checkpoints of text generators",
        columns=("model", "checkpoint", "scheme", "state", "is built"),
        rows=tuple(
            (plan.model, item.checkpoint_key, item.scheme, item.use, BUILT[item.route])
            for plan in plans
            for item in plan.checkpoints
        ),
    )
    yield table(
        title="Not chosen for text generation",
        columns=("model", "instance type", "because"),
        rows=tuple(
            (plan.model, item.instance_type, item.reason or "-")
            for plan in plans
            for item in plan.others
        ),
        folded=True,
    )


def _row(plan: TextGenerationPlan, item: Candidate) -> tuple[str, ...]:
    sizes = item.weights_gib, item.kv_gib, item.overhead_gib
    memory = "weights {:.1f} GiB, KV {:.1f}, overhead {:.1f}".format(*sizes)
    memory += "" if item.adapters_gib is None else f", adapters {item.adapters_gib:.1f}"
    return (
        plan.model,
        f"{item.instances} x {item.instance_type} ({item.gpu}), {item.scheme}, KV {item.kv_cache}, "
        f"tensor parallel {item.tensor_parallel}, {item.copies} copies",
        memory,
        f"{item.kv_tokens:,}; {item.longest_requests:.1f} of the longest, {item.expected_requests} "
        "as declared",
        f"{_number(item.itl_ms, 1)} / {_number(item.ttft_ms, 0)}",
        f"{usd(item.usd_an_hour)} / {usd(item.usd_a_million_tokens)}",
    )


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{digits}f}"
