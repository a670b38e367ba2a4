"""What one environment deploys: endpoints with their hardware, platform, variants and engines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.hosting_spec import ScalingSpec
from onboarding.keys import plan_gpu, runtime_name
from onboarding.lock import BuiltEntry, LockEntry
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.signature import parse_public_key
from onboarding.values import Role, Runtime, Server

VARIANT = "AllTraffic"
"""The variant of the endpoint's own model.

It never changes its name: SageMaker's deployment guardrails refuse that.
"""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """What a build makes of one model: an engine, or a checkpoint."""

    key: str
    model: str
    entry: BuiltEntry | None
    """Of a lock; None: not built yet."""
    held_by: str | None = None
    """The environment that built it, where this one is to receive it by promotion."""


@dataclass(frozen=True, kw_only=True)
class DeployedEndpoint:
    """One endpoint of one environment, whatever answers behind it: base of each workload's."""

    environment: EnvironmentSpec
    name: str
    """In the tree."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that answer behind it, each once."""
        return tuple(dict.fromkeys(artifact.model for artifact in self.artifacts))

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What it serves, once each."""
        raise NotImplementedError

    @property
    def is_component(self) -> bool:
        """True where copies of an inference component answer, which has the endpoint's name."""
        raise NotImplementedError

    @property
    def is_built(self) -> bool:
        """True where nothing that it serves is missing."""
        return all(artifact.entry is not None for artifact in self.artifacts)

    @property
    def problem(self) -> str | None:
        """Why nothing is known that it could serve, with the way out; None where something is."""
        return None

    def unsigned(self) -> Iterator[tuple[Artifact, str]]:
        """Yield what it serves that none of the environment's trusted signers signed, and why.

        By the lock alone, so without a network; nothing where no signer is named.
        """
        signers = [parse_public_key(signer) for signer in self.environment.trusted_signers]
        for artifact in self.artifacts if signers else ():
            entry = artifact.entry
            reason = None if entry is None else entry.signature_fault(signers)
            if reason is not None:
                yield artifact, reason

    def signature_faults(self) -> Iterator[str]:
        """Yield the same as sentences with the way out."""
        for artifact, reason in self.unsigned():
            assert artifact.entry is not None
            builder = artifact.held_by or self.environment.name
            yield (
                f"none of 'trusted_signers' signed {artifact.entry.noun} {artifact.key} of "
                f"'{artifact.model}': {reason}; name its signer in "
                f"environments/{self.environment.name}.yaml, or build it again: "
                f"`roundhouse build --env {builder} --model {artifact.model}`."
            )

    def source_command(self, artifact: Artifact) -> str:
        """Return the command that brings what it serves into the environment's bucket."""
        own = self.environment.name
        if artifact.held_by is None:
            return f"`roundhouse build --env {own} --model {artifact.model}`"
        return f"`roundhouse promote --from {self.environment.promotes_from} --to {own}`"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One model on one instance type: its overridden spec, its keys, and its lock entry."""

    model: ModelSpec
    instance_type: InstanceType
    """Whose GPU the engine is built for."""
    engine_key: str
    plan_key: str | None
    """Of what is compiled, whatever its packaging; None for an ensemble, whose models have one."""
    network_keys: dict[str, str]
    lock_entry: LockEntry | None
    """None: not built yet."""
    held_by: str | None = None
    """The environment that built it, where this one is to receive it by promotion."""
    steps: tuple[Target, ...] = ()
    """The models of an ensemble on the same instance type; its archive holds copies of theirs."""

    @property
    def runtime(self) -> Runtime:
        """What executes the engine."""
        return runtime_name(self.model, self.instance_type)

    @property
    def build_capability(self) -> str:
        """Compute capability of the machine that builds the engine: `cpu` but for plans."""
        return self.instance_type.compute_capability if self.runtime == "tensorrt" else "cpu"

    @property
    def plan_gpu(self) -> str | None:
        """GPU model that the plan runs on alone; None for a CPU or a compatible plan."""
        return plan_gpu(self.model, self.instance_type)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One instance type of a variant, and its engines: one, or those of a multi-model endpoint."""

    instance_type: InstanceType
    priority: int
    """1 is tried first."""
    targets: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Instances that answer alike, behind one endpoint."""

    name: str
    role: Role
    server: Server
    """The endpoint's, but for a model that joins with a baseline runtime."""
    weight: float
    scaling: ScalingSpec
    pools: tuple[Pool, ...]
    """By priority; the first is the one that capacity is measured on."""

    @property
    def instance_type(self) -> InstanceType:
        """Of the first pool."""
        return self.pools[0].instance_type

    @property
    def targets(self) -> tuple[Target, ...]:
        """Of the first pool."""
        return self.pools[0].targets


@dataclass(frozen=True, kw_only=True)
class Deployment(DeployedEndpoint):
    """One endpoint of one environment that serves engines."""

    endpoint: EndpointSpec
    multi_model: bool
    platform: ServingPlatform
    inference_ami_version: str | None
    """None where no variant has a GPU."""
    variants: tuple[Variant, ...]
    """The endpoint's own first, then the models that join it, by name; one that is a shadow is the
    last.
    """

    @property
    def own(self) -> Variant:
        """The variant of the endpoint's own model, or of all models of a multi-model endpoint."""
        return self.variants[0]

    @property
    def server(self) -> Server:
        """Of the own variant."""
        return self.own.server

    @property
    def instance_type(self) -> InstanceType:
        """Of the own variant's first pool."""
        return self.own.instance_type

    @property
    def is_component(self) -> bool:
        """True for a model that scales to zero without a queue; each instance has one copy."""
        return self.endpoint.is_component

    def variant_of(self, target: Target) -> Variant:
        """Return the variant that an engine of the endpoint answers in."""
        return next(
            variant
            for variant in self.variants
            for pool in variant.pools
            if target.engine_key in (held.engine_key for held in pool.targets)
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every engine that the endpoint needs, once, whatever variant or pool needs it."""
        targets = {
            target.engine_key: target
            for variant in self.variants
            for pool in variant.pools
            for target in pool.targets
        }
        return tuple(targets.values())

    @property
    def built_targets(self) -> tuple[Target, ...]:
        """Every engine that a build makes for the endpoint: its targets, and before them steps."""
        targets = {
            target.engine_key: target for owner in self.targets for target in (*owner.steps, owner)
        }
        return tuple(targets.values())

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The engines of its targets."""
        return tuple(
            Artifact(
                key=target.engine_key,
                model=target.model.name,
                entry=target.lock_entry,
                held_by=target.held_by,
            )
            for target in self.targets
        )

    @property
    def missing(self) -> tuple[Target, ...]:
        """Targets with no engine in the lock."""
        return tuple(target for target in self.targets if target.lock_entry is None)

    def unsigned_engines(self) -> Iterator[Fault]:
        """Yield every locked engine that none of the environment's trusted signers signed."""
        environment = self.environment.name
        for engine, reason in self.unsigned():
            builder = engine.held_by or environment
            yield Fault(
                file=f"environments/{environment}.yaml",
                what=f"none of 'trusted_signers' signed engine {engine.key} of '{engine.model}': "
                f"{reason}",
                way_out=f"name its signer there, or delete engines/{engine.key}/ in the bucket of "
                f"{builder} and run `roundhouse build --env {builder} --model {engine.model}`, "
                "which signs it",
            )

    def signature_faults(self) -> Iterator[str]:
        """Yield these as sentences."""
        return map(str, self.unsigned_engines())
