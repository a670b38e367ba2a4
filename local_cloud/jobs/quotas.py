"""The account's quotas for builds and jobs: none, unless the capacity file in the state folder
names one.
"""

from __future__ import annotations

from pathlib import Path

from local_cloud.aws_error import AwsError, validation_error
from local_cloud.capacity import CapacityFileError, capacity_rows

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
            f"The account-level service limit '{name}' is {most} Instances, with current utilization of {running} Instances and "
            "a request delta of 1 Instances. Please use AWS Service Quotas to request an increase for this quota. If AWS Service "
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
