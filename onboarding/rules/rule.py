"""What rules judge, and how they run: a rule yields the faults of one file, or of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic

from onboarding.dataset import Datasets
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault
from onboarding.model_spec import ModelSpec
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.validation import Checked, SpecT_co
from onboarding.values import Server


@dataclass(frozen=True, kw_only=True)
class PlacementCase(Generic[SpecT_co]):
    """One endpoint on one environment's hardware and platform; paths are of the file."""

    environment: Checked[EnvironmentSpec]
    platform: ServingPlatform
    instance: InstanceType
    file: Checked[SpecT_co]
    instance_path: str
    server: Server
    server_path: str
    multi_model: bool


@dataclass(frozen=True, kw_only=True)
class EngineCase:
    """One model on one instance type that serves it; the path is of the model's file."""

    model: Checked[ModelSpec]
    datasets: Datasets
    platform: ServingPlatform
    instance: InstanceType
    instance_path: str
    instances: tuple[InstanceType, ...]
    """Every instance type that serves the model there."""
    server: Server
    multi_model: bool
    has_signers: bool
    """True where endpoints take signed engines alone."""
    driver: int | None
    """NVIDIA's, of the environment's host image; None where it is not known."""
    is_called: bool
    """True where an ensemble calls the model."""

    @property
    def hardware(self) -> str:
        """The instance type in words."""
        instance = self.instance
        if not instance.is_gpu:
            return f"{instance.name} is a CPU"
        return f"{instance.name} ({instance.gpu}) has {instance.compute_capability}"


def faults_of(rules: Iterable[Callable[..., Iterator[Fault]]], *arguments: Any) -> Iterator[Fault]:
    """Yield the faults that rules find."""
    for rule in rules:
        yield from rule(*arguments)
