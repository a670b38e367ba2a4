"""Every way a command can fail.

RoundhouseError        1   something is refused: a fault in a file, a name that does not exist
├── UsageError         2   options or arguments that do not fit
├── DriftError         2   what runs is not what was deployed
├── BuildFailedError   3   an engine was not built
├── DeployFailedError  4   AWS, or the local cloud, did not accept a deployment
├── NotReadyError      5   this machine or the cloud is not ready: a port, a folder, the network
│   └── AwsError           what AWS refused, or why it was not reached
└── WrongAnswerError   6   an endpoint answered, and the answer is not what it must be

Ctrl-C exits 130.
"""

from __future__ import annotations


class RoundhouseError(Exception):
    """What is wrong and the way out, in one sentence for the user."""

    exit_code = 1


class UsageError(RoundhouseError):
    """Options or arguments that do not fit."""

    exit_code = 2


class DriftError(RoundhouseError):
    """What runs is not what was deployed."""

    exit_code = 2


class BuildFailedError(RoundhouseError):
    """An engine was not built; locks and endpoints are as they were."""

    exit_code = 3


class DeployFailedError(RoundhouseError):
    """A deployment was refused or rolled back."""

    exit_code = 4


class NotReadyError(RoundhouseError):
    """The machine, its environments or the cloud behind it are not ready."""

    exit_code = 5


class AwsError(NotReadyError):
    """What AWS refused, or why it was not reached.

    `is_temporary`: the same call may succeed a little later, since it was throttled, met a fault of
    the service, or did not reach it. The cause is botocore's own error.
    """

    def __init__(self, message: str, *, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary


class WrongAnswerError(RoundhouseError):
    """An endpoint's answer is not what it must be."""

    exit_code = 6
