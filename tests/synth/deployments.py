"""Deployments of the shipped files, with locks as a build would have left them, or changed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onboarding.deployment import Deployment, Pool, Target, Variant
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import ServedCapacity
from onboarding.platform import instance_types
from onboarding.resolve import deployments
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.tree import read_tree
from onboarding.values import Server
from stacks.engine_capacity import Capacity, variant_capacity
from tests.fixtures.many_models import benchmark as benchmark
from tests.fixtures.many_models import lock_entry

ROOT = Path(__file__).resolve().parents[2]
TREE = read_tree(ROOT)


def environment(name: str) -> EnvironmentSpec:
    """A shipped environment."""
    return TREE.environments[name]


def with_targets(deployment: Deployment, change: Callable[[Target], Target]) -> Deployment:
    """A deployment with every target changed."""

    def with_change(pool: Pool) -> Pool:
        return dataclasses.replace(pool, targets=tuple(map(change, pool.targets)))

    variants = (
        dataclasses.replace(variant, pools=tuple(map(with_change, variant.pools)))
        for variant in deployment.variants
    )
    return dataclasses.replace(deployment, variants=tuple(variants))


def unlocked(name: str) -> tuple[Deployment, ...]:
    """What an environment deploys, with every lock empty, whatever was built on this machine."""
    return tuple(
        with_targets(deployment, lambda target: dataclasses.replace(target, lock_entry=None))
        for deployment in deployments(TREE, name)
    )


def locked(name: str) -> tuple[Deployment, ...]:
    """What an environment deploys, with every engine in its lock."""
    return tuple(with_locks(deployment) for deployment in unlocked(name))


def one(name: str, endpoint: str) -> Deployment:
    """One endpoint of an environment, its engines in the lock."""
    return next(deployment for deployment in locked(name) if deployment.name == endpoint)


def with_locks(deployment: Deployment, **manifest_fields: Any) -> Deployment:
    """A deployment whose every target has a lock entry, with these fields of its manifest."""
    return with_targets(
        deployment,
        lambda target: dataclasses.replace(
            target, lock_entry=lock_entry(deployment, target, **manifest_fields)
        ),
    )


def with_fields(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment with other fields."""
    return dataclasses.replace(deployment, **fields)


def with_server(deployment: Deployment, server: Server) -> Deployment:
    """A deployment whose every variant runs in another server."""
    variants = tuple(dataclasses.replace(variant, server=server) for variant in deployment.variants)
    return with_fields(deployment, variants=variants)


def of_targets(deployment: Deployment, targets: tuple[Target, ...]) -> Deployment:
    """A deployment whose own variant serves these, on its first instance type alone."""
    own = dataclasses.replace(
        deployment.own, pools=(dataclasses.replace(deployment.own.pools[0], targets=targets),)
    )
    return with_fields(deployment, variants=(own, *deployment.variants[1:]))


