"""The facts and overrides of one environment file, `environments/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from onboarding.values import Value


class NetworkSpec(Value):
    """The VPC that endpoints and builds run in."""

    vpc_id: str
    subnet_ids: tuple[str, ...] = Field(min_length=1)
    security_group_ids: tuple[str, ...] = Field(min_length=1)


class EnvironmentSpec(Value):
    """One account and region, its serving platform, and what it changes of each model."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,15}$")]
    account: Annotated[str, Field(pattern=r"^\d{12}$")]
    region: str
    platform: str = Field(description="A row of onboarding/data/serving_platforms.yaml")
    locks: str = Field("models", description="Folder of the lock files, relative to the onboarding root")
    kms_key_arn: str | None = None
    network: NetworkSpec | None = None
    permissions_boundary_arn: str | None = None
    alarm_email: str | None = None
    inference_ami_version: str | None = Field(None, description="Default: the platform's; must be named where the platform leaves it open")
    gpu_fleet_arn: str | None = Field(None, description="CodeBuild fleet that builds for compute capabilities on-demand CodeBuild lacks")
    models: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Overrides, by model name: a part of the model file")
    endpoints: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Overrides, by shared endpoint name")
