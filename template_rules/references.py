"""Where a template names its own parts: Ref, Fn::GetAtt, Fn::Sub, DependsOn, conditions and
mappings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from template_rules.intrinsics import PLACEHOLDER, intrinsic
from template_rules.values import fields, items

Kind = Literal["Ref", "GetAtt", "DependsOn", "Condition", "FindInMap"]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One place that names another part of the template; `resource` is None outside of the
    resources.
    """

    kind: Kind
    target: str
    attribute: str | None = None
    resource: str | None
    path: str
    written: str
    """How the template says it: Ref, Fn::GetAtt, Fn::Sub, ..."""


def references(document: Mapping[str, Any]) -> Iterator[Reference]:
    """Every reference of a template."""
    for logical_id, resource in fields(document.get("Resources")).items():
        if isinstance(resource, dict):
            yield from _of_resource(str(logical_id), resource)
    for section in ("Outputs", "Conditions", "Rules"):
        yield from _in_value(fields(document.get(section)), None, section)
    for name, output in fields(document.get("Outputs")).items():
        yield from _condition(output, None, f"Outputs.{name}.Condition")


def found_in_maps(value: Any, path: str) -> Iterator[tuple[str, list[Any]]]:
    """(path, arguments) of every Fn::FindInMap with three arguments, its mapping named by a text,
    and no Fn::If around it.
    """
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from found_in_maps(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        argument = value.get("Fn::FindInMap")
        if isinstance(argument, list) and len(argument) == 3 and isinstance(argument[0], str):
            yield path, argument
        for key, each in value.items() if "Fn::If" not in value else ():
            yield from found_in_maps(
                each, path if str(key).startswith("Fn::") else f"{path}.{key}" if path else str(key)
            )


def _of_resource(logical_id: str, resource: Mapping[str, Any]) -> Iterator[Reference]:
    for target in items(resource.get("DependsOn")):
        if isinstance(target, str):
            yield Reference(
                kind="DependsOn",
                target=target,
                resource=logical_id,
                path="DependsOn",
                written="DependsOn",
            )
    yield from _condition(resource, logical_id, "Condition")
    for section in ("Properties", "UpdatePolicy", "CreationPolicy"):
        if section in resource:
            yield from _in_value(
                resource[section], logical_id, "" if section == "Properties" else section
            )


def _condition(holder: Any, resource: str | None, path: str) -> Iterator[Reference]:
    name = fields(holder).get("Condition")
    if isinstance(name, str):
        yield Reference(
            kind="Condition", target=name, resource=resource, path=path, written="Condition"
        )


def _in_value(value: Any, resource: str | None, path: str) -> Iterator[Reference]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _in_value(each, resource, f"{path}[{index}]")
    elif isinstance(value, dict):
        name = intrinsic(value)
        if name is None or (name == "Condition" and not isinstance(value[name], str)):
            for key, each in value.items():
                yield from _in_value(each, resource, f"{path}.{key}" if path else str(key))
        else:
            yield from _in_intrinsic(name, value[name], resource, path)
            if name == "Fn::Transform":
                yield from _in_value(
                    {key: each for key, each in value.items() if key != name}, resource, path
                )


def _in_intrinsic(name: str, argument: Any, resource: str | None, path: str) -> Iterator[Reference]:
    if name == "Ref" and isinstance(argument, str):
        yield Reference(kind="Ref", target=argument, resource=resource, path=path, written="Ref")
        return
    if name == "Condition" and isinstance(argument, str):
        # An IAM statement's own Condition is an object; a text is the intrinsic.
        yield Reference(
            kind="Condition", target=argument, resource=resource, path=path, written="Condition"
        )
        return
    if name == "Fn::GetAtt":
        yield from _get_att(argument, resource, path)
    if name == "Fn::Sub":
        yield from _sub(argument, resource, path)
        return
    if (
        name == "Fn::If"
        and isinstance(argument, list)
        and argument
        and isinstance(argument[0], str)
    ):
        yield Reference(
            kind="Condition", target=argument[0], resource=resource, path=path, written=name
        )
        argument = argument[1:]
    if (
        name == "Fn::FindInMap"
        and isinstance(argument, list)
        and argument
        and isinstance(argument[0], str)
    ):
        yield Reference(
            kind="FindInMap", target=argument[0], resource=resource, path=path, written=name
        )
    if name != "Fn::Transform":
        yield from _in_value(argument, resource, path)


def _get_att(argument: Any, resource: str | None, path: str) -> Iterator[Reference]:
    parts = argument.split(".", 1) if isinstance(argument, str) else items(argument)
    if len(parts) == 2 and isinstance(parts[0], str):
        attribute = parts[1] if isinstance(parts[1], str) else None
        yield Reference(
            kind="GetAtt",
            target=parts[0],
            attribute=attribute,
            resource=resource,
            path=path,
            written="Fn::GetAtt",
        )


def _sub(argument: Any, resource: str | None, path: str) -> Iterator[Reference]:
    text, given = (
        (argument[0], fields(argument[1]))
        if isinstance(argument, list) and len(argument) == 2
        else (argument, {})
    )
    if isinstance(text, str):
        for match in PLACEHOLDER.finditer(text):
            name = match.group(1).strip()
            if name in given:
                continue
            target, _, attribute = name.partition(".")
            kind: Kind = "GetAtt" if attribute else "Ref"
            yield Reference(
                kind=kind,
                target=target,
                attribute=attribute or None,
                resource=resource,
                path=path,
                written="Fn::Sub",
            )
    yield from _in_value(given, resource, path)
