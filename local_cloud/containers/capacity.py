"""The capacity of the local cloud: unlimited, unless a file in its state folder says."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import yaml

CAPACITY_FILE = "capacity.yaml"
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. "
    "Please retry using a different ML instance type or after some time. Consider configuring "
    "InstancePools in your EndpointConfig with multiple instance types for priority-based fallback "
    "to improve capacity availability."
)
"""SageMaker's failure reason when no instance can be had."""


class InsufficientCapacity(Exception):
    """There is no instance of the requested types; the message is SageMaker's."""

    def __init__(self, message: str = SHORT) -> None:
        super().__init__(message)


class CapacityFileError(InsufficientCapacity):
    """The capacity file cannot be used, so nothing can be started by it."""


class Capacity:
    """Counts the instances in use, against the rows of `capacity.yaml`."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._in_use: Counter[str] = Counter()
        self._turn = threading.Lock()

    def take(self, instance_types: tuple[str, ...]) -> str:
        """Take one instance of the first type that has any left, and return the type."""
        limits = _capacity_rows(self._state)
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


def _capacity_rows(state: Path) -> Mapping[str, int]:
    """Limits by instance type; none without a file. Raises CapacityFileError."""
    path = state / CAPACITY_FILE
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CapacityFileError(
            f"{path} cannot be read as YAML ({' '.join(str(error).split())}): correct or remove it."
        ) from error
    if not isinstance(rows, Mapping):
        raise CapacityFileError(
            f"{path} must map instance types to counts, such as `ml.g5.xlarge: 1`, found {rows!r}."
        )
    wrong = [item for item in rows.items() if type(item[1]) is not int or item[1] < 0]
    if wrong:
        shown = ", ".join(f"{name}: {count!r}" for name, count in wrong)
        raise CapacityFileError(
            f"{path} must give each instance type a whole number from 0 on, found {shown}."
        )
    return rows