def with_endpoint(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose endpoint has other fields; its own variant follows."""
    endpoint = deployment.endpoint.model_copy(update=fields)
    own = dataclasses.replace(deployment.own, scaling=endpoint.scaling, weight=endpoint.weight)
    return with_fields(deployment, endpoint=endpoint, variants=(own, *deployment.variants[1:]))


def with_instance_type(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose every instance type has other fields."""

    def pool(item: Pool) -> Pool:
        instance = item.instance_type.model_copy(update=fields)
        targets = tuple(
            dataclasses.replace(target, instance_type=instance) for target in item.targets
        )
        return dataclasses.replace(item, instance_type=instance, targets=targets)

    variants = tuple(
        dataclasses.replace(variant, pools=tuple(map(pool, variant.pools)))
        for variant in deployment.variants
    )
    return with_fields(deployment, variants=variants)


def with_scaling(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose scaling has other fields."""
    return with_endpoint(deployment, scaling=deployment.endpoint.scaling.model_copy(update=fields))


def with_engine_key(deployment: Deployment, engine_key: str) -> Deployment:
    """A deployment whose every target needs, and has, an engine of another key."""
    return with_locks(
        with_targets(deployment, lambda target: dataclasses.replace(target, engine_key=engine_key))
    )


def fixed_engines(deployment: Deployment, **manifest_fields: Any) -> Deployment:
    """A deployment whose engine keys and manifests depend on model and instance type alone."""

    def with_key(target: Target) -> Target:
        identity = f"{target.model.name} {target.instance_type.name}"
        key = hashlib.sha256(identity.encode()).hexdigest()[: len(target.engine_key)]
        return dataclasses.replace(target, engine_key=key)

    def with_manifest(target: Target) -> Target:
        entry = target.lock_entry
        assert entry is not None
        digest = hashlib.sha256(target.engine_key.encode()).hexdigest()
        archive = entry.archive.model_copy(update={"manifest_sha256": digest})
        return dataclasses.replace(target, lock_entry=entry.model_copy(update={"archive": archive}))

    locked = with_locks(with_targets(deployment, with_key), **manifest_fields)
    return with_targets(locked, with_manifest)


def fixed_checkpoint(deployment: GenerationDeployment) -> GenerationDeployment:
    """A text generator whose checkpoint has the same key whatever quantizes it."""
    assert deployment.entry is not None
    entry = deployment.entry.model_copy(update={"checkpoint_key": "0123456789abcdef0123"})
    return dataclasses.replace(deployment, entry=entry)


def instance_capacity(deployment: Deployment) -> Capacity | None:
    """Capacity of an instance of the endpoint's own variant."""
    return variant_capacity(deployment, deployment.own)


def served_capacity(rate: float, **fields: Any) -> ServedCapacity:
    """A recorded load test of one instance."""
    given: dict[str, Any] = {
        "requests_per_second": rate,
        "slo_ms": 50.0,
        "instance_type": "ml.g5.xlarge",
        "server": "triton",
    }
    given |= {
        "endpoint": "dev-sentence-embedder",
        "date": "2026-11-21",
        "tool": "roundhouse bench 0.1.0",
    }
    return ServedCapacity(**{**given, **fields})


def with_served(deployment: Deployment, rate: float, **fields: Any) -> Deployment:
    """A deployment whose every engine has a measured capacity on its own instance type."""

    def with_capacity(target: Target) -> Target:
        assert target.lock_entry is not None
        found = served_capacity(rate, **{"instance_type": target.instance_type.name, **fields})
        entry = target.lock_entry.model_copy(update={"capacity": {found.instance_type: found}})
        return dataclasses.replace(target, lock_entry=entry)

    return with_targets(deployment, with_capacity)


def with_own_pools(deployment: Deployment, *instances: str) -> Deployment:
    """A deployment whose own variant is served by these types, each with engines of the first
    type's lock entries.
    """
    pools = []
    for priority, name in enumerate(instances, 1):
        instance = instance_types()[name]
        targets = tuple(
            dataclasses.replace(target, instance_type=instance) for target in deployment.own.targets
        )
        pools.append(Pool(instance_type=instance, priority=priority, targets=targets))
    return with_own(deployment, pools=tuple(pools))


def with_own(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose own variant has other fields."""
    return with_fields(
        deployment,
        variants=(dataclasses.replace(deployment.own, **fields), *deployment.variants[1:]),
    )


def with_variant(deployment: Deployment, name: str, **fields: Any) -> Deployment:
    """A deployment with a further variant like its own."""
    joined = dataclasses.replace(deployment.own, name=name, **fields)
    return with_fields(deployment, variants=(*deployment.variants, joined))


def variant(deployment: Deployment, name: str) -> Variant:
    """A variant by name."""
    return next(item for item in deployment.variants if item.name == name)


def with_serving(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose models are served otherwise; keys stay as they are."""

    def with_settings(target: Target) -> Target:
        serving = target.model.serving.model_copy(update=fields)
        return dataclasses.replace(
            target, model=target.model.model_copy(update={"serving": serving})
        )

    return with_targets(deployment, with_settings)
