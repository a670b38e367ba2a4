"""Rules of single properties, by AWS's own schemas of the types that we deploy."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.template import Template


@rule("RH030", "every property is one that its type has")
def unknown_property(template: Template) -> Iterator[Problem]:
    return _refused(template, "unknown")


@rule("RH031", "every property that a type needs is there")
def missing_property(template: Template) -> Iterator[Problem]:
    return _refused(template, "required")


@rule("RH032", "every property is of its type: a text, a whole number, a list")
def wrong_type(template: Template) -> Iterator[Problem]:
    return _refused(template, "type")


@rule("RH033", "a property with a list of values has one of them")
def value_not_allowed(template: Template) -> Iterator[Problem]:
    return _refused(template, "enum")


@rule("RH034", "numbers, lengths and counts are within their bounds")
def out_of_range(template: Template) -> Iterator[Problem]:
    return _refused(template, "range")


@rule("RH035", "names and texts match their pattern")
def pattern_not_matched(template: Template) -> Iterator[Problem]:
    return _refused(template, "pattern")


@rule("RH036", "properties that exclude or need one another do so")
def not_together(template: Template) -> Iterator[Problem]:
    return _refused(template, "together")


def _refused(template: Template, keyword: str) -> Iterator[Problem]:
    for resource, violation in template.violations.get(keyword, ()):
        yield Problem(
            resource=resource.logical_id,
            path=violation.path,
            what=violation.what,
            value=violation.value,
            allowed=violation.allowed,
            way_out=violation.way_out,
            severity="warning" if violation.value in template.defaults else None,
        )
