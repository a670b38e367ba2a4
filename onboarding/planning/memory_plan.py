"""How the models of one multi-model endpoint share an instance's memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onboarding.deployment import Deployment, Pool
from onboarding.planning.memory import InstanceMemory, instance_memory, model_mib, one_copy_mib
from onboarding.planning.packing import Held, packed, taken, together


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The models of one endpoint on one instance type.

    `memory` None: the platform data do not know the type's.
    """

    endpoint: str
    instance_type: str
    memory: InstanceMemory | None
    models: tuple[Held, ...]
    """Those measured, by name."""
    too_large: tuple[Held, ...]
    """Of those, the ones that fit not even alone, with one copy of the engine, which is what they
    take here.
    """
    unmeasured: tuple[str, ...]
    not_built: tuple[str, ...]

    @property
    def room_mib(self) -> float:
        """Memory that models may take."""
        return 0.0 if self.memory is None else self.memory.usable_mib

    @property
    def taken_mib(self) -> float:
        """Memory that all models take together."""
        return taken(self.models)

    @property
    def is_known(self) -> bool:
        """Whether every built model's memory and the instance's are known."""
        return self.memory is not None and not self.unmeasured

    @property
    def fits(self) -> bool:
        """Whether all models measured are in memory at once; true of none where the instance's
        memory is unknown.
        """
        return self.memory is not None and self.taken_mib <= self.room_mib

    @property
    def at_once(self) -> tuple[Held, ...]:
        """The most models that can be in memory at once."""
        return together(self.models, self.room_mib)

    @property
    def evicted(self) -> int:
        """Models that are out of memory at any time, at least."""
        return len(self.models) - len(self.at_once)

    @property
    def round_seconds(self) -> float:
        """What the loads of one round take, when all models are asked in turn and the least
        recently asked gives way.

        Unless all fit, each of them is evicted before its turn comes again: it would be the last to
        stay, so all would be there.
        """
        return 0.0 if self.fits else sum(each.load_seconds for each in self.models)

    @property
    def slowest(self) -> Held | None:
        """The model whose eviction costs most."""
        return max(self.models, key=lambda each: (each.load_seconds, each.name), default=None)

    @property
    def rooms(self) -> tuple[tuple[Held, ...], ...]:
        """A packing over endpoints of this instance type, in which nothing is evicted; models that
        fit nowhere are left out.
        """
        return packed([each for each in self.models if each.mib <= self.room_mib], self.room_mib)


def memory_plans(deployment: Deployment) -> tuple[MemoryPlan, ...]:
    """One plan for each instance type of a multi-model endpoint; none for an endpoint of one model."""
    return (
        tuple(pool_plan(deployment, pool) for pool in deployment.own.pools)
        if deployment.multi_model
        else ()
    )


def pool_plan(deployment: Deployment, pool: Pool) -> MemoryPlan:
    """The plan of one instance type."""
    memory = instance_memory(pool.instance_type)
    measured, too_large, unmeasured, not_built = [], [], [], []
    for target in sorted(pool.targets, key=lambda each: each.model.name):
        name, mib, one = target.model.name, model_mib(deployment, target), one_copy_mib(target)
        if target.lock_entry is None:
            not_built.append(name)
        elif mib is None or one is None:
            unmeasured.append(name)
        else:
            held = Held(name=name, mib=mib, load_seconds=target.lock_entry.manifest.load_seconds)
            measured.append(held)
            if memory is not None and one > memory.usable_mib:
                too_large.append(replace(held, mib=one))
    return MemoryPlan(
        endpoint=deployment.name,
        instance_type=pool.instance_type.name,
        memory=memory,
        models=tuple(measured),
        too_large=tuple(too_large),
        unmeasured=tuple(unmeasured),
        not_built=tuple(not_built),
    )
