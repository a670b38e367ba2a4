"""The capacity and quotas of the local cloud: unlimited, unless a file in its state folder says."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import yaml

from local_cloud.protocol.errors import AwsError, validation_error
from onboarding.aws_limits import ENDPOINT_INSTANCES_QUOTA, endpoint_quota, training_quota

CAPACITY_FILE = "capacity.yaml"
SAGEMAKER_QUOTAS = (endpoint_quota(""), training_quota(""))
"""How the names of quotas by instance type end."""
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
    """Limits by instance type or quota; none without a file. Raises CapacityFileError."""
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


def check_training_quota(state: Path, instance_type: str, running: int) -> None:
    """Refuse one more job than the account may run."""
    _check_instances(state, training_quota(instance_type), running, 1)


def check_endpoint_quotas(
    state: Path, running: Mapping[str, int], added: Mapping[str, int]
) -> None:
    """Refuse more instances of endpoints than the account may run.

    Both by instance type; `added`: those that a request starts.
    """
    for instance_type, count in added.items():
        _check_instances(state, endpoint_quota(instance_type), running.get(instance_type, 0), count)
    _check_instances(state, ENDPOINT_INSTANCES_QUOTA, sum(running.values()), sum(added.values()))


def service_quotas(state: Path) -> Mapping[str, int]:
    """Return the quotas that Service Quotas knows of SageMaker, by name: rows of the file."""
    return {
        name: value
        for name, value in _file_rows(state).items()
        if name == ENDPOINT_INSTANCES_QUOTA or name.endswith(SAGEMAKER_QUOTAS)
    }


def _check_instances(state: Path, name: str, running: int, added: int) -> None:
    most = _limit(state, name)
    if most is not None and added > 0 and running + added > most:
        raise AwsError(
            "ResourceLimitExceeded",
            f"The account-level service limit '{name}' is {most} Instances, with current "
            f"utilization of {running} Instances and a request delta of {added} Instances. Please "
            "use AWS Service Quotas to request an increase for this quota. If AWS Service Quotas "
            "is not available, contact AWS support to request an increase for this quota.",
        )


def check_build_quota(state: Path, running: int) -> None:
    """Refuse one more build than the account may have."""
    most = _limit(state, "concurrent builds")
    if most is not None and running >= most:
        raise AwsError(
            "AccountLimitExceededException",
            f"Cannot have more than {most} builds in queue for the account",
        )


def _limit(state: Path, name: str) -> int | None:
    return _file_rows(state).get(name)


def _file_rows(state: Path) -> Mapping[str, int]:
    try:
        return _capacity_rows(state)
    except CapacityFileError as error:
        raise validation_error(str(error)) from error
