"""Rules of a template's sections and of what stands beside a resource's properties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean, nearest
from template_rules.finding import Problem, Severity
from template_rules.intrinsics import intrinsic
from template_rules.rule import rule
from template_rules.template import SAM, Template
from template_rules.values import fields, is_known, number, objects, shown, text

SECTIONS = (
    *(
        "AWSTemplateFormatVersion",
        "Description",
        "Metadata",
        "Parameters",
        "Rules",
        "Mappings",
        "Conditions",
    ),
    *("Transform", "Resources", "Outputs", "Hooks", "Globals"),
)
BESIDE = (
    *(
        "Type",
        "Properties",
        "DependsOn",
        "Condition",
        "Metadata",
        "DeletionPolicy",
        "UpdateReplacePolicy",
    ),
    *("CreationPolicy", "UpdatePolicy", "Comment", "Description"),
)
"""The last two are no attributes of AWS's documents; CloudFormation takes them, as many a deployed
template shows.
"""
POLICIES = ("Delete", "Retain", "RetainExceptOnCreate", "Snapshot")
SNAPSHOTS = (
    "AWS::EC2::Volume",
    "AWS::ElastiCache::",
    "AWS::Neptune::",
    "AWS::RDS::",
    "AWS::Redshift::",
    "AWS::DocDB::",
)
PARAMETER_KINDS = ("String", "Number", "List<Number>", "CommaDelimitedList")
FUNCTIONS = (
    *(
        "Base64",
        "Cidr",
        "FindInMap",
        "GetAtt",
        "GetAZs",
        "If",
        "ImportValue",
        "Join",
        "Select",
        "Split",
        "Sub",
        "Transform",
    ),
    *("And", "Equals", "Not", "Or", "Length", "ToJsonString", "GetStackOutput"),
    *("Contains", "EachMemberEquals", "EachMemberIn", "RefAll", "ValueOf", "ValueOfAll"),
)
"""What comes after `Fn::`.

