"""What workflows know of an environment: its place in the order of promotion, and its roles."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.tree import Tree
from roundhouse.session import LOCAL


@dataclass(frozen=True, kw_only=True)
class PipelineEnvironment:
    """One environment of the workflows; `roles` holds the ARN of each by its purpose."""

    name: str
    account: str
    region: str
    promotes_from: str | None
    roles: dict[str, str]
    has_roles: bool
    """Whether the file names a repository, for whose workflows the access stack makes the roles."""
    session_seconds: int
    """How long the build and deploy roles' sessions may last."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def pipeline_environments(tree: Tree) -> list[PipelineEnvironment]:
    """Return all environments but the local cloud; one that receives comes after its source."""
    ordered: dict[str, EnvironmentSpec] = {}
    visited = {LOCAL}

    def visit(name: str) -> None:
        spec = tree.environments.get(name)
        if spec is None or name in visited:
            return
        visited.add(name)
        if spec.promotes_from is not None:
            visit(spec.promotes_from)
        ordered[name] = spec

    for name in sorted(tree.environments):
        visit(name)
    return [
        PipelineEnvironment(
            name=name,
            account=spec.account,
            region=spec.region,
            promotes_from=spec.promotes_from,
            roles={role: names.pipeline_role_arn(spec, role) for role in names.PIPELINE_ROLES},
            has_roles=spec.github is not None,
            session_seconds=spec.session_seconds,
        )
        for name, spec in ordered.items()
    ]
