"""Rules of IAM: exact actions on exact resources, and nobody's full access."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import nearest
from template_rules.catalogue import action_words, iam_actions
from template_rules.finding import Problem, Severity
from template_rules.policy_view import (
    INLINE,
    Statement,
    identity_statements,
    principals,
    resource_statements,
    trust_statements,
)
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import (
    MARK,
    fields,
    is_known,
    is_wholly_unknown,
    items,
    masked,
    shown,
    text,
)

FULL_ACCESS = re.compile(r"(FullAccess|AdministratorAccess|PowerUserAccess|IAMFullAccess)$")
ADMINISTRATOR = re.compile(r"/(AdministratorAccess|PowerUserAccess|IAMFullAccess)$")
GRAVE_ON_EVERYTHING = ("iam:passrole",)
"""IAM Access Analyzer calls it a security warning: whoever may pass every role has the rights of
each.
"""
ACTION = re.compile(r"(\*|[A-Za-z0-9-]+:[A-Za-z0-9*?]+)")
EVERYTHING = re.compile(r"\*|arn:[^:]*:(\*|[a-z0-9-]*):[^:]*:[^:]*:\*")
CONDITIONS = (
    "StringEquals",
    "StringNotEquals",
    "ArnLike",
    "ArnEquals",
    "Bool",
    "StringLike",
    "StringEqualsIgnoreCase",
    "IpAddress",
)
EFFECTS = ("Allow", "Deny")
MISSPELT = 0.9
"""How alike an action is to one that there is, of 1, to be taken for it; another may be newer than
what is known here.
"""
LONGEST_POLICIES = {
    "AWS::IAM::Role": 10_240,
    "AWS::IAM::Group": 5_120,
    "AWS::IAM::User": 2_048,
    "AWS::IAM::ManagedPolicy": 6_144,
}
"""Characters, of all inline policies together.

