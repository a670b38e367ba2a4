"""Compares what a role needs with what its statements allow."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.assembly.needs import Need
from template_rules.policies import ROLE, Statement, has_foreign_policy, is_allowed, role_statements
from template_rules.templates import Assembly, Problem, Resource


def lacking_actions(
    assembly: Assembly, user: Resource, path: str, needs: list[Need], role: Resource | None = None
) -> Iterator[Problem]:
    """Yield the actions that a role lacks, one finding a reason."""
    found = role or assembly.find(user.properties.get(path), ROLE)
    if found is None or has_foreign_policy(assembly, found):
        return
    granted = role_statements(assembly, found)
    lacking: dict[str, list[str]] = {}
    for need in needs:
        context = {"aws:SecureTransport": "true", **need.context}
        if not _is_met(granted, need, context):
            lacking.setdefault(need.reason, []).append(need.text)
    for reason, missing in lacking.items():
        what = f"role {found.logical_id} lacks what it needs {reason}"
        value = ", ".join(missing[:4])
        yield user.problem(path, what, "allow it in the role's policy", value=value)


def _is_met(granted: list[Statement], need: Need, context: dict[str, object]) -> bool:
    if is_allowed(granted, need.action, need.arn, context):
        return True
    prefix = need.arn.rstrip("*")
    inside = (arn for item in granted for arn in item.resources if arn.startswith(prefix))
    return need.under and any(is_allowed(granted, need.action, arn, context) for arn in inside)
