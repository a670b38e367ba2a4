"""Where copies of inference components are placed, and the instances that are added for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from local_cloud.sagemaker.components.component import Component, Spec
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet
from local_cloud.sagemaker.hosting.instance import Instance, ServerError
from local_cloud.sagemaker.hosting.machine import Machine
from local_cloud.sagemaker.hosting.requirements import Requirements, copy_requirements


class NotPlaced(ServerError):
    """No instance holds one more copy, and none may be added."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reservation:
    """Reservation for one copy on an instance, reserved until the copy takes it."""

    machine: Machine
    turn: threading.Lock

    def take(self, copy: Instance) -> None:
        """Place a copy where its room was reserved."""
        with self.turn:
            self.machine.placed[copy] = self.machine.placed.pop(self)

    def free(self) -> None:
        """Give the room back, unless a copy took it."""
        with self.turn:
            self.machine.placed.pop(self, None)


@dataclass(kw_only=True)
class Placement:
    """Reserves room on instances, one copy after another."""

    _turn: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def reserve(
        self, component: Component, specification: Spec, fleet: Fleet
    ) -> Iterator[Reservation]:
        """Yield room for one copy, which is free again where no copy takes it.

        Raises NotPlaced, and what the start of a further instance raises.
        """
        variant, needed = fleet.production[component.variant], copy_requirements(specification)
        with self._turn:
            machine = choose_machine(machines(variant), needed, specification)
            if machine is None:
                add_machine(variant, component.name, needed)
                machine = choose_machine(machines(variant), needed, specification)
            if machine is None:
                raise placement_failure(component.name, variant, needed)
            reservation = Reservation(machine=machine, turn=self._turn)
            machine.placed[reservation] = needed
        try:
            yield reservation
        finally:
            reservation.free()

    def release_unused(self, fleet: Fleet) -> None:
        """Stop the instances without a copy, down to the fewest that their variant keeps."""
        with self._turn:
            for variant in fleet.production.values():
                scaling = variant.spec.get("ManagedInstanceScaling") or {}
                used = [machine for machine in machines(variant) if not machine.is_unused]
                if scaling.get("Status") == "ENABLED":
                    variant.desired = max(len(used), scaling.get("MinInstanceCount", 1))
                    variant.desired = min(variant.desired, len(variant.instances))
                    variant.shrink()


def machines(variant: VariantFleet) -> tuple[Machine, ...]:
    """Return the instances of a variant that take copies."""
    return tuple(item for item in tuple(variant.instances) if isinstance(item, Machine))


def choose_machine(
    among: Sequence[Machine], needed: Requirements, specification: Spec
) -> Machine | None:
    """Return an instance with room: the least used one, or with BINPACK the most used one."""
    fitting = [machine for machine in among if machine.holds(needed)]
    scheduling = specification.get("SchedulingConfig") or {}
    sign = -1 if scheduling.get("PlacementStrategy") == "BINPACK" else 1

    def use(machine: Machine) -> float:
        return sign * (machine.taken_capacity.accelerators or len(machine.placed))

    return min(fitting, key=use, default=None)


def add_machine(variant: VariantFleet, component: str, needed: Requirements) -> None:
    """Start one more instance where managed instance scaling allows it. Raises NotPlaced."""
    scaling = variant.spec.get("ManagedInstanceScaling") or {}
    most = scaling.get("MaxInstanceCount", 0) if scaling.get("Status") == "ENABLED" else 0
    if len(variant.instances) >= most:
        raise placement_failure(component, variant, needed)
    variant.desired = len(variant.instances) + 1
    try:
        variant.fill()
    except BaseException:
        variant.desired = len(variant.instances)
        raise


def placement_failure(component: str, variant: VariantFleet, needed: Requirements) -> NotPlaced:
    """Return the failure reason of a copy that finds no room."""
    return NotPlaced(
        f"There is not enough room for one more copy of inference component {component}: it needs "
        f"{needed.accelerators:g} accelerators, {needed.cpu_cores:g} CPU cores and "
        f"{needed.memory_mb:g} MB on one of the {len(variant.instances)} instances of variant "
        f"{variant.name}, and ManagedInstanceScaling allows no further instance."
    )
