"""Rules of what IAM itself reads in a policy: its grammar, its conditions, and resources of the
kind that an action takes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean
from template_rules.finding import Problem
from template_rules.policy_view import (
    ATTACHED,
    INLINE,
    OF_RESOURCES,
    Statement,
    identity_statements,
    policy,
    resource_statements,
    trust_statements,
)
from template_rules.rule import rule
from template_rules.template import Resource, Template
from template_rules.values import fields, is_known, labels, masked, objects, shown, text

VERSIONS = ("2012-10-17", "2008-10-17")
ELEMENTS = (
    *(
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    ),
)
OPERATORS = (
    *(
        "StringEquals",
        "StringNotEquals",
        "StringEqualsIgnoreCase",
        "StringNotEqualsIgnoreCase",
        "StringLike",
        "StringNotLike",
    ),
    *("NumericEquals", "NumericNotEquals", "NumericLessThan", "NumericLessThanEquals"),
    *("NumericGreaterThan", "NumericGreaterThanEquals"),
    *(
        "DateEquals",
        "DateNotEquals",
        "DateLessThan",
        "DateLessThanEquals",
        "DateGreaterThan",
        "DateGreaterThanEquals",
    ),
    *(
        "Bool",
        "BinaryEquals",
        "IpAddress",
        "NotIpAddress",
        "ArnEquals",
        "ArnLike",
        "ArnNotEquals",
        "ArnNotLike",
        "Null",
    ),
)
"""Source: IAM user guide, "IAM JSON policy elements: Condition operators"."""
TRUSTED_ACTIONS = (
    "assumerole",
    "assumerolewithsaml",
    "assumerolewithwebidentity",
    "tagsession",
    "setsourceidentity",
    "setcontext",
)
OBJECT_ACTION = re.compile(
    r"s3:(get|put|delete|restore|replicate)object(version)?(acl|tagging|attributes|retention|legalhold|torrent)?"
    r"|s3:(abortmultipartupload|listmultipartuploadparts)"
)
BUCKET_ACTIONS = (
    "s3:listbucket",
    "s3:listbucketversions",
    "s3:getbucketlocation",
    "s3:listbucketmultipartuploads",
)
BUCKET_ARN = re.compile(r"arn:[^:]*:s3:::[^/*?]+")
NO_BUCKET = re.compile(
    r"(accesspoint|job|access-grants|storage-lens|storage-lens-group|async-request)\b"
)
UNSUBSTITUTED = re.compile(r"\$\{AWS::\w+\}")
"""A pseudo parameter outside of Fn::Sub; IAM's own variables have one colon."""
OBJECT_ARN = re.compile(r"arn:[^:]*:s3:::[^/]+/.*")


@rule("RH241", "a policy is written in IAM's grammar: its version, elements and Sids")
def ill_formed_policy(template: Template) -> Iterator[Problem]:
    for resource, path, document in _documents(template):
        version = text(document.get("Version"))
        if version is not None and version not in VERSIONS:
            what, way_out = "IAM has no such version of its grammar", f"write {VERSIONS[0]}"
            yield Problem(
                resource=resource.logical_id,
                path=f"{path}.Version",
                what=what,
                value=version,
                allowed=", ".join(VERSIONS),
                way_out=way_out,
            )
        sids: Counter[str] = Counter()
        identity = resource.type in (*INLINE, *ATTACHED)
        for index, each in objects(document.get("Statement")):
            place = f"{path}.Statement[{index}]"
            for name in each:
                if name not in ELEMENTS and not str(name).startswith("Fn::"):
                    what, way_out = (
                        "a statement has no such element",
                        did_you_mean(str(name), ELEMENTS, "take it out"),
                    )
                    yield Problem(
                        resource=resource.logical_id,
                        path=f"{place}.{name}",
                        what=what,
                        way_out=way_out,
                    )
            sid = text(each.get("Sid"))
            if sid is None:
                continue
            sids[sid] += 1
            if identity and (sids[sid] == 2 or re.fullmatch(r"[0-9A-Za-z]*", sid) is None):
                what = (
                    "a Sid is of letters and digits"
                    if sids[sid] < 2
                    else "two statements have one Sid"
                )
                yield Problem(
                    resource=resource.logical_id,
                    path=f"{place}.Sid",
                    what=what,
                    value=sid,
                    way_out="rename it",
                )


@rule(
    "RH242",
    "a condition compares by an operator that IAM has, which reads the wildcards that it is given",
)
def unknown_operator(template: Template) -> Iterator[Problem]:
    for statement in _all_statements(template):
        for key, compared in fields(statement.content.get("Condition")).items():
            bare = re.sub(r"IfExists$", "", re.sub(r"^ForA(ny|ll)Values?:", "", str(key)))
            where = f"{statement.path}.Condition.{key}"
            if not is_known(key) or str(key).startswith("Fn::"):
                continue
            if bare not in OPERATORS or (
                str(key).startswith("ForA") and not re.match(r"ForA(nyValue|llValues):", str(key))
            ):
                way_out = did_you_mean(bare, OPERATORS, "write one of them")
                yield _problem(
                    statement, where, "IAM has no such condition operator", str(key), way_out
                )
            elif bare in ("StringEquals", "StringEqualsIgnoreCase"):
                for name, value in fields(compared).items():
                    for each in value if isinstance(value, list) else [value]:
                        if (
                            isinstance(each, str)
                            and re.search(r"\*$|\*[.:/]|[.:/]\*", each)
                            and is_known(each)
                        ):
                            what = f"{bare} reads * as a character, not as a wildcard, so that {name} never matches"
                            yield _problem(
                                statement, where, what, each, "write StringLike or ArnLike"
                            )


