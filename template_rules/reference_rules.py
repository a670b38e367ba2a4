"""Rules of what a template's parts say of one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from onboarding.nearest import comma_list, did_you_mean
from template_rules.catalogue import attributes
from template_rules.finding import Problem
from template_rules.references import Reference, found_in_maps
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import fields

PSEUDO_PARAMETERS = frozenset(
    f"AWS::{name}"
    for name in (
        "AccountId",
        "NotificationARNs",
        "NoValue",
        "Partition",
        "Region",
        "StackId",
        "StackName",
        "URLSuffix",
    )
)
MANY_ATTRIBUTES = (
    "AWS::CloudFormation::Stack",
    "AWS::CloudFormation::CustomResource",
    "AWS::CloudFormation::Macro",
)


@rule("RH020", "Ref and Fn::Sub name a parameter, a resource or a pseudo parameter that is there")
def dangling_ref(template: Template) -> Iterator[Problem]:
    known = {
        *fields(template.document.get("Parameters")),
        *fields(template.document.get("Resources")),
        *PSEUDO_PARAMETERS,
    }
    for reference in template.references:
        if reference.kind == "Ref" and reference.target not in known and not template.transforms:
            yield _missing(reference, "no parameter or resource", known - PSEUDO_PARAMETERS)


@rule("RH021", "Fn::GetAtt and Fn::Sub ask a resource that is there for an attribute that it has")
def bad_get_att(template: Template) -> Iterator[Problem]:
    if template.transforms:
        return
    resources = fields(template.document.get("Resources"))
    for reference in template.references:
        if reference.kind != "GetAtt":
            continue
        if reference.target not in resources:
            yield _missing(reference, "no resource", resources)
            continue
        resource = template.resources.get(reference.target)
        known = attributes().get(resource.type) if resource is not None else None
        if (
            known is None
            or resource is None
            or reference.attribute is None
            or resource.type in MANY_ATTRIBUTES
        ):
            continue
        if not _has(known, reference.attribute):
            yield Problem(
                resource=reference.resource,
                path=reference.path,
                what=f"{reference.written} asks {reference.target}, an {resource.type}, for an attribute that it has not",
                value=reference.attribute,
                allowed=comma_list(known),
                way_out=did_you_mean(reference.attribute, known, "ask for one of these"),
            )


@rule("RH022", "DependsOn names other resources that are there")
def dangling_depends_on(template: Template) -> Iterator[Problem]:
    resources = fields(template.document.get("Resources"))
    for reference in template.references:
        if (
            reference.kind == "DependsOn"
            and reference.target not in resources
            and not template.transforms
        ):
            yield _missing(reference, "no resource", resources)


@rule("RH023", "no resource waits for itself, by whatever chain")
def circular_dependency(template: Template) -> Iterator[Problem]:
    reported: set[str] = set()
    if template.transforms:
        return
    for logical_id in template.resources:
        circle = _circle(template, logical_id)
        if circle and not reported.intersection(circle):
            reported.update(circle)
            chain = " -> ".join([*circle, circle[0]])
            yield Problem(
                resource=circle[0],
                what="resources wait for one another",
                value=chain,
                way_out="take one reference out",
            )


@rule("RH024", "conditions and mappings that are named are there")
def dangling_condition(template: Template) -> Iterator[Problem]:
    sections = {"Condition": "Conditions", "FindInMap": "Mappings"}
    for reference in template.references:
        section = sections.get(reference.kind)
        if (
            section is not None
            and reference.target not in fields(template.document.get(section))
            and not template.transforms
        ):
            yield _missing(
                reference, f"nothing under {section}", fields(template.document.get(section))
            )


@rule("RH027", "a mapping has the keys that are asked of it")
def key_not_in_mapping(template: Template) -> Iterator[Problem]:
    mappings = fields(template.document.get("Mappings"))
    for resource in template.resources.values() if not template.transforms else ():
        for path, argument in found_in_maps(
            resource.raw.get("Properties") if "Condition" not in resource.raw else None, ""
        ):
            name, top, second = argument
            rows = fields(mappings.get(name))
            if not rows:
                continue
            known = [str(key) for key in rows]
            held = rows.values() if not isinstance(top, str) else [rows.get(top)]
            if not isinstance(top, str) or top in rows:
                known = sorted({str(key) for row in held for key in fields(row)})
            wanted = top if isinstance(top, str) and top not in rows else second
            if isinstance(wanted, str) and wanted not in known:
                what = f"mapping {name} has no such key"
                way_out = did_you_mean(wanted, known, "name one that is there")
                yield Problem(
                    resource=resource.logical_id,
                    path=path,
                    what=what,
                    value=wanted,
                    allowed=comma_list(known),
                    way_out=way_out,
                )


def _missing(reference: Reference, nothing: str, known: Iterable[str]) -> Problem:
    words = sorted(known)
    return Problem(
        resource=reference.resource,
        path=reference.path,
        what=f"{reference.written} names '{reference.target}', and {nothing} has that name",
        allowed=comma_list(words) if len(words) <= 12 else None,
        way_out=did_you_mean(reference.target, words, "name one that is there"),
    )


def _has(known: Iterable[str], attribute: str) -> bool:
    """Attributes of nested stacks and the like are patterns."""
    return any(
        attribute == each or (not each.isalnum() and re.fullmatch(each, attribute))
        for each in known
    )


def _circle(template: Template, start: str) -> list[str]:
    """A chain of resources from one back to itself, first in the template's order; empty when there
    is none.
    """
    parents: dict[str, str] = {}
    ahead = [start]
    while ahead:
        here = ahead.pop()
        for each in sorted(template.dependencies.get(here, ())):
            if each == start:
                chain = [here]
                while chain[-1] != start:
                    chain.append(parents[chain[-1]])
                return chain[::-1]
            if each not in parents:
                parents[each] = here
                ahead.append(each)
    return []
