"""An instance whose models are inference components: it has room, and no server of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from local_cloud.containers.container import ContainerSpec, start_container
from local_cloud.containers.server_client import ServerClient
from local_cloud.sagemaker.hosting.instance import Instance

IDLE_COMMAND = ("sleep", "infinity")
"""What runs on an instance beside its copies: when it ends, the instance is lost."""


@cache
def _instance_rows() -> dict[str, dict[str, Any]]:
    """The row of every hosting type known, by name, read without pydantic."""
    path = resources.files("onboarding.data").joinpath("instance_types.yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)["rows"]
    return {row["name"]: row for row in rows}


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What one copy of an inference component takes of its instance; memory in MiB."""

    accelerators: float = 0
    cpu_cores: float = 0
    memory_mb: float = 0

    def __add__(self, other: Requirements) -> Requirements:
        """Return both together."""
        return Requirements(
            accelerators=self.accelerators + other.accelerators,
            cpu_cores=self.cpu_cores + other.cpu_cores,
            memory_mb=self.memory_mb + other.memory_mb,
        )

    def fits(self, instance_type: str) -> bool:
        """Whether an instance type holds them: what is not known of a type holds all."""
        row = _instance_rows().get(instance_type)
        return row is None or (
            self.accelerators <= row.get("gpu_count", 0)
            and self.cpu_cores <= (row.get("vcpus") or self.cpu_cores)
            and self.memory_mb <= (1024 * (row.get("memory_gib") or 0) or self.memory_mb)
        )


def copy_requirements(specification: Mapping[str, Any]) -> Requirements:
    """Return what one copy takes of its instance."""
    wanted = specification.get("ComputeResourceRequirements") or {}
    return Requirements(
        accelerators=wanted.get("NumberOfAcceleratorDevicesRequired", 0),
        cpu_cores=wanted.get("NumberOfCpuCoresRequired", 0),
        memory_mb=wanted.get("MinMemoryRequiredInMb", 0),
    )


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
        return (self.taken_capacity + requirements).fits(self.instance_type)


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
