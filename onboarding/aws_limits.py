"""Limits that AWS documents, once for `check`, the stacks, the template rules and the local cloud.

Sources: botocore 1.44.5, sagemaker and codebuild `service-2.json` (the shape is named in each
line's comment); SageMaker developer guide, "Invoke models for real-time inference" (60 s).
Checked 2026-11-22.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    # The local cloud reads this module in an environment without pydantic.
    from onboarding.values import Rollout


class Bounds(NamedTuple):
    """The least and the most that an API takes, both included."""

    least: int
    most: int

    def __contains__(self, number: object) -> bool:
        """Whether a number lies within the bounds."""
        return isinstance(number, int | float) and self.least <= number <= self.most

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"

    def clamp(self, number: float) -> int:
        """The nearest whole number within the bounds."""
        return min(self.most, max(self.least, int(number)))


NAME_LENGTH: Final = 63  # EndpointName, EndpointConfigName, ModelName, VariantName
NAME_PATTERN: Final = r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$"  # of the same
INSTANCE_POOL_COUNT: Final = 5  # InstancePoolList
SUBNET_COUNT: Final = 16  # Subnets
SECURITY_GROUP_COUNT: Final = 5  # VpcSecurityGroupIds


REAL_TIME_SECONDS: Final = 60
"""A real-time endpoint's container must answer within this time."""
ASYNCHRONOUS_SECONDS: Final = 3600  # InvocationTimeoutSeconds
CONCURRENT_INVOCATIONS: Final = Bounds(1, 1000)  # MaxConcurrentInvocationsPerInstance

DOWNLOAD_SECONDS: Final = Bounds(60, 3600)  # ProductionVariantModelDataDownloadTimeoutInSeconds
START_UP_SECONDS: Final = Bounds(60, 3600)
"""ProductionVariantContainerStartupHealthCheckTimeoutInSeconds."""

STEP_PERCENT: Final[dict[Rollout, Bounds]] = {
    "canary": Bounds(0, 50),  # CanarySize: no least is documented
    "linear": Bounds(10, 50),  # LinearStepSize
    "rolling": Bounds(5, 50),  # MaximumBatchSize
}
"""Share of a variant's instances that one step of a deployment takes, in percent."""
EXECUTION_SECONDS: Final = Bounds(600, 28800)  # MaximumExecutionTimeoutInSeconds
ROLLBACK_ALARM_COUNT: Final = 10  # AutoRollbackAlarms
ENVIRONMENT_VARIABLE_COUNT: Final = 100  # EnvironmentMap
ENVIRONMENT_VALUE_LENGTH: Final = 1024  # EnvironmentValue
ENVIRONMENT_BYTES: Final = 32 * 1024  # ContainerDefinition.Environment: names and values together

BUILD_MINUTES: Final = Bounds(5, 2160)  # CodeBuild: timeoutInMinutes
TRAINING_VOLUME_GIB: Final = Bounds(1, 16384)  # VolumeSizeInGB of ResourceConfig

ENDPOINT_INSTANCES_QUOTA: Final = "Number of instances across active endpoints"


def endpoint_quota(instance_type: str) -> str:
    """Return the name in Service Quotas of the instances of a type that endpoints may run."""
    return f"{instance_type} for endpoint usage"


def training_quota(instance_type: str) -> str:
    """Return the name in Service Quotas of the instances of a type that training jobs may run."""
    return f"{instance_type} for training job usage"


SESSION_SECONDS: Final = Bounds(3600, 21_600)
"""Seconds that a role's session may last: IAM's least (its most is 12 hours), and the six hours
that a job on GitHub's own runners may take.
"""
GITHUB_ISSUER: Final = "token.actions.githubusercontent.com"
"""Who signs the tokens of GitHub's workflows; the name of its OIDC provider in IAM."""
