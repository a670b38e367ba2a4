"""Findings on locked engines: signatures, memory that is too small, evictions and their cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onboarding.deployment import Deployment, Pool, signature_faults
from onboarding.document import Place
from onboarding.fault import Fault, FaultsError, sorted_faults
from onboarding.memory import (
    InstanceMemory,
    ModelMemory,
    PoolMemory,
    instance_memory,
    pool_memories,
    pool_memory,
)
from onboarding.platform import instance_types
from onboarding.resolve import deployments
from onboarding.tree import Tree


@dataclass(frozen=True, kw_only=True)
class MemoryFindings:
    """What cannot work by what the locks say, and what works at a cost."""

    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def memory_findings(tree: Tree) -> MemoryFindings:
    """Return the findings of every environment; none of a tree with faults of its own."""
    faults: list[Fault] = []
    notes: list[str] = []
    for environment in () if tree.faults else tree.views:
        try:
            environment_deployments = deployments(tree, environment)
        except FaultsError as error:
            faults.extend(error.faults)
            continue
        for deployment in environment_deployments:
            faults.extend(signature_faults(deployment))
            faults.extend(_placed_faults(tree, deployment))
            notes.extend(f"{environment}: {note}" for note in memory_notes(deployment))
    return MemoryFindings(faults=sorted_faults(faults), notes=tuple(dict.fromkeys(notes)))


def memory_faults(deployment: Deployment) -> tuple[str, ...]:
    """Return a message for every model that does not fit into an instance, even alone."""
    pools = [pool for variant in deployment.variants for pool in variant.pools]
    return tuple(dict.fromkeys(fault for pool in pools for fault in _pool_faults(deployment, pool)))


def memory_notes(deployment: Deployment) -> tuple[str, ...]:
    """Return a message for evictions of a multi-model endpoint, and for memory not measured."""
    return tuple(note for memory in pool_memories(deployment) for note in pool_notes(memory))


def pool_notes(pool: PoolMemory) -> Iterator[str]:
    """Return the notes on one instance type."""
    where = f"Endpoint '{pool.endpoint}' on {pool.instance_type}"
    if pool.memory is None:
        yield (
            f"{where}: the memory of this type is not known, so which models fit together is not "
            "either; add it to its row."
        )
        return
    for name in pool.unmeasured:
        yield (
            f"{where}: the {pool.memory.kind} of model '{name}' is not measured, so what fits "
            "beside "
            "it is not known; build it again where that can be measured."
        )
    if not pool.fits and not pool.too_large:
        yield f"{where}: {_eviction(pool, pool.memory)}"


def _placed_faults(tree: Tree, deployment: Deployment) -> Iterator[Fault]:
    for message in memory_faults(deployment):
        what, _, way_out = message.partition("; ")
        yield _instance_type_place(tree, deployment).fault(
            f"in environment {deployment.environment.name}, {what}", way_out=way_out
        )


def _instance_type_place(tree: Tree, deployment: Deployment) -> Place:
    view = tree.views[deployment.environment.name]
    if deployment.multi_model:
        return view.endpoints[deployment.name].document.at("instance_type")
    return view.models[deployment.name].document.at("endpoint", "instance_type")


def _pool_faults(deployment: Deployment, pool: Pool) -> Iterator[str]:
    memory = instance_memory(pool.instance_type)
    for model in pool_memory(deployment, pool).too_large:
        assert memory is not None
        yield (
            f"Model '{model.name}' takes {model.mib:.0f} MiB of {memory.kind} (measured), and "
            f"{pool.instance_type.name} of endpoint '{deployment.name}' leaves {_usable(memory)}; "
            f"{_larger_type(pool, model)}"
        )


def _eviction(pool: PoolMemory, memory: InstanceMemory) -> str:
    largest = max(pool.models, key=lambda model: model.mib)
    if largest.mib > pool.capacity_mib:
        return (
            f"the copies of '{largest.name}' take up to {largest.mib:.0f} MiB of "
            f"{memory.kind}, and "
            f"{_usable(memory)} are there for them; lower its 'serving.instances_per_gpu'."
        )
    slowest = pool.slowest
    assert slowest is not None
    return (
        f"its {len(pool.models)} models take {pool.total_mib:.0f} MiB of {memory.kind} together, "
        f"and {_usable(memory)} are there for them: SageMaker unloads those that were used least "
        "recently, and a request for one of them waits until it is loaded, up to "
        f"{slowest.load_seconds:g} s for '{slowest.name}'. Put some of them on another endpoint, "
        "or choose an instance type with more memory."
    )


def _usable(memory: InstanceMemory) -> str:
    return f"{memory.usable_mib:.0f} of its {memory.total_mib:.0f} MiB"


def _larger_type(pool: Pool, model: ModelMemory) -> str:
    capability = pool.instance_type.compute_capability
    rows = [row for row in instance_types().values() if row.compute_capability == capability]
    memories = ((row.name, instance_memory(row)) for row in rows)
    fitting = [
        name for name, memory in memories if memory is not None and memory.usable_mib >= model.mib
    ]
    if not fitting:
        return "choose an instance type with more memory for each GPU, or a smaller model"
    return f"choose an instance type with more memory, such as {', '.join(fitting[:3])}"
