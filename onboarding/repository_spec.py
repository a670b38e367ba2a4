"""The spec of a model file whose source is a Triton model repository of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from onboarding.keys import RECIPE_VERSION, digest
from onboarding.manifest import Manifest
from onboarding.model_spec import AccuracySpec, EngineSpec, ModelSpec, OptimizationProfileSpec
from onboarding.platform import InstanceType, ServingPlatform
from onboarding.source_spec import TritonRepositorySpec

KEY = "triton_repository"
OF_NETWORKS = frozenset(("accuracy", "engine"))
"""Sections of a model file that a repository has not: nothing is compiled of it, and no float
network tells what it should answer."""


class RepositorySpec(ModelSpec):
    """One model file with `source: {triton_repository: …}`."""

    engine: EngineSpec = Field(
        EngineSpec(optimization_profiles=(OptimizationProfileSpec(batch=(1, 1, 1)),)),
        description="Of a network",
    )
    accuracy: AccuracySpec = Field(AccuracySpec(dataset=""), description="Of a network")

    @property
    def repository(self) -> TritonRepositorySpec:
        """Where the repository lies."""
        assert self.source.triton_repository is not None
        return self.source.triton_repository


def has_repository(data: Mapping[str, Any]) -> bool:
    """Return True for the data of a model file that names a repository."""
    source = data.get("source")
    return isinstance(source, Mapping) and KEY in source


def repository_key(spec: RepositorySpec, platform: ServingPlatform, instance: InstanceType) -> str:
    """Return the key of a repository's archive on an instance type: its files, and what serves it.

    A folder is its digest, wherever it lies.
    """
    source = spec.repository
    place = {"folder"} if source.folder is not None and source.sha256 is not None else set()
    inputs = {
        "recipe": RECIPE_VERSION,
        "name": spec.name,
        KEY: source.model_dump(mode="json", exclude=place),
        "platform": platform.name,
        "compute_capability": instance.compute_capability,
    }
    return digest(inputs)


def repository_models(manifest: Manifest) -> tuple[str, ...]:
    """Return the models of a repository's archive."""
    paths = (path.split("/") for path in manifest.files)
    return tuple(sorted(path[0] for path in paths if path[1:] == ["config.pbtxt"]))
