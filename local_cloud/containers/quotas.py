"""How many instances of each type the local cloud has.

Any number, unless a file in its state folder says otherwise.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import yaml

from local_cloud.protocol.errors import AwsError, validation_error

CAPACITY_FILE = "capacity.yaml"
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity "
    "error. Please retry using a different "
    "ML instance type or after some time. Consider configuring InstancePools in your "
    "EndpointConfig with multiple instance types "
    "for priority-based fallback to improve capacity availability."
)
"""SageMaker's failure reason when no instance can be had."""


class InsufficientCapacity(Exception):
    """No instance of the asked-for types can be had.

    The message is SageMaker's, or says what is wrong with the file.
    """

    def __init__(self, message: str = SHORT) -> None:
        super().__init__(message)


class CapacityFileError(InsufficientCapacity):
    """The capacity file cannot be used, so nothing can be started by it."""


class Capacity:
    """Counts the instances in use.

    `capacity.yaml` maps an instance type to how many there are; 0 is out of capacity.
    """

    def __init__(self, state: Path) -> None:
        self._file = state / CAPACITY_FILE
        self._in_use: Counter[str] = Counter()
        self._turn = threading.Lock()

    def take(self, instance_types: tuple[str, ...]) -> str:
        """Takes one instance of the first type that has any left, and names the type."""
        limits = capacity_rows(self._file.parent)
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


def capacity_rows(state: Path) -> Mapping[str, int]:
    """What the capacity file says, by instance type or quota; nothing without one.

    Raises CapacityFileError.
    """
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
    wrong = [
        f"{name}: {count!r}" for name, count in rows.items() if type(count) is not int or count < 0
    ]
    if wrong:
        raise CapacityFileError(
            f"{path} must give each instance type a whole number from 0 on, found "
            f"{', '.join(wrong)}."
        )
    return rows


BUILDS = "concurrent builds"


def training_quota(instance_type: str) -> str:
    """A quota's name, as Service Quotas has it."""
    return f"{instance_type} for training job usage"


def check_training_quota(state: Path, instance_type: str, running: int) -> None:
    """Refuses one more job than the account may run."""
    name = training_quota(instance_type)
    most = _limit(state, name)
    if most is not None and running >= most:
        raise AwsError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{name}' is {most} Instances, with current "
            f"utilization of {running} Instances and "
            "a request delta of 1 Instances. Please use AWS Service Quotas to request an "
            "increase for this quota. If AWS Service "
            "Quotas is not available, contact AWS support to request an increase for this quota.",
        )


def check_build_quota(state: Path, running: int) -> None:
    """Refuses one more build than the account may have."""
    most = _limit(state, BUILDS)
    if most is not None and running >= most:
        raise AwsError(
            "AccountLimitExceededException",
            f"Cannot have more than {most} builds in queue for the account",
        )


def _limit(state: Path, name: str) -> int | None:
    try:
        return capacity_rows(state).get(name)
    except CapacityFileError as error:
        raise validation_error(str(error)) from error
