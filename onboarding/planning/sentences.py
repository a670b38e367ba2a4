"""A memory plan in words: why it cannot work, what it costs, and the change that would spare it."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Pool
from onboarding.planning.memory import InstanceMemory, instance_memory
from onboarding.planning.memory_plan import MemoryPlan, memory_plans, pool_plan
from onboarding.planning.packing import Held, taken
from onboarding.platform import InstanceType, instance_types


def planning_faults(deployment: Deployment) -> tuple[str, ...]:
    """Why an endpoint cannot work: every model that does not fit into an instance of it, even
    alone. Empty when all do.
    """
    pools = [pool for variant in deployment.variants for pool in variant.pools]
    return tuple(dict.fromkeys(fault for pool in pools for fault in _pool_faults(deployment, pool)))


def planning_notes(deployment: Deployment) -> tuple[str, ...]:
    """What a multi-model endpoint will do, where that is worth a sentence: evictions, and memory
    that nobody measured.
    """
    return tuple(note for plan in memory_plans(deployment) for note in plan_notes(plan))


def plan_notes(plan: MemoryPlan) -> Iterator[str]:
    """The notes on one instance type."""
    where = f"Endpoint '{plan.endpoint}' on {plan.instance_type}"
    if plan.memory is None:
        yield f"{where}: the memory of this type is not known, so which models fit together is not either; add it to its row."
        return
    for name in plan.unmeasured:
        what = f"the {plan.memory.kind} of model '{name}' is not measured"
        yield f"{where}: {what}, so what fits beside it is not known; build it again where that can be measured."
    if not plan.fits and not plan.too_large:
        yield f"{where}: {_eviction(plan, plan.memory)}"


def packing_change(plan: MemoryPlan) -> str:
    """YAML that spreads a plan's models over endpoints that evict nothing: new endpoint files, and
    the models that move.
    """
    lines: list[str] = []
    for number, room in enumerate(plan.rooms, 1):
        name = endpoint_name(plan, number)
        names = ", ".join(sorted(each.name for each in room))
        if number == 1:
            lines.append(
                f"# endpoints/{name}.yaml keeps: {names} ({taken(room):.0f} of {plan.room_mib:.0f} MiB)"
            )
            continue
        lines.append(
            f"# endpoints/{name}.yaml, new: a copy of {plan.endpoint}.yaml with another name ({taken(room):.0f} MiB)"
        )
        lines.append(f"name: {name}")
        lines.extend(
            f"# models/{each.name}.yaml\nendpoint: {name}"
            for each in sorted(room, key=lambda held: held.name)
        )
    return "\n".join(lines)


def endpoint_name(plan: MemoryPlan, number: int) -> str:
    """The first endpoint of a packing is the one that is there."""
    return plan.endpoint if number == 1 else f"{plan.endpoint}-{number}"


def _pool_faults(deployment: Deployment, pool: Pool) -> Iterator[str]:
    plan = pool_plan(deployment, pool)
    for each in plan.too_large:
        assert plan.memory is not None
        yield (
            f"Model '{each.name}' takes {each.mib:.0f} MiB of {plan.memory.kind} (measured), and {plan.instance_type} of "
            f"endpoint '{deployment.name}' leaves {_left(plan.memory)}; {_larger(pool, each)}"
        )


def _eviction(plan: MemoryPlan, memory: InstanceMemory) -> str:
    largest = max(plan.models, key=lambda each: each.mib)
    if largest.mib > plan.room_mib:
        takes = f"the copies of '{largest.name}' take up to {largest.mib:.0f} MiB of {memory.kind}"
        return f"{takes}, and {_left(memory)} are there for them; lower its 'serving.instances_per_gpu'."
    count, slowest = len(plan.models), plan.slowest
    assert slowest is not None
    return (
        f"its {count} models take {plan.taken_mib:.0f} MiB of {memory.kind} together, and {_left(memory)} are there for them: "
        f"at least {plan.evicted} of them {'is' if plan.evicted == 1 else 'are'} out of memory at any time. Of requests spread "
        f"evenly over them at least {plan.evicted / count:.0%} wait for a load, and all of them when models are asked in turn: "
        f"{plan.round_seconds:g} s in each round, {slowest.load_seconds:g} s for '{slowest.name}'. {_spread(plan)}"
    )


def _spread(plan: MemoryPlan) -> str:
    rooms = [
        f"{endpoint_name(plan, number)}: {', '.join(sorted(each.name for each in room))}"
        for number, room in enumerate(plan.rooms, 1)
    ]
    return f"{len(rooms)} endpoints would hold them all ({'; '.join(rooms)}); `roundhouse status` shows the change."


def _left(memory: InstanceMemory) -> str:
    return f"{memory.usable_mib:.0f} of its {memory.total_mib:.0f} MiB"


def _larger(pool: Pool, model: Held) -> str:
    """Types of the same compute capability run the engine as it is."""
    fitting = [
        row.name
        for row in instance_types().values()
        if _is_alike(row, pool.instance_type) and _holds(row, model)
    ]
    if not fitting:
        return "choose an instance type with more memory for each GPU, or a smaller model"
    return f"choose an instance type with more memory, such as {', '.join(fitting[:3])}"


def _is_alike(row: InstanceType, other: InstanceType) -> bool:
    return row.compute_capability == other.compute_capability


def _holds(row: InstanceType, model: Held) -> bool:
    memory = instance_memory(row)
    return memory is not None and memory.usable_mib >= model.mib
