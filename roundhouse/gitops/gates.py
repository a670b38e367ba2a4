"""What must be known of an endpoint before its engines or checkpoint are promoted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime

from onboarding.deployment import DeployedEndpoint, Deployment, Target, signature_faults
from onboarding.environment_spec import GatesSpec
from onboarding.lock import ServedCapacity
from onboarding.names import endpoint_name
from onboarding.promotion import Evidence
from onboarding.text_generation.checkpoint_lock import GenerationKnee
from onboarding.text_generation.generation_deployment import GenerationDeployment


def gate_faults(
    deployment: DeployedEndpoint, source: DeployedEndpoint, today: date, rang: datetime | None
) -> Iterator[str]:
    """Yield why an endpoint may not be promoted, one sentence each with the way out.

    `source`: the endpoint in the environment before; `rang`: when an alarm of it last rang within
    the quiet time that is asked for.
    """
    gates = deployment.environment.gates
    if isinstance(deployment, Deployment) and isinstance(source, Deployment):
        yield from _engines_faults(deployment, source, gates, today)
    elif isinstance(deployment, GenerationDeployment) and isinstance(source, GenerationDeployment):
        yield from _checkpoint_faults(deployment, source, gates, today)
    if rang is not None:
        yield (
            f"{source.name}: an alarm rang at {rang:%Y-%m-%d %H:%M} UTC, within the last "
            f"{gates.quiet_minutes} minutes (gates.quiet_minutes); find the cause, or wait"
        )


def _engines_faults(
    deployment: Deployment, source: Deployment, gates: GatesSpec, today: date
) -> Iterator[str]:
    deployed = {target.engine_key for target in source.targets}
    for target in deployment.targets:
        yield from _engine_faults(deployment, target)
        if target.lock_entry is not None and target.engine_key not in deployed:
            before, name = source.environment.name, deployment.environment.name
            yield (
                f"{target.model.name}: {before} serves no engine {target.engine_key}, which {name} "
                f"needs for {target.instance_type.name}, so what {before} measured is of another "
                f"engine; serve the same compute capability in both"
            )
    yield from (str(fault).removesuffix(".") for fault in signature_faults(deployment))
    if gates.capacity_days is not None:
        yield from _capacity_faults(deployment, source, gates.capacity_days, today)


def _checkpoint_faults(
    deployment: GenerationDeployment, source: GenerationDeployment, gates: GatesSpec, today: date
) -> Iterator[str]:
    before, entry = source.environment.name, deployment.entry
    if entry is None:
        yield str(deployment.problem).removesuffix(".")
    elif source.entry is None or source.entry.checkpoint_key != entry.checkpoint_key:
        yield (
            f"{deployment.name}: {before} serves no checkpoint {entry.checkpoint_key} "
            f"({entry.scheme}), which {deployment.environment.name} needs, so what {before} "
            "measured is of another checkpoint; give both the same instance types and SLO"
        )
    if deployment.signature_fault is not None:
        yield deployment.signature_fault.removesuffix(".")
    if entry is not None and gates.capacity_days is not None:
        yield from _knee_faults(deployment, entry.knee, before, gates.capacity_days, today)


def evidence(deployment: DeployedEndpoint, source: DeployedEndpoint) -> Evidence | None:
    """Return what was measured of an endpoint; None where no load test is asked for.

    Of a text generator the goodput of one copy at the SLO.
    """
    quiet = deployment.environment.gates.quiet_minutes
    if isinstance(deployment, GenerationDeployment):
        knee = None if deployment.entry is None else deployment.entry.knee
        if knee is None:
            return None
        return Evidence(
            endpoint=knee.endpoint,
            instance_type=knee.instance_type,
            requests_per_second=knee.goodput_requests_per_second,
            slo_ms=deployment.spec.slo.ttft_p95_ms,
            measured=knee.date,
            quiet_minutes=quiet,
        )
    capacity = measured_capacity(deployment) if isinstance(deployment, Deployment) else None
    if capacity is None:
        return None
    return Evidence(
        endpoint=endpoint_name(source.environment, source.name),
        instance_type=capacity.instance_type,
        requests_per_second=capacity.requests_per_second,
        slo_ms=capacity.slo_ms,
        measured=capacity.date,
        quiet_minutes=quiet,
    )


def measured_capacity(deployment: Deployment) -> ServedCapacity | None:
    """Return the load test of the own variant's first engine on its instance type, or None."""
    target = deployment.own.targets[0]
    entry = target.lock_entry
    capacities = {} if entry is None or entry.capacity is None else entry.capacity
    return capacities.get(target.instance_type.name)


