"""What is asked of a build."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.deployment import Deployment, Target


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One engine that must be built, and why."""

    deployment: Deployment
    target: Target
    why: str

    @property
    def engine_key(self) -> str:
        """What it is known by."""
        return self.target.engine_key
