"""The subject of a recommendation job: one engine of a model, and its instance types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onboarding.deployment import VARIANT, Deployment, Pool, Target, Variant
from onboarding.nearest import comma_list
from onboarding.platform import InstanceType, instance_types
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.text import choices


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One engine, as an endpoint of its own would serve it.

    `deployment` has one variant with one pool; the endpoint's other variants and models are left
    out.
    """

    deployment: Deployment
    instance_types: tuple[str, ...]
    """What the job may serve it on."""
    notes: tuple[str, ...] = ()
    """What the user should know before the job runs, a sentence each."""

    @property
    def pool(self) -> Pool:
        """The instance type of the model file, and the engine."""
        return self.deployment.own.pools[0]

    @property
    def target(self) -> Target:
        """The engine."""
        return self.pool.targets[0]

    @property
    def model(self) -> str:
        """The model's name."""
        return self.target.model.name

    def on(self, instance: InstanceType) -> Deployment:
        """Return the same deployment on another instance type of this engine."""
        target = replace(self.target, instance_type=instance)
        pool = replace(self.pool, instance_type=instance, targets=(target,))
        return replace(self.deployment, variants=(replace(self.deployment.own, pools=(pool,)),))


def runs_on(target: Target, instance: InstanceType) -> bool:
    """Return whether a target's engine is the one that an instance type would be built for."""
    built_for = target.instance_type
    if target.plan_gpu is not None and instance.gpu != target.plan_gpu:
        return False
    return instance.compute_capability == built_for.compute_capability


def hosted_types(target: Target, region: str) -> tuple[str, ...]:
    """Return every known instance type of a region that runs a target's engine."""
    return tuple(
        instance.name
        for instance in instance_types().values()
        if runs_on(target, instance) and not instance.is_missing_in(region)
    )


def find_subject(
    deployments: Sequence[Deployment], model: str, wanted: Sequence[str], *, is_load_test: bool
) -> Subject:
    """Return the engine that a job is for, and its instance types.

    Without `wanted` types a load test takes those of the model file, a default job every type that
    runs the engine. Raises UsageError with every fault, RoundhouseError for an engine that is not
    built or cannot be served.
    """
    served = list(_find_targets(deployments, model))
    if not served:
        known = {target.model.name for item in deployments for target in item.targets}
        raise UsageError(f"{model}: no such model on an endpoint; {choices(model, sorted(known))}")
    deployment = served[0][0]
    if deployment.endpoint.asynchronous is not None:
        raise UsageError(
            f"{model}: its endpoint is asynchronous, and Inference Recommender loads real-time "
            "endpoints alone; `roundhouse bench` loads it."
        )
    region = deployment.environment.region
    if faults := list(_type_faults(wanted, region)):
        raise UsageError("\n".join(faults))
    named = [instance_types()[name] for name in wanted]
    deployment, variant, pool, target = next(
        (item for item in served if named and runs_on(item[3], named[0])), served[0]
    )
    others = [instance for instance in named if not runs_on(target, instance)]
    if others:
        raise UsageError("\n".join(_other_engine(target, instance, region) for instance in others))
    subject = Subject(deployment=_alone(deployment, variant, pool, target), instance_types=())
    _require_engine(subject)
    own = [item[2].instance_type.name for item in served if runs_on(target, item[2].instance_type)]
    chosen = list(wanted) or (own if is_load_test else hosted_types(target, region))
    return replace(
        subject,
        instance_types=tuple(dict.fromkeys(chosen)),
        notes=tuple(_notes(subject, deployment, is_restricted=not wanted and not is_load_test)),
    )


def _find_targets(
    deployments: Sequence[Deployment], model: str
) -> Iterator[tuple[Deployment, Variant, Pool, Target]]:
    for deployment in deployments:
        for variant in deployment.variants:
            for pool in variant.pools:
                for target in pool.targets:
                    if target.model.name == model:
                        yield deployment, variant, pool, target


def _type_faults(wanted: Sequence[str], region: str) -> Iterator[str]:
    for name in wanted:
        instance = instance_types().get(name)
        if instance is None:
            known = choices(name, instance_types())
            yield f"--instance-type {name}: is no known hosting type; {known}"
        elif instance.is_missing_in(region):
            yield (
                f"--instance-type {name}: SageMaker does not host it in {region}; it does in "
                f"{comma_list(instance.regions or ())}."
            )


def _other_engine(target: Target, instance: InstanceType, region: str) -> str:
    ours = target.plan_gpu or f"compute capability {target.instance_type.compute_capability}"
    theirs = instance.gpu or "a CPU"
    allowed = comma_list(hosted_types(target, region))
    return (
        f"--instance-type {instance.name}: has {theirs}, and engine {target.engine_key} of "
        f"{target.model.name} is built for {ours}; a job measures one engine. Allowed: {allowed}. "
        f"`roundhouse compare {target.model.name} --instance-type {instance.name}` builds another."
    )


def _alone(deployment: Deployment, variant: Variant, pool: Pool, target: Target) -> Deployment:
    """Return the deployment of one engine on an endpoint with no other."""
    own = replace(
        variant,
        name=VARIANT,
        role="variant",
        weight=1.0,
        pools=(replace(pool, priority=1, targets=(target,)),),
    )
    return replace(deployment, multi_model=False, variants=(own,))


def _require_engine(subject: Subject) -> None:
    from stacks.endpoint.template import endpoint_faults

    target, environment = subject.target, subject.deployment.environment.name
    if target.lock_entry is None:
        raise RoundhouseError(
            f"{subject.model}: its engine {target.engine_key} for {target.instance_type.name} is "
            f"not in the lock; `roundhouse build --env {environment} --model {subject.model}` "
            "builds it."
        )
    if faults := endpoint_faults(subject.deployment):
        raise RoundhouseError("\n".join(faults))


def _notes(subject: Subject, served: Deployment, *, is_restricted: bool) -> Iterator[str]:
    target = subject.target
    if is_restricted:
        why = (
            "an engine of a CPU runs on no GPU"
            if target.plan_gpu is None and not target.instance_type.is_gpu
            else "the engine runs on no other GPU model"
        )
        yield f"The job is restricted to types of {_hardware(target)}, since {why}."
    if served.multi_model:
        yield (
            f"{served.name} serves {len(served.own.targets)} models; the job measures "
            f"{subject.model} alone on its instance."
        )
    if served.inference_ami_version is not None and target.instance_type.is_gpu:
        yield (
            f"A job cannot name a host image: its endpoints take SageMaker's default, ours "
            f"{served.inference_ami_version}. Where the default's driver is older than the engine "
            "needs, benchmarks fail."
        )


def _hardware(target: Target) -> str:
    instance = target.instance_type
    return "a CPU" if not instance.is_gpu else instance.gpu or instance.compute_capability