def _engine_faults(deployment: Deployment, target: Target) -> Iterator[str]:
    entry, model = target.lock_entry, target.model.name
    if entry is None:
        before = deployment.environment.promotes_from
        yield (
            f"{model}: no lock of {before} has engine {target.engine_key}; `roundhouse build --env "
            f"{before} --model {model}` builds it, where that environment serves the same "
            "instance type"
        )
        return
    failed = [item for item in entry.manifest.accuracy_records if item.verdict == "fail"]
    chosen = [item for item in failed if item.subject.startswith(entry.manifest.precision)]
    if chosen:
        yield f"{model}: its {chosen[0].subject} is below the accuracy budget; build it again"


def _capacity_faults(
    deployment: Deployment, source: Deployment, days: int, today: date
) -> Iterator[str]:
    capacity = measured_capacity(deployment)
    bench = f"`roundhouse bench --env {source.environment.name} {source.name} --record`"
    if capacity is None:
        yield (
            f"{deployment.name}: no load test on {deployment.instance_type.name} is recorded "
            f"(gates.capacity_days); {bench} makes one"
        )
        return
    yield from _age_faults(deployment.name, capacity.date, days, today, bench)
    slo = deployment.endpoint.latency_slo_ms
    if slo is not None and capacity.slo_ms > slo:
        yield (
            f"{deployment.name}: its load test held {capacity.slo_ms:g} ms, and latency_slo_ms is "
            f"{slo:g}; {bench} measures that"
        )


def _knee_faults(
    deployment: GenerationDeployment,
    knee: GenerationKnee | None,
    before: str,
    days: int,
    today: date,
) -> Iterator[str]:
    name, slo, instance_type = (
        deployment.name,
        deployment.spec.slo,
        deployment.candidate.instance_type,
    )
    bench = f"`roundhouse bench --env {before} {name} --record`"
    if knee is None or knee.instance_type != instance_type:
        yield (
            f"{name}: no load test on {instance_type} is recorded (gates.capacity_days); {bench} "
            "makes one"
        )
        return
    yield from _age_faults(name, knee.date, days, today, bench)
    if knee.plan_key != deployment.plan_key:
        environment = deployment.environment.name
        yield (
            f"{name}: its load test was of another image, vLLM version, tensor parallel size or "
            f"arguments than {environment} deploys (plan {knee.plan_key or 'not recorded'}, "
            f"{environment}'s is {deployment.plan_key}); give {before} the same, deploy it, and "
            f"{bench} makes one"
        )
    for what, measured, wanted in (
        ("ttft_p95_ms", knee.ttft_p95_ms, slo.ttft_p95_ms),
        ("itl_p95_ms", knee.itl_p95_ms, slo.itl_p95_ms),
    ):
        if measured > wanted:
            yield (
                f"{name}: its load test had {what} {measured:g}, and the SLO is {wanted:g}; "
                f"{bench} measures that"
            )


def _age_faults(name: str, measured: str, days: int, today: date, bench: str) -> Iterator[str]:
    age = (today - date.fromisoformat(measured[:10])).days
    if age > days:
        yield (
            f"{name}: its load test is {age} days old, and gates.capacity_days is {days}; {bench} "
            "makes a new one"
        )
