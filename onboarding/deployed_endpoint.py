"""One endpoint of one environment, whatever answers behind it, and what builds make for it."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import BuiltEntry


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """What a build makes of one model: an engine, or a checkpoint."""

    key: str
    model: str
    entry: BuiltEntry | None
    """Of a lock; None: not built yet."""
    held_by: str | None = None
    """The environment that built it, where this one is to receive it by promotion."""


@dataclass(frozen=True, kw_only=True)
class DeployedEndpoint:
    """One endpoint of one environment, whatever answers behind it: base of each workload's."""

    environment: EnvironmentSpec
    name: str
    """In the tree."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models that answer behind it, each once."""
        return tuple(dict.fromkeys(artifact.model for artifact in self.artifacts))

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What it serves, once each."""
        raise NotImplementedError

    @property
    def is_component(self) -> bool:
        """True where copies of an inference component answer, which has the endpoint's name."""
        raise NotImplementedError

    @property
    def locked(self) -> tuple[Artifact, ...]:
        """What locks have of what the files ask for now, served or not."""
        return tuple(artifact for artifact in self.artifacts if artifact.entry is not None)

    @property
    def is_built(self) -> bool:
        """True where nothing that it serves is missing."""
        return all(artifact.entry is not None for artifact in self.artifacts)

    def source_command(self, artifact: Artifact) -> str:
        """Return the command that brings what it serves into the environment's bucket."""
        own = self.environment.name
        if artifact.held_by is None:
            return f"`roundhouse build --env {own} --model {artifact.model}`"
        return f"`roundhouse promote --from {self.environment.promotes_from} --to {own}`"
