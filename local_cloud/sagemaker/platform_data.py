"""Platform data that the local cloud reads without pydantic, and what copies take of a type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def instance_rows() -> dict[str, dict[str, Any]]:
    """Return the row of every hosting type known, by name."""
    return {row["name"]: row for row in _content("instance_types.yaml")["rows"]}


@cache
def scale_to_zero_regions() -> tuple[frozenset[str], frozenset[str]]:
    """Return regions that took an endpoint without instances, and those that refused it."""
    regions = _content("generation_platforms.yaml")["scale_to_zero"]
    return frozenset(regions["accepted"]), frozenset(regions["refused"])


def _content(name: str) -> Any:
    text = resources.files("onboarding.data").joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


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

    def fits(self, capacity: Requirements | None) -> bool:
        """Whether a capacity holds them; one that is not known holds all."""
        return capacity is None or (
            self.accelerators <= capacity.accelerators
            and self.cpu_cores <= (capacity.cpu_cores or self.cpu_cores)
            and self.memory_mb <= (capacity.memory_mb or self.memory_mb)
        )


def type_capacity(instance_type: str) -> Requirements | None:
    """Return what an instance type has; 0 cores or memory are unknown, None is an unknown type."""
    row = instance_rows().get(instance_type)
    if row is None:
        return None
    return Requirements(
        accelerators=row.get("gpu_count", 0),
        cpu_cores=row.get("vcpus") or 0,
        memory_mb=1024 * (row.get("memory_gib") or 0),
    )


def copy_requirements(specification: Mapping[str, Any]) -> Requirements:
    """Return what one copy takes of its instance."""
    wanted = specification.get("ComputeResourceRequirements") or {}
    return Requirements(
        accelerators=wanted.get("NumberOfAcceleratorDevicesRequired", 0),
        cpu_cores=wanted.get("NumberOfCpuCoresRequired", 0),
        memory_mb=wanted.get("MinMemoryRequiredInMb", 0),
    )