Source: CloudFormation template reference, intrinsic and rule-specific functions.
"""
SHOWN_VALUES = 8


@rule("RH016", "a template's sections are CloudFormation's, of its one format version")
def unknown_section(template: Template) -> Iterator[Problem]:
    if template.macros:
        return
    for name in template.document:
        if name not in SECTIONS:
            yield Problem(
                path=str(name),
                what="a template has no such section",
                way_out=did_you_mean(str(name), SECTIONS, "take it out"),
            )
    version = template.document.get("AWSTemplateFormatVersion", "2010-09-09")
    if version != "2010-09-09":
        way_out = "write '2010-09-09', in quotes, or take it out"
        yield Problem(
            path="AWSTemplateFormatVersion",
            what="there is no such format version",
            value=str(version),
            allowed="2010-09-09",
            way_out=way_out,
        )


@rule("RH017", "what stands beside a resource's properties is there for a resource of its type")
def ill_placed_attribute(template: Template) -> Iterator[Problem]:
    for resource in template.resources.values() if not template.macros else ():
        others = ("Connectors", "IgnoreGlobals") if SAM in template.transforms else ()
        own = resource.type.startswith(("Custom::", "AWS::CloudFormation::CustomResource"))
        for name in resource.raw:
            if own and name == "Version":
                continue
            if name not in (*BESIDE, *others) and not str(name).startswith("Fn::"):
                way_out = did_you_mean(str(name), BESIDE, "put it under Properties, or take it out")
                what = "a resource has no such attribute"
                severity: Severity | None = (
                    "warning" if resource.type.startswith("AWS::Serverless::") else None
                )
                yield Problem(
                    resource=resource.logical_id,
                    path=str(name),
                    what=what,
                    way_out=way_out,
                    severity=severity,
                )
        for name in ("DeletionPolicy", "UpdateReplacePolicy"):
            policy = text(template.resolved(resource.raw.get(name)))
            refused = (
                policy == "Snapshot"
                and resource.type.startswith("AWS::")
                and not resource.type.startswith(SNAPSHOTS)
            )
            if policy is not None and (policy not in POLICIES or refused):
                allowed = ", ".join(POLICIES[:-1] if refused else POLICIES)
                what = (
                    f"{resource.type} keeps no snapshot" if refused else f"there is no such {name}"
                )
                way_out = (
                    "write Retain"
                    if refused
                    else did_you_mean(policy, POLICIES, "write one of these")
                )
                yield Problem(
                    resource=resource.logical_id,
                    path=name,
                    what=what,
                    value=policy,
                    allowed=allowed,
                    way_out=way_out,
                )


@rule("RH018", "a parameter has a type, and its default is one of its values")
def ill_formed_parameter(template: Template) -> Iterator[Problem]:
    for name, given in fields(template.document.get("Parameters")).items():
        if str(name).startswith("Fn::"):
            continue
        place, parameter = f"Parameters.{name}", fields(given)
        kind, default = parameter.get("Type"), parameter.get("Default")
        if not isinstance(kind, str):
            yield Problem(
                path=f"{place}.Type",
                what="the parameter has no Type",
                way_out="write one, such as String",
            )
        elif kind not in PARAMETER_KINDS and not kind.startswith(("AWS::", "List<")):
            way_out = did_you_mean(kind, PARAMETER_KINDS, "write one of these, or an AWS type")
            allowed = ", ".join(PARAMETER_KINDS)
            yield Problem(
                path=f"{place}.Type",
                what="there is no such parameter type",
                value=kind,
                allowed=allowed,
                way_out=way_out,
            )
        if isinstance(default, list | dict):
            what = "a parameter's default is one text or number"
            yield Problem(
                path=f"{place}.Default",
                what=what,
                way_out="write a list's values with commas between",
            )
            continue
        given_values = parameter.get("AllowedValues")
        allowed_values = given_values if isinstance(given_values, list) else []
        values = (
            [default]
            if kind in ("String", "Number")
            else [part.strip() for part in str(default).split(",")]
        )
        whole = str(default).lower() in [str(each).lower() for each in allowed_values]
        for value in values if default is not None and allowed_values and not whole else ():
            if str(value).lower() not in [str(each).lower() for each in allowed_values]:
                what, allowed = (
                    "the default is none of the AllowedValues",
                    ", ".join(map(str, allowed_values[:SHOWN_VALUES])),
                )
                yield Problem(
                    path=f"{place}.Default",
                    what=what,
                    value=str(value),
                    allowed=allowed,
                    way_out="add it there",
                )
        figure = number(default)
        for bound, sign in (("MinValue", 1), ("MaxValue", -1)):
            limit = number(parameter.get(bound))
            if (
                kind == "Number"
                and figure is not None
                and limit is not None
                and (figure - limit) * sign < 0
            ):
                what, allowed = f"the default is beyond {bound}", f"{limit:g}"
                yield Problem(
                    path=f"{place}.Default",
                    what=what,
                    value=f"{figure:g}",
                    allowed=allowed,
                    way_out="change one",
                )


@rule("RH019", "an output has a value, and is exported under a name of its own")
def ill_formed_output(template: Template) -> Iterator[Problem]:
    outputs = {
        name: each
        for name, each in fields(template.document.get("Outputs")).items()
        if not str(name).startswith("Fn::")
    }
    if template.macros:
        return
    exports: Counter[str] = Counter()
    for name, output in outputs.items():
        value = fields(output).get("Value")
        if (
            value is None
            or isinstance(value, list)
            or (isinstance(value, dict) and intrinsic(value) is None)
        ):
            what = "the output has no Value" if value is None else "an output's Value is one text"
            yield Problem(
                path=f"Outputs.{name}.Value", what=what, way_out="write one; a list by Fn::Join"
            )
        export = text(template.resolved(fields(fields(output).get("Export")).get("Name")))
        exports.update([export] if export is not None and "Condition" not in fields(output) else [])
    for name, count in exports.items():
        if count > 1:
            what = "two outputs are exported under one name"
            yield Problem(path="Outputs", what=what, value=name, way_out="rename one")


ARGUMENTS = {
    "Join": (2, 2),
    "Select": (2, 2),
    "Split": (2, 2),
    "If": (3, 3),
    "FindInMap": (3, 4),
    "Cidr": (2, 3),
}
"""How many things each function's list has.

