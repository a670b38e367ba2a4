"""How many instances of each type the local cloud has: any number, unless a file in its state folder says otherwise."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import yaml

CAPACITY_FILE = "capacity.yaml"
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. Please retry using a different "
    "ML instance type or after some time. Consider configuring InstancePools in your EndpointConfig with multiple instance types "
    "for priority-based fallback to improve capacity availability."
)
"""SageMaker's failure reason when no instance can be had."""


class InsufficientCapacity(Exception):
    """No instance of the asked-for types is left; the message is SageMaker's."""

    def __init__(self) -> None:
        super().__init__(SHORT)


class Capacity:
    """Counts the instances in use. `capacity.yaml` maps an instance type to how many there are; 0 is out of capacity."""

    def __init__(self, state: Path) -> None:
        self._file = state / CAPACITY_FILE
        self._in_use: Counter[str] = Counter()
        self._turn = threading.Lock()

    def take(self, instance_types: tuple[str, ...]) -> str:
        """Takes one instance of the first type that has any left, and names the type."""
        limits = self._limits()
        with self._turn:
            for name in instance_types:
                if self._in_use[name] < limits.get(name, float("inf")):
                    self._in_use[name] += 1
                    return name
        raise InsufficientCapacity

    def give_back(self, instance_type: str) -> None:
        """Returns one instance."""
        with self._turn:
            self._in_use[instance_type] -= 1

    def _limits(self) -> dict[str, float]:
        if not self._file.exists():
            return {}
        rows: dict[str, float] = yaml.safe_load(self._file.read_text(encoding="utf-8")) or {}
        return rows
