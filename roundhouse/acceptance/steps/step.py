"""A step of an acceptance run, and what it works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from onboarding.deployment import Deployment
from roundhouse.acceptance.assumptions import Assumption, Findings
from roundhouse.acceptance.evidence import Evidence
from roundhouse.acceptance.setup import Setup, TinyModel
from roundhouse.session import Session

LOCAL_LOOK_SECONDS, LOOK_SECONDS = 0.5, 10.0


@dataclass(kw_only=True)
class AcceptanceContext:
    """One run under way.

    Steps add to `built` and `deployed`, by the names of models; `failed` are steps that failed.
    """

    session: Session
    setup: Setup
    evidence: Evidence
    findings: Findings
    built: set[str] = field(default_factory=set)
    deployed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    sleep: Callable[[float], None] = time.sleep

    @property
    def look_seconds(self) -> float:
        """Return the pause between two looks at what takes minutes on AWS."""
        return LOCAL_LOOK_SECONDS if self.setup.in_local_cloud else LOOK_SECONDS

    def of(self, *models: str) -> Session:
        """Return the session that works on the endpoints of some models alone."""
        return replace(self.session, endpoints=models)

    def deployment(self, model: TinyModel) -> Deployment:
        """Return a model's endpoint as its files and lock are now."""
        (deployment,) = self.of(model.name).deployments()
        return deployment

    def answering(self) -> tuple[TinyModel, ...]:
        """Return the models whose endpoints answer."""
        return tuple(model for model in self.setup.deployed if model.name in self.deployed)


@dataclass(frozen=True, kw_only=True)
class AcceptanceStep:
    """One step: `name` is what docs/verification.md calls it.

    `limit_minutes`: the run goes on without it then, and its cost is bounded by that. `instances`:
    how many of each endpoint run while it does, at most. `obstacle`: why it cannot be reached, or
    None. `creates`: what it is about to create in the account. `run` raises RoundhouseError.
    """

    name: str
    title: str
    limit_minutes: float
    assumptions: Callable[[Setup], tuple[Assumption, ...]]
    run: Callable[[AcceptanceContext], str]
    """Returns the step's last line."""
    instances: Mapping[str, int] = field(default_factory=dict)
    obstacle: Callable[[AcceptanceContext], str | None] = lambda context: None
    creates: Callable[[Setup], tuple[str, ...]] = lambda setup: ()


def no_builder(context: AcceptanceContext) -> str | None:
    """Return why engines cannot be built, nor endpoints started."""
    missing = sorted(context.failed & {"stacks", "images"})
    return f"step {missing[0]} failed" if missing else None


def no_endpoint(context: AcceptanceContext) -> str | None:
    """Return why a step that asks endpoints cannot be reached."""
    return None if context.deployed else "no endpoint answers"


def no_python_endpoint(context: AcceptanceContext) -> str | None:
    """Return why a step that changes the endpoint of several instances cannot be reached."""
    return None if "python" in context.deployed else "endpoint python does not answer"
