"""What a service may do by a role: the role's trust policy, its statements and its boundary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ministack.core import iam_evaluator
from ministack.services import iam


def may_assume(role_arn: str, service: str, source_arn: str) -> bool:
    """Return whether a service may assume a role on behalf of a resource of the role's account."""
    account = role_arn.split(":")[4]
    role = iam._roles.get_scoped(account, None, _name(role_arn))
    if role is None:
        return False
    trust: Any = role["AssumeRolePolicyDocument"]
    statements = (json.loads(trust) if isinstance(trust, str) else trust)["Statement"]
    keys = {"aws:sourceaccount": source_arn.split(":")[4], "aws:sourcearn": source_arn}
    context = _context(role_arn, "sts:AssumeRole", role_arn, keys)
    matching = [
        statement["Effect"]
        for statement in statements
        if iam_evaluator._service_principal_matches(statement.get("Principal"), service)
        and "sts:AssumeRole" in _list(statement.get("Action", ()))
        and iam_evaluator._conditions_met(statement.get("Condition") or {}, context)
    ]
    return "Allow" in matching and "Deny" not in matching


def allows(
    role_arn: str, action: str, resource: str, keys: Mapping[str, str] | None = None
) -> bool:
    """Return whether a role's policies and its boundary allow an action.

    `keys` are condition keys of the request, in lower case.
    """
    account, name = role_arn.split(":")[4], _name(role_arn)
    policies = iam_evaluator._gather_role_policies(name, account)
    limits = iam_evaluator._permissions_boundary(iam._roles, name, account)
    context = _context(role_arn, action, resource, dict(keys or {}))
    return bool(iam_evaluator.evaluate(context, policies, *limits).decision == "Allow")


def _context(role_arn: str, action: str, resource: str, keys: dict[str, Any]) -> Any:
    return iam_evaluator.EvalContext(
        principal_arn=role_arn,
        principal_type="AssumedRole",
        principal_account=role_arn.split(":")[4],
        action=action,
        resource_arn=resource,
        region=resource.split(":")[3] if resource.count(":") > 3 else "",
        service_context=keys,
    )


def _name(role_arn: str) -> str:
    return role_arn.rpartition("/")[2]


def _list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)
