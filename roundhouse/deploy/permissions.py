"""Permissions that a deployment adds: new IAM and resource policy statements, and ingress rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roundhouse.deploy.stacks import Template
from roundhouse.errors import DeployFailedError
from roundhouse.paths import displayed_path, writing
from roundhouse.report import Report
from roundhouse.text import quantity

Confirm = Callable[[str], bool]

POLICY_PROPERTIES = {
    "AWS::IAM::Role": ("AssumeRolePolicyDocument",),
    "AWS::IAM::Policy": ("PolicyDocument",),
    "AWS::IAM::ManagedPolicy": ("PolicyDocument",),
    "AWS::S3::BucketPolicy": ("PolicyDocument",),
    "AWS::KMS::Key": ("KeyPolicy",),
    "AWS::SNS::TopicPolicy": ("PolicyDocument",),
    "AWS::SQS::QueuePolicy": ("PolicyDocument",),
    "AWS::ECR::Repository": ("RepositoryPolicyText",),
    "AWS::EC2::VPCEndpoint": ("PolicyDocument",),
}
LISTS = {
    "AWS::IAM::Role": ("ManagedPolicyArns",),
    "AWS::EC2::SecurityGroup": ("SecurityGroupIngress",),
}
WHOLE = ("AWS::EC2::SecurityGroupIngress", "AWS::Lambda::Permission")
"""Resources that are one grant each."""


def added_permissions(before: Template | None, after: Template) -> tuple[str, ...]:
    """Return the grants of a template that its deployed version lacks, one line each.

    `before` None: the stack is not deployed. A Deny statement that goes counts as a grant.
    """
    old = set() if before is None else set(_grants(before))
    new = set(_grants(after))
    removed = {grant for grant in old - new if grant[1].startswith('{"deny')}
    lines = [f"+ {resource}: {text}" for resource, text in sorted(new - old)]
    return (
        *(line for line in lines if '{"deny' not in line),
        *(f"- {resource}: {text}" for resource, text in sorted(removed)),
    )


def require_approval(
    report: Report,
    changes: Mapping[str, Sequence[str]],
    *,
    folder: Path,
    yes: bool,
    confirm: Confirm | None,
) -> None:
    """Print the grants that stacks add, and ask.

    `yes`: ask nothing, print one line a stack and write its grants to a file of `folder`.
    `confirm` asks a question; None: nobody can be asked. Raises DeployFailedError, NotReadyError.
    """
    added = {stack: lines for stack, lines in changes.items() if lines}
    if yes:
        for stack, lines in added.items():
            path = folder / f"{stack}.txt"
            with writing(path):
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            count = quantity(len(lines), "permission")
            report.print(f"– {stack} adds {count}, listed in {displayed_path(path)}")
        return
    if not added:
        return
    for stack, lines in added.items():
        report.print(f"– {stack} adds permissions:")
        for line in lines:
            report.print(f"    {line}")
    if confirm is None:
        raise DeployFailedError(
            f"Refused before deploying: {', '.join(added)} would add the permissions above, and "
            "nobody can be asked, since standard input is no terminal; review them, then add --yes."
        )
    if not confirm("Deploy these permissions?"):
        raise DeployFailedError("Refused before deploying: the permissions were not approved.")


def _grants(template: Template) -> Iterator[tuple[str, str]]:
    for logical_id, resource in template.get("Resources", {}).items():
        kind, properties = resource.get("Type", ""), resource.get("Properties", {})
        name = f"{kind} {logical_id}"
        for key in POLICY_PROPERTIES.get(kind, ()):
            yield from ((name, text) for text in _statements(properties.get(key)))
        for policy in properties.get("Policies", ()) if kind == "AWS::IAM::Role" else ():
            yield from ((name, text) for text in _statements(policy.get("PolicyDocument")))
        for key in LISTS.get(kind, ()):
            yield from ((name, _text({key: value})) for value in _as_list(properties.get(key)))
        if kind in WHOLE:
            yield name, _text(properties)


def _statements(document: Any) -> Iterator[str]:
    """Return each statement on one line: effect, actions, resources, principals, conditions."""
    statements = document.get("Statement", ()) if isinstance(document, Mapping) else ()
    for statement in _as_list(statements):
        effect = str(statement.get("Effect", "Allow")).lower()
        rest = {
            key: sorted(_as_list(value), key=_text) if key != "Condition" else value
            for key, value in statement.items()
            if key not in ("Effect", "Sid")
        }
        yield _text({effect: rest})


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