@rule("RH243", "a trust policy allows to assume the role, and names no resource")
def ill_formed_trust(template: Template) -> Iterator[Problem]:
    for statement in trust_statements(template):
        for name in ("Resource", "NotResource"):
            if name in statement.content:
                yield _problem(
                    statement,
                    f"{statement.path}.{name}",
                    f"a trust policy has no {name}",
                    None,
                    "take it out",
                )
        for action in statement.actions if statement.allows else ():
            service, _, verb = action.lower().partition(":")
            if service != "*" and (
                service != "sts" or (verb not in TRUSTED_ACTIONS and not re.search(r"[*?]", verb))
            ):
                what = "a trust policy allows nothing but to assume the role"
                yield _problem(
                    statement, f"{statement.path}.Action", what, action, "write sts:AssumeRole"
                )


@rule(
    "RH244",
    "what is allowed on objects names objects, and what is allowed on a bucket names the bucket",
)
def resource_of_another_kind(template: Template) -> Iterator[Problem]:
    for statement in identity_statements(template):
        given, actions = (
            statement.content.get("Resource"),
            [action.lower() for action in statement.actions],
        )
        resources = [
            each
            for each in (given if isinstance(given, list) else [given])
            if isinstance(each, str)
        ]
        if not statement.allows or not resources or not actions:
            continue
        kinds = {_s3_kind(template, each) for each in resources}
        on_objects = [each for each in actions if OBJECT_ACTION.fullmatch(each)]
        on_buckets = [each for each in actions if each in BUCKET_ACTIONS]
        if on_objects and kinds == {"bucket"}:
            what = f"{on_objects[0]} is about objects, and this is a bucket: nothing is allowed"
            yield _problem(
                statement,
                f"{statement.path}.Resource",
                what,
                shown(resources[0]),
                "write the bucket's ARN with /*",
            )
        elif on_buckets and kinds == {"object"}:
            what = f"{on_buckets[0]} is about a bucket, and these are objects: nothing is allowed"
            yield _problem(
                statement,
                f"{statement.path}.Resource",
                what,
                shown(resources[0]),
                "write the bucket's own ARN",
            )


@rule("RH245", "an ARN in a policy has all its parts, as its service writes them")
def ill_formed_arn(template: Template) -> Iterator[Problem]:
    for statement in _all_statements(template):
        for resource in statement.resources:
            left = UNSUBSTITUTED.search(masked(resource))
            if left is not None and not template.macros:
                what = f"{left[0]} stands in it as it is written, so that it matches nothing"
                yield _problem(
                    statement,
                    f"{statement.path}.Resource",
                    what,
                    shown(resource),
                    "write the ARN by Fn::Sub",
                )
                continue
            if (
                not is_known(resource)
                or not resource.startswith("arn:")
                or "*" in resource.split("/")[0]
            ):
                continue
            place, parts = f"{statement.path}.Resource", resource.split(":", 5)
            if len(parts) < 6 or not parts[2] or not parts[5]:
                what = "the ARN lacks a part"
                yield _problem(
                    statement,
                    place,
                    what,
                    shown(resource),
                    "write arn:partition:service:region:account:name",
                )
            elif parts[2] == "s3" and (parts[3] or parts[4]) and NO_BUCKET.match(parts[5]) is None:
                what = "an ARN of a bucket has neither region nor account, so that this one matches nothing"
                yield _problem(statement, place, what, shown(resource), "write arn:aws:s3:::bucket")


def _s3_kind(template: Template, resource: str) -> str:
    """`bucket`, `object`, or something else."""
    meant = labels(resource)
    if len(meant) == 1 and resource.strip("\0") == meant[0] and meant[0].endswith(".Arn"):
        held = template.resources.get(meant[0][:-4])
        return "bucket" if held is not None and held.type == "AWS::S3::Bucket" else "other"
    if BUCKET_ARN.fullmatch(resource):
        return "bucket" if is_known(resource) else "other"
    return "object" if OBJECT_ARN.fullmatch(resource) else "other"


def _all_statements(template: Template) -> Iterator[Statement]:
    yield from identity_statements(template)
    yield from trust_statements(template)
    yield from resource_statements(template)


def _documents(template: Template) -> Iterator[tuple[Resource, str, dict[str, Any]]]:
    for resource in template.of_type(*INLINE, *ATTACHED, *OF_RESOURCES):
        paths = (
            ["PolicyDocument"]
            if resource.type in ATTACHED
            else [OF_RESOURCES.get(resource.type, "AssumeRolePolicyDocument")]
        )
        yield from ((resource, path, policy(resource.properties.get(path))) for path in paths)
        for index, each in objects(
            resource.properties.get("Policies") if resource.type in INLINE else None
        ):
            yield resource, f"Policies[{index}].PolicyDocument", policy(each.get("PolicyDocument"))


def _problem(
    statement: Statement, path: str, what: str, value: str | None, way_out: str
) -> Problem:
    return Problem(
        resource=statement.resource.logical_id, path=path, what=what, value=value, way_out=way_out
    )
