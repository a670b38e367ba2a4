"""What one environment deploys: each endpoint with its hardware, platform, and the engine every target model needs."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import LockEntry
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.values import Server


@dataclass(frozen=True, kw_only=True)
class Target:
    """One model at one endpoint: its spec with the environment's overrides, its key, and what the lock records of it."""

    model: ModelSpec
    engine_key: str
    network_keys: dict[str, str]
    lock_entry: LockEntry | None
    """None: not built yet."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One endpoint of one environment."""

    environment: EnvironmentSpec
    name: str
    endpoint: EndpointSpec
    server: Server
    multi_model: bool
    instance_type: InstanceType
    platform: ServingPlatform
    inference_ami_version: str | None
    """None on CPU."""
    targets: tuple[Target, ...]

    @property
    def missing(self) -> tuple[Target, ...]:
        """Targets with no engine in the lock."""
        return tuple(target for target in self.targets if target.lock_entry is None)