Source: IAM user guide, "IAM and STS character limits".
"""


@rule("RH220", "a policy allows actions by name: never * or a whole service")
def every_action(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        for action in statement.actions if statement.allows else ():
            service, _, verb = action.partition(":")
            if action == "*" or verb == "*" or "*" in service:
                what = (
                    "every action is allowed"
                    if "*" in service
                    else f"every action of {service} is allowed"
                )
                severity: Severity | None = (
                    None if "*" in service or _on_everything(statement) else "warning"
                )
                yield _problem(
                    statement, "Action", what, action, "name the actions that are used", severity
                )


@rule("RH221", "a policy names whole actions", "warning")
def action_with_wildcard(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        for action in statement.actions if statement.allows else ():
            verb = action.partition(":")[2]
            if verb != "*" and re.search(r"[*?]", verb):
                yield _problem(
                    statement,
                    "Action",
                    "the action has a wildcard",
                    action,
                    "name the actions that are used",
                )


@rule("RH222", "a policy names what its actions are about, where the action knows resources")
def every_resource(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        if not statement.allows or statement.narrowed:
            continue
        everything = [each for each in statement.resources if EVERYTHING.fullmatch(masked(each))]
        wide = [
            action for action in statement.actions if action != "*" and _takes_a_resource(action)
        ]
        if everything and wide:
            what = f"{', '.join(wide[:4])}{' and others' if len(wide) > 4 else ''} may touch everything"
            grave = any(each.endswith(":*") or each.lower() in GRAVE_ON_EVERYTHING for each in wide)
            way_out = "name ARNs, or narrow it with a Condition"
            severity: Severity | None = None if grave else "warning"
            yield _problem(statement, "Resource", what, shown(everything[0]), way_out, severity)
        elif everything and "*" in statement.actions:
            yield _problem(
                statement,
                "Resource",
                "everything may be touched",
                shown(everything[0]),
                "name ARNs",
            )


@rule("RH223", "an IAM action is one that its service has")
def unknown_action(template: Template) -> Iterator[Problem]:
    for statement in (
        *identity_statements(template),
        *resource_statements(template),
        *trust_statements(template),
    ):
        for key in ("Action", "NotAction"):
            for action in (
                each
                for value in items(statement.content.get(key))
                if (each := text(value)) is not None
            ):
                yield from _unknown_action(statement, key, action)


@rule("RH224", "no managed policy gives full access")
def full_access_policy(template: Template) -> Iterator[Problem]:
    for resource in template.of_type("AWS::IAM::Role", "AWS::IAM::User", "AWS::IAM::Group"):
        for index, value in enumerate(items(resource.properties.get("ManagedPolicyArns"))):
            if isinstance(value, str) and FULL_ACCESS.search(masked(value)):
                yield Problem(
                    resource=resource.logical_id,
                    path=f"ManagedPolicyArns[{index}]",
                    what="the managed policy gives full access",
                    value=shown(value),
                    way_out="write the statements that are needed, on the resources that are used",
                    severity=None if ADMINISTRATOR.search(masked(value)) else "warning",
                )


@rule("RH225", "what is allowed is listed, not what is left out")
def allows_all_but(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        for key in ("NotAction", "NotResource"):
            if statement.allows and key in statement.content:
                severity: Severity | None = (
                    None if key == "NotAction" or _whole_services(statement) else "warning"
                )
                what, way_out = f"{key} allows everything else", f"write {key.removeprefix('Not')}"
                yield _problem(statement, key, what, None, way_out, severity)


@rule("RH226", "a role is assumed by services and accounts that are named")
def anybody_assumes(template: Template) -> Iterator[Problem]:
    for statement in trust_statements(template):
        for principal in (
            principals(statement) if statement.allows and not statement.narrowed else ()
        ):
            if principal == "*" or re.fullmatch(r"arn:[^:]*:iam::\*:.*", masked(principal)):
                yield _problem(
                    statement,
                    "Principal",
                    "anybody may assume the role",
                    shown(principal),
                    "name the service or the account",
                )


@rule("RH227", "a statement has an Effect, and says what it is about")
def ill_formed_statement(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        content = statement.content
        effect = content.get("Effect")
        if effect is None or (is_known(effect) and effect not in EFFECTS):
            yield _problem(
                statement,
                "Effect",
                "the effect is neither Allow nor Deny",
                "nothing" if effect is None else str(effect),
                "write one",
            )
        for either in (("Action", "NotAction"), ("Resource", "NotResource")):
            if not any(each in content for each in either):
                yield _problem(
                    statement, either[0], f"the statement has no {either[0]}", None, "write it"
                )
        if "Principal" in content:
            yield _problem(
                statement,
                "Principal",
                "an identity's own policy has no principal",
                None,
                "take it out",
            )
    for statement in (*trust_statements(template), *resource_statements(template)):
        if not any(each in statement.content for each in ("Principal", "NotPrincipal")):
            yield _problem(
                statement,
                "Principal",
                "the statement says nothing of whom it is about",
                None,
                "name a principal",
            )


@rule("RH228", "a resource in a policy is an ARN or *")
def resource_no_arn(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        for resource in statement.resources:
            if is_wholly_unknown(resource) or resource == "*" or not is_known(resource[:1]):
                continue
            if not resource.startswith("arn:"):
                yield _problem(
                    statement,
                    "Resource",
                    "the resource is no ARN",
                    shown(resource),
                    "write arn:partition:service:region:account:name",
                )


@rule("RH229", "what a role, user or group may do is no longer than IAM takes")
def policy_too_long(template: Template) -> Iterator[Problem]:
    for resource in template.of_type(*LONGEST_POLICIES):
        inline = [
            fields(policy).get("PolicyDocument")
            for policy in items(resource.properties.get("Policies"))
        ]
        documents = (
            inline if resource.type in INLINE else [resource.properties.get("PolicyDocument")]
        )
        length, most = sum(map(_length, documents)), LONGEST_POLICIES[resource.type]
        if length > most:
            yield Problem(
                resource=resource.logical_id,
                path="Policies" if resource.type in INLINE else "PolicyDocument",
                what="the policy is longer than IAM takes",
                value=f"{length} characters",
                allowed=f"{most} characters without spaces",
                way_out="name what is common, such as a prefix, instead of every single thing",
            )


def _length(document: Any) -> int:
    """Characters that IAM counts, white space left out; an unknown part counts one at least."""
    return len(
        re.sub(
            r"\s",
            "",
            masked(
                json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace(
                    r"\u0000", MARK
                )
            ),
        )
    )


def _unknown_action(statement: Statement, key: str, action: str) -> Iterator[Problem]:
    if ACTION.fullmatch(action) is None:
        yield _problem(statement, key, "that is no action", action, "write service:Action")
        return
    service, _, verb = _parts(action)
    if service not in iam_actions() or not verb:
        return
    known, _ = action_words(service)
    if re.search(r"[*?]", verb):
        pattern = re.compile(re.escape(verb.lower()).replace(r"\*", ".*").replace(r"\?", "."))
        if not any(pattern.fullmatch(each) for each in known):
            yield _problem(
                statement,
                key,
                f"no action of {service} is meant by it",
                action,
                "name actions that there are",
                "warning",
            )
    elif verb.lower() not in known:
        match = nearest(verb, known.values())
        way_out = "name one that there is" if match is None else f"did you mean {service}:{match}?"
        misspelt = nearest(verb, known.values(), cutoff=MISSPELT) is not None
        yield _problem(
            statement,
            key,
            f"{service} has no such action",
            action,
            way_out,
            None if misspelt else "warning",
        )


def _parts(action: str) -> tuple[str, str, str]:
    """Service, colon and verb; IAM reads a service in any case."""
    service, colon, verb = action.partition(":")
    return service.lower(), colon, verb


def _takes_a_resource(action: str) -> bool:
    """False for an action that is known to take `*` alone, and for services that are not known
    here.
    """
    service, _, verb = _parts(action)
    if service not in iam_actions():
        return False
    known, unnarrowed = action_words(service)
    if re.search(r"[*?]", verb):
        pattern = re.compile(re.escape(verb.lower()).replace(r"\*", ".*").replace(r"\?", "."))
        return any(pattern.fullmatch(each) and each not in unnarrowed for each in known)
    return verb.lower() in known and verb.lower() not in unnarrowed


def _on_everything(statement: Statement) -> bool:
    wide = (
        any(EVERYTHING.fullmatch(masked(each)) for each in statement.resources)
        or "NotResource" in statement.content
    )
    return wide and not statement.narrowed


def _whole_services(statement: Statement) -> bool:
    return any(each == "*" or each.endswith(":*") for each in statement.actions)


def _problem(
    statement: Statement,
    key: str,
    what: str,
    value: str | None,
    way_out: str,
    severity: Severity | None = None,
) -> Problem:
    sid = text(fields(statement.content).get("Sid"))
    named = what if sid is None else f"{what} (statement {sid})"
    return Problem(
        resource=statement.resource.logical_id,
        path=f"{statement.path}.{key}",
        what=named,
        value=value,
        way_out=way_out,
        severity=severity,
    )
