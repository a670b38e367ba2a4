"""An instance whose models are inference components: it has room, and no server of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cloud.containers.container import ContainerSpec, start_container
from local_cloud.containers.server_client import ServerClient
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.platform_data import Requirements, type_capacity

IDLE_COMMAND = ("sleep", "infinity")
"""What runs on an instance beside its copies: when it ends, the instance is lost."""


@dataclass(kw_only=True, eq=False)
class Machine(Instance):
    """An instance and what is placed on it: a copy, or the key of one that is being started."""

    placed: dict[object, Requirements] = field(default_factory=dict)

    @property
    def copies(self) -> tuple[Instance, ...]:
        """The copies on it that have started."""
        return tuple(item for item in tuple(self.placed) if isinstance(item, Instance))

    @property
    def processes(self) -> tuple[int, ...]:
        """Its own process, and those of its copies."""
        own = (self.container.process.pid,)
        return (*own, *(pid for copy in self.copies for pid in copy.processes))

    @property
    def requests(self) -> int:
        """The requests in flight of its copies."""
        return sum(copy.in_flight for copy in self.copies)

    def terminate(self, grace_seconds: float) -> None:
        """End it, and whatever of its copies is left."""
        for copy in self.copies:
            copy.terminate(0.0)
        super().terminate(0.0)

    @property
    def is_unused(self) -> bool:
        """Whether nothing is placed on it."""
        return not self.placed

    @property
    def taken_capacity(self) -> Requirements:
        """What is taken of it."""
        return sum(tuple(self.placed.values()), Requirements())

    def holds(self, requirements: Requirements) -> bool:
        """Whether one more copy fits."""
        return (self.taken_capacity + requirements).fits(type_capacity(self.instance_type))

    def is_sick(self) -> bool:
        """An instance answers no pings: its copies do."""
        return False


def start_machine(variant: Mapping[str, Any], instance_type: str, folder: Path) -> Machine:
    """Start an instance without a model."""
    folder.mkdir(parents=True)
    spec = ContainerSpec(
        command=IDLE_COMMAND,
        environment={"PATH": "/usr/bin:/bin"},
        folder=folder,
        log=folder / "instance.log",
        own_network=False,
    )
    container = start_container(spec)
    return Machine(
        variant=str(variant["VariantName"]),
        instance_type=instance_type,
        model_name="",
        folder=folder,
        container=container,
        client=ServerClient(container.connection),
    )