Source: CloudFormation template reference, intrinsic functions.
"""


@rule("RH025", "an intrinsic function is one that CloudFormation has, with its arguments")
def unknown_function(template: Template) -> Iterator[Problem]:
    if template.transforms:
        return
    for resource in template.resources.values():
        for path, name, argument in _functions(resource.raw.get("Properties"), ""):
            word = name.partition("::")[2]
            if word in ARGUMENTS:
                given = f"a list of {len(argument)}" if isinstance(argument, list) else "no list"
                least, most = ARGUMENTS[word]
                yield Problem(
                    resource=resource.logical_id,
                    path=path,
                    what=f"{name} takes a list of {least if least == most else f'{least} or {most}'}",
                    value=given,
                    way_out="write its arguments as one list",
                )
                continue
            match = nearest(word, FUNCTIONS)
            way_out = "write the value itself" if match is None else f"did you mean Fn::{match}?"
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what="there is no such function",
                value=name,
                way_out=way_out,
            )


def _functions(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Functions that there are not, and those with another number of arguments: where, the name,
    and the argument.
    """
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _functions(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            name = str(key)
            least, most = ARGUMENTS.get(name[4:] if name.startswith("Fn::") else "", (0, None))
            fits = most is None or (isinstance(each, list) and least <= len(each) <= most)
            if (
                name.startswith("Fn::")
                and "::" not in name[4:]
                and (name[4:] not in FUNCTIONS or not fits)
            ):
                yield path, name, each
            below = path if name.startswith("Fn::") else f"{path}.{name}" if path else name
            yield from _functions(each, below)


@rule("RH026", "no value of a template is null")
def null_value(template: Template) -> Iterator[Problem]:
    if template.transforms or "Transform" in template.document:
        return
    for section in ("Parameters", "Mappings", "Conditions", "Resources", "Outputs"):
        for name, each in fields(template.document.get(section)).items():
            inside = (
                {key: held for key, held in each.items() if key != "Metadata"}
                if isinstance(each, dict)
                else each
            )
            for path in _nulls(inside, ""):
                resource = str(name) if section == "Resources" else None
                where = (
                    path.removeprefix("Properties.")
                    if resource is not None
                    else f"{section}.{name}{'.' if path else ''}{path}"
                )
                what = "the value is null, and CloudFormation refuses the template"
                yield Problem(
                    resource=resource,
                    path=where,
                    what=what,
                    value="null",
                    way_out="write a value, or take the key out",
                )


def _nulls(value: Any, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _nulls(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            if each is not None or not str(key).startswith("Fn::"):
                yield from _nulls(each, f"{path}.{key}" if path else str(key))


@rule("RH037", "a resource has a tag once, and none of AWS's own")
def ill_formed_tags(template: Template) -> Iterator[Problem]:
    for resource in template.resources.values():
        if (
            not resource.type.startswith("AWS::")
            or resource.type == "AWS::AutoScaling::AutoScalingGroup"
        ):
            continue
        tags = resource.properties.get("Tags")
        named = (
            list(fields(tags))
            if isinstance(tags, dict)
            else [each.get("Key") for _, each in objects(tags)]
        )
        keys = Counter(key for key in named if isinstance(key, str) and is_known(key))
        for key, count in keys.items():
            taken = key.lower().startswith("aws:")
            if taken or count > 1:
                what = (
                    "tags that begin with aws: are AWS's own" if taken else "the tag is there twice"
                )
                way_out = "rename it" if taken else "keep one"
                yield Problem(
                    resource=resource.logical_id,
                    path="Tags",
                    what=what,
                    value=shown(key),
                    way_out=way_out,
                )
